//! The launches of projections to queries, keys and values: one product over the stacked matrices, then one kernel that norms,
//! rotates and writes what it made.

use super::attention::is_tiled;
use super::launches::{Call, Frame, arguments, word};
use crate::driver::{Address, Argument};
use crate::error::unsupported;
use crate::jit::write_pages;
use crate::number::Number;
use crate::state::{LayerPages, page_formats};
use gannet_ops::{DeviceError, Node, Program, QueryKeyValue, StateEntry, StateId};

/// Elements of a head that the kernel keeps, at most.
const HEAD_DIM_MAX: usize = 256;
/// Heads of a block.
const HEADS_OF_BLOCK: usize = 8;
const THREADS: u32 = 256;

/// Heads of a layer whose queries, keys and values all have as many elements a head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct HeadSizes {
    heads: usize,
    kv_heads: usize,
    dim: usize,
}

impl HeadSizes {
    /// For the widths of queries, keys and values; `None` where the kernel can't take them.
    pub(super) fn of(program: &Program, state: StateId, [query, key, value]: [usize; 3]) -> Option<Self> {
        let StateEntry::Paged(layout) = &program.state.entries[state.0 as usize] else { return None };
        page_formats(layout).ok()?;
        let (dim, kv_heads) = (layout.key_dim, layout.kv_heads);
        let is_square = layout.value_dim == dim && dim <= HEAD_DIM_MAX && query.is_multiple_of(dim);
        (is_square && key == kv_heads * dim && value == key).then_some(Self {
            heads: query / dim,
            kv_heads,
            dim,
        })
    }

    /// Whether norms and rotations are over these heads.
    pub(super) fn are_those_of(&self, program: &Program, found: &QueryKeyValue<'_>) -> bool {
        let norms = found.norms.iter().flat_map(|(norms, _)| norms);
        let mut norms = norms.map(|norm| program.weight(*norm).shape[0]);
        let mut ropes = found.ropes.iter().flatten();
        norms.all(|width| width == self.dim) && ropes.all(|rope| rope.head_dim == self.dim)
    }

    /// Columns of the stacked product.
    fn columns(&self) -> usize {
        (self.heads + 2 * self.kv_heads) * self.dim
    }
}

impl Frame<'_> {
    pub(super) fn query_key_value(&self, body: &[Node], node: &Node) -> Result<Vec<Call>, DeviceError> {
        let found = QueryKeyValue::of(body)
            .ok_or_else(|| unsupported(node.op.name(), self.reason("its body is not that of its kind")))?;
        let widths = found.linears.map(|linear| self.program.weight(linear.weight).shape[0]);
        let sizes = HeadSizes::of(self.program, found.state, widths).expect("the plan took the node as one");
        let mut calls = self.product(node, self.stacked, Number::F32);
        calls.push(self.finish(&found, sizes, node)?);
        calls.extend(self.quantise_keys(&(self.pages)(found.state))?);
        Ok(calls)
    }

    fn finish(&self, found: &QueryKeyValue<'_>, sizes: HeadSizes, node: &Node) -> Result<Call, DeviceError> {
        let pages = (self.pages)(found.state);
        let LayerPages { layout, address, page_bytes, value_offset, .. } = pages;
        let weights = found.norms.map(|(norms, _)| norms.map(|norm| self.weight(norm)));
        let [query_norm, key_norm] = weights.unwrap_or([Address::NONE; 2]);
        let table = found.ropes.map(|[query, _]| &query.table);
        let [frequencies, axes] = table.map_or([Address::NONE; 2], |table| self.ropes.of(table));
        let mut arguments = arguments![
            (self.values)(node.outputs[0]),
            node.outputs.get(1).map_or(Address::NONE, |keys| (self.values)(*keys)),
            address,
            self.stacked,
            query_norm,
            key_norm,
            self.lists.positions(),
            frequencies,
            axes,
        ];
        arguments.extend(self.lists.tables(layout.group.0 as usize).map(Argument::from));
        arguments.extend(arguments![
            word(sizes.heads),
            word(sizes.kv_heads),
            word(sizes.dim),
            word(table.map_or(0, |table| table.inverse_frequencies.len())),
            table.map_or(1.0, |table| table.attention_scale),
            found.norms.map_or(0.0, |(_, epsilon)| epsilon),
            page_bytes,
            value_offset,
        ]);
        arguments.extend(self.open_arguments(&pages));
        let need =
            (write_pages("finish_qkv", page_formats(layout)?, is_tiled(self.device, layout)), "finish_qkv");
        let blocks = (sizes.columns() / sizes.dim).div_ceil(HEADS_OF_BLOCK);
        let grid = [word(blocks), word(self.rows), 1];
        Ok(Call { need, grid, block: THREADS, shared_bytes: 0, arguments })
    }
}

/// Columns of the widest stacked product of a program.
pub(super) fn stacked_columns(program: &Program) -> usize {
    let columns = |node: &Node| {
        let gannet_ops::Op::Fused { body, .. } = &node.op else { return 0 };
        let Some(found) = QueryKeyValue::of(body) else { return 0 };
        found.linears.iter().map(|linear| program.weight(linear.weight).shape[0]).sum()
    };
    program.nodes.iter().map(columns).max().unwrap_or(0)
}
