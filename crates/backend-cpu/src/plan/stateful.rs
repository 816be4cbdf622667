//! The nodes that read or write what sequences keep between steps.

use super::run::Run;
use crate::kernels::attention::{Context, attention, seen};
use crate::kernels::causal_conv::{Window, causal_conv};
use crate::kernels::gated_delta_rule::{self, gated_delta_rule};
use crate::kernels::write_kv::write_kv;
use crate::state::{Draft, DraftInputs};
use crate::weights::Weight;
use gannet_ops::{
    Attention, Batch, DeltaRule, DeviceError, Node, RecurrentUse, RecurrentWrite, SequenceRows, StateId,
};
use std::ops::Range;

impl Run<'_, '_> {
    pub(super) fn write_kv(&mut self, state: StateId, node: &Node) -> Result<(), DeviceError> {
        let group = self.state.pools.group(state);
        for sequence in &self.groups[group] {
            self.state.pools.check(group, sequence, sequence.first_index..sequence.end())?;
        }
        self.check_open(state)?;
        let (layout, pages, open) = self.state.pools.layer_mut(state, &self.groups);
        let rows = [node.inputs[0], node.inputs[1]].map(|id| self.values.numbers(id));
        write_kv(self.crew.isa, layout, rows, pages, open);
        Ok(())
    }

    /// Checks that each sequence lists open pages for its rows, where the layer has any.
    fn check_open(&self, state: StateId) -> Result<(), DeviceError> {
        let Some(open) = self.state.pools.open_group(state) else { return Ok(()) };
        self.groups[open].iter().try_for_each(|sequence| {
            self.state.pools.check(open, sequence, sequence.first_index..sequence.end())
        })
    }

    pub(super) fn attention(&mut self, op: &Attention, node: &Node) -> Result<(), DeviceError> {
        let group = self.state.pools.group(op.state);
        let is_unwritten = node.inputs.len() == 3;
        for sequence in &self.groups[group] {
            // The first row sees the oldest keys, and the last one the newest.
            let first = seen(op.mask, sequence.first_index, sequence.end()).start;
            let end = if is_unwritten { sequence.first_index } else { sequence.end() };
            self.state.pools.check(group, sequence, first.min(end)..end)?;
        }
        self.check_open(op.state)?;
        let mut out = self.values.take(node.outputs[0], self.batch.rows.len())?;
        let width = self.values.of(node.outputs[0]).width;
        let numbers = |place: usize| self.values.numbers(node.inputs[place]);
        let sinks = op.sinks.map(|id| match &*self.weights[id.0 as usize] {
            Weight::Vector(sinks) => &sinks[..],
            Weight::Matrix(_) => unreachable!("the plan checked each weight against its role"),
        });
        let context = Context {
            pages: self.state.pools.layer(op.state),
            sequences: &self.groups[group],
            blocks: &self.row_blocks,
            unwritten: is_unwritten.then(|| [numbers(1), numbers(2)]),
            open: self.state.pools.open_layer(op.state, &self.groups),
            written: (node.inputs.len() == 2).then(|| numbers(1)),
            sinks,
        };
        let rows = &mut out.as_mut_slice()[..self.batch.rows.len() * width];
        attention(self.crew, op, numbers(0), &context, rows);
        self.values.put(node.outputs[0], out);
        Ok(())
    }

    pub(super) fn causal_conv(
        &mut self,
        weight: &[f32],
        state: StateId,
        node: &Node,
    ) -> Result<(), DeviceError> {
        let (batch, entry) = (self.batch, state.0 as usize);
        let channels = self.state.slots(entry).layout().conv.channels;
        for part in &batch.sequences {
            self.state.slots(entry).window(recurrent(part).read)?;
        }
        let mut out = self.values.take(node.outputs[0], batch.rows.len())?;
        let x = self.values.numbers(node.inputs[0]);
        let (slots, sequence_of) = (self.state.slots(entry), &self.sequence_of);
        let window_of = |row: usize| {
            let part = &batch.sequences[sequence_of[row] as usize];
            let before = slots.window(recurrent(part).read).expect("each sequence's bank was looked up");
            Window { rows: part.rows.start as usize..part.rows.end as usize, before }
        };
        causal_conv(self.crew, x, weight, channels, &window_of, &mut out.as_mut_slice()[..x.len()]);
        for (sequence, part) in batch.sequences.iter().enumerate() {
            let rows = &x[part.rows.start as usize * channels..part.rows.end as usize * channels];
            let RecurrentUse { read, write } = recurrent(part);
            match write {
                RecurrentWrite::Bank(write) => {
                    self.state.slots_mut(entry).write_window(read, write, rows)?;
                }
                RecurrentWrite::Candidates(write) => {
                    let inputs = [self.state.slots(entry).window(read)?, rows].concat();
                    let inputs = DraftInputs::Window(inputs);
                    self.kept.drafts.push(Draft { entry, sequence, read, write, inputs });
                }
            }
        }
        self.values.put(node.outputs[0], out);
        Ok(())
    }

    pub(super) fn gated_delta_rule(&mut self, rule: &DeltaRule, node: &Node) -> Result<(), DeviceError> {
        let (batch, entry) = (self.batch, rule.state.0 as usize);
        let mut out = self.values.take(node.outputs[0], batch.rows.len())?;
        let [q, k, v, g, b] = [0, 1, 2, 3, 4].map(|place| self.values.numbers(node.inputs[place]));
        let inputs = gated_delta_rule::Inputs { q, k, v, g, b };
        let elements = inputs.v.len();
        for (sequence, part) in batch.sequences.iter().enumerate() {
            let RecurrentUse { read, write } = recurrent(part);
            let slots = self.state.slots_mut(entry);
            let sizes = slots.layout().state;
            let (start, state) = match write {
                RecurrentWrite::Bank(write) => slots.matrices(read, write)?,
                RecurrentWrite::Candidates(_) => slots.draft_matrices(read)?,
            };
            let rows = part.rows.start as usize..part.rows.end as usize;
            let out = &mut out.as_mut_slice()[..elements];
            gated_delta_rule(self.crew, (rule, sizes), inputs, rows.clone(), start, state, out);
            if let RecurrentWrite::Candidates(write) = write {
                let inputs = draft_inputs(rule, &inputs, rows, batch);
                self.kept.drafts.push(Draft { entry, sequence, read, write, inputs });
            }
        }
        self.values.put(node.outputs[0], out);
        Ok(())
    }
}

fn recurrent(part: &SequenceRows) -> RecurrentUse {
    part.recurrent.expect("the batch was checked against the layout")
}

/// Copies of the inputs of some rows.
fn draft_inputs(
    rule: &DeltaRule,
    inputs: &gated_delta_rule::Inputs<'_>,
    rows: Range<usize>,
    batch: &Batch,
) -> DraftInputs {
    let of = |x: &[f32]| {
        let width = x.len() / batch.rows.len();
        x[rows.start * width..rows.end * width].to_vec()
    };
    let [k, v, g, b] = [inputs.k, inputs.v, inputs.g, inputs.b].map(of);
    DraftInputs::Delta { rule: rule.clone(), k, v, g, b }
}
