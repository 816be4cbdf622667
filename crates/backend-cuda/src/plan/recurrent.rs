//! The launches of a gated delta net: its convolution, its rule, its gates and norms.

use super::launches::{Call, Frame, arguments, by_head, strided, word};
use crate::driver::Argument;
use crate::error::unsupported;
use crate::jit::{Variant, delta_rule};
use gannet_ops::{DeltaRule, DeviceError, HeadMap, Node, StateId, WeightId};

/// Threads of a block of the convolution, a channel each.
const CHANNELS: usize = 256;
/// Columns of a block of the rule, and threads that have one.
const COLUMNS: usize = 16;
const COLUMN_THREADS: usize = 8;
/// Elements of a column that a thread has in registers, at most.
const PART_MAX: usize = 32;

impl Frame<'_> {
    pub(super) fn l2_norm(&self, heads: usize, (epsilon, scale): (f32, f32), node: &Node) -> Call {
        let (rows, dim) = (self.rows_of(node.outputs[0]), self.width(node.outputs[0]) / heads);
        let mut arguments = self.inputs(node, &[]);
        arguments.extend(arguments![word(rows), word(heads), word(dim), epsilon, scale]);
        by_head((Variant::new("l2_norm", &[]), "l2_norm"), rows * heads, arguments)
    }

    pub(super) fn gated_norm(&self, weight: WeightId, (heads, epsilon): (usize, f32), node: &Node) -> Call {
        let made = node.outputs[0];
        let (rows, dim) = (self.rows_of(made), self.width(made) / heads);
        let mut arguments = self.inputs(node, &[self.weight(weight)]);
        arguments.extend(arguments![word(rows), word(heads), word(dim), epsilon]);
        let variant = Variant::new("gated_norm", &[("Y", self.format(made).name())]);
        by_head((variant, "gated_norm"), rows * heads, arguments)
    }

    pub(super) fn decay_gate(&self, decay: WeightId, bias: WeightId, node: &Node) -> Call {
        let made = node.outputs[0];
        let heads = self.width(made);
        let count = self.rows_of(made) * heads;
        let mut arguments = self.inputs(node, &[self.weight(decay), self.weight(bias)]);
        arguments.extend(arguments![count as u64, word(heads)]);
        strided((Variant::new("decay_gate", &[]), "decay_gate"), count, arguments)
    }

    pub(super) fn causal_conv(&self, weight: WeightId, state: StateId, node: &Node) -> Call {
        let units = (self.units)(state);
        let conv = units.layout.conv;
        let [runs, row_sequence, row_unit] = self.lists.units();
        let mut arguments = self.inputs(node, &[self.weight(weight), units.windows]);
        arguments.extend(arguments![runs, row_sequence, row_unit, units.unit_elements]);
        arguments.extend(arguments![word(self.rows), word(conv.channels), word(conv.kernel)]);
        let need = (Variant::new("causal_conv", &[]), "causal_conv");
        let grid = [word(self.rows), word(conv.channels.div_ceil(CHANNELS)), 1];
        Call { need, grid, block: word(CHANNELS), shared_bytes: 0, arguments }
    }

    pub(super) fn gated_delta_rule(&self, rule: &DeltaRule, node: &Node) -> Result<Call, DeviceError> {
        let units = (self.units)(rule.state);
        let sizes = units.layout.state;
        let part = sizes.key_dim.div_ceil(COLUMN_THREADS).next_power_of_two();
        if part > PART_MAX {
            let most = PART_MAX * COLUMN_THREADS;
            let reason = format!("its keys have {} elements, the kernel takes {most}", sizes.key_dim);
            return Err(unsupported(node.op.name(), self.reason(&reason)));
        }
        let [runs, _, row_unit] = self.lists.units();
        let is_grouped = u32::from(rule.head_map == HeadMap::Grouped);
        let mut arguments = self.inputs(node, &[units.matrices, runs, row_unit]);
        arguments.extend(arguments![units.unit_elements, word(rule.key_heads), word(sizes.value_heads)]);
        arguments.extend(arguments![word(sizes.key_dim), word(sizes.value_dim), is_grouped]);
        let need = (delta_rule(part), "gated_delta_rule");
        let blocks = sizes.value_heads * sizes.value_dim.div_ceil(COLUMNS);
        let grid = [word(self.lists.sequences()), word(blocks), 1];
        Ok(Call { need, grid, block: word(COLUMNS * COLUMN_THREADS), shared_bytes: 0, arguments })
    }
}
