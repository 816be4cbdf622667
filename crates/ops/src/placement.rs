//! Where a program's values lie: a few buffers, each used by one value after another.
//!
//! A value lives from the node that makes it to the last that reads it; what the step returns, or sampling
//! reads, lives to its end. A buffer is free for the next value after that, the smallest that fits first.

use crate::{BatchLimits, Element, Node, Program, Rows, Value, ValueId};

/// The buffer of each value, and what each buffer has room for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Placement {
    /// `None` for what lies elsewhere.
    pub buffer_of: Vec<Option<usize>>,
    /// Bytes for the largest batch.
    pub bytes: Vec<usize>,
}

impl Placement {
    /// Places the values of a program; `row_bytes` says what a row of each takes, and `None` for those that lie
    /// elsewhere.
    pub fn new(
        program: &Program,
        limits: &BatchLimits,
        row_bytes: &dyn Fn(ValueId) -> Option<usize>,
    ) -> Self {
        let mut plan = Self { buffer_of: vec![None; program.values.len()], bytes: Vec::new() };
        let mut free = Vec::new();
        let needed = |id: ValueId| {
            let rows = rows_at_most(program.value(id).rows, limits);
            row_bytes(id).map(|bytes| rows.saturating_mul(bytes))
        };
        let last_reader = last_readers(program);
        for (_, input) in &program.inputs {
            plan.place(*input, needed(*input), &mut free);
        }
        for (place, node) in program.nodes[..program.sampling_start()].iter().enumerate() {
            for output in &node.outputs {
                plan.place(*output, needed(*output), &mut free);
            }
            let read: Vec<usize> =
                dead_after(node, place, &last_reader).filter_map(|id| plan.buffer_of[id]).collect();
            free.extend(read);
        }
        plan
    }

    /// Places all values that are numbers, in single precision.
    pub fn of_floats(program: &Program, limits: &BatchLimits) -> Self {
        Self::new(program, limits, &|id| {
            let Value { element, width, .. } = program.value(id);
            (element == Element::F32).then_some(width.saturating_mul(size_of::<f32>()))
        })
    }

    fn place(&mut self, id: ValueId, needed: Option<usize>, free: &mut Vec<usize>) {
        let Some(needed) = needed else { return };
        let fits = |buffer: &usize| self.bytes[*buffer] >= needed;
        let smallest = free.iter().copied().filter(fits).min_by_key(|buffer| self.bytes[*buffer]);
        let largest = || free.iter().copied().max_by_key(|buffer| self.bytes[*buffer]);
        let buffer = smallest.or_else(largest).unwrap_or_else(|| {
            self.bytes.push(0);
            self.bytes.len() - 1
        });
        free.retain(|other| *other != buffer);
        self.bytes[buffer] = self.bytes[buffer].max(needed);
        self.buffer_of[id.0 as usize] = Some(buffer);
    }
}

/// The values that nobody reads after a node: inputs that it reads last, and outputs that nobody reads at
/// all.
fn dead_after<'a>(
    node: &'a Node,
    place: usize,
    last_reader: &'a [LastReader],
) -> impl Iterator<Item = usize> + use<'a> {
    let mut inputs: Vec<usize> = node.inputs.iter().map(|id| id.0 as usize).collect();
    inputs.sort_unstable();
    inputs.dedup();
    let read_last = inputs.into_iter().filter(move |id| last_reader[*id] == LastReader::Node(place));
    let outputs = node.outputs.iter().map(|id| id.0 as usize);
    read_last.chain(outputs.filter(|id| last_reader[*id] == LastReader::Nobody))
}

/// Who reads a value last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LastReader {
    /// It is made for nothing.
    Nobody,
    /// This node before sampling.
    Node(usize),
    /// The step's end.
    Step,
}

/// Who reads each value of a program last.
pub fn last_readers(program: &Program) -> Vec<LastReader> {
    let mut last = vec![LastReader::Nobody; program.values.len()];
    for (place, node) in program.nodes.iter().enumerate() {
        let reader =
            if place < program.sampling_start() { LastReader::Node(place) } else { LastReader::Step };
        for id in &node.inputs {
            last[id.0 as usize] = reader;
        }
    }
    for (_, id) in &program.outputs {
        last[id.0 as usize] = LastReader::Step;
    }
    last
}

/// Rows of the largest batch. A captured value may have more, for it is another plan's; its buffer then
/// grows.
pub fn rows_at_most(rows: Rows, limits: &BatchLimits) -> usize {
    match rows {
        Rows::Tokens | Rows::Handed => limits.rows,
        Rows::Outputs => limits.outputs,
        Rows::Sequences => limits.sequences,
        Rows::Routed(k) => limits.rows.saturating_mul(k as usize),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{OutputKind, ProgramBuilder, StateLayout};
    use std::sync::Arc;

    #[test]
    fn values_that_live_at_once_have_buffers_of_their_own() {
        let mut builder = ProgramBuilder::new("target", Arc::new(StateLayout::default()));
        let x = builder.embeddings(8);
        let mut values = vec![x];
        for _ in 0..6 {
            let last = *values.last().expect("there is one");
            values.push(builder.scale(last, 2.0));
        }
        let sum = builder.add(values[1], values[6]);
        let hidden = builder.select_outputs(sum);
        builder.output(OutputKind::Hidden, hidden);
        let program = builder.finish();
        let limits = BatchLimits { rows: 4, sequences: 1, outputs: 4, context: 64 };
        let row_bytes = |id: ValueId| Some(program.value(id).width * size_of::<f32>());
        let plan = Placement::new(&program, &limits, &row_bytes);
        let buffer = |value: ValueId| plan.buffer_of[value.0 as usize].expect("numbers have a buffer");
        for pair in values.windows(2) {
            assert_ne!(buffer(pair[0]), buffer(pair[1]), "a node doesn't write what it reads");
        }
        for value in &values[2..] {
            assert_ne!(buffer(*value), buffer(values[1]), "value 1 is read at the end");
        }
        assert_eq!(plan.bytes, vec![4 * 8 * 4; 3]);
    }
}
