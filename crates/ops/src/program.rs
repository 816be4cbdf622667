//! A forward pass as data: values, weights, state and a straight line of nodes.
//!
//! Row counts are symbolic, because one program serves every batch; widths are numbers.

use crate::{Op, StateLayout, WeightUse};
use std::sync::Arc;

/// An entry of the vocabulary.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TokenId(pub u32);

/// A value of a program: its place in [`Program::values`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ValueId(pub u32);

/// A weight of a program: its place in [`Program::weights`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct WeightId(pub u32);

/// A layer's state: its place in [`StateLayout::entries`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StateId(pub u32);

/// A page group: its place in [`StateLayout::groups`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GroupId(pub u32);

/// A page of one group's pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PageId(pub u32);

/// A place for one sequence's sampling history.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SamplerSlot(pub u32);

/// A copy of one sequence's recurrent state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SnapshotId(pub u32);

/// A value that a step keeps for later steps, numbered within one program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CaptureId(pub u32);

/// One submitted step; numbers ascend over all plans of one backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StepId(pub u64);

/// How many rows a value has, as a function of the batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Rows {
    /// The rows of the batch, one a token.
    Tokens,
    /// The rows whose result is asked for.
    Outputs,
    /// The sequences of the batch.
    Sequences,
    /// `k` rows a token, one an expert that the token is routed to; a token's rows are neighbours.
    Routed(u32),
    /// The rows of the captured value that is handed in.
    Handed,
}

/// What a value's elements are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Element {
    /// Single precision numbers; a backend may keep them in another format that it names.
    F32,
    /// Token ids, expert ids or counts.
    Id,
}

/// The type of a value: `[rows, width]` elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Value {
    /// The symbolic row count.
    pub rows: Rows,
    /// Elements of a row.
    pub width: usize,
    /// What the elements are.
    pub element: Element,
}

/// A named input of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum InputKind {
    /// `[Tokens, 1]` ids: the batch's tokens. Rows that carry an embedding have no id; only `embed` reads those.
    Ids,
    /// `[Tokens, width]`: the rows that [`crate::TokenSource::Embedding`] names.
    Embeddings,
    /// `[Handed, width]`: entry `n` of [`crate::Batch::handed`].
    Handed(u32),
}

/// A named output of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OutputKind {
    /// `[Outputs, vocabulary]` scores before sampling.
    Logits,
    /// `[Outputs, hidden]` the hidden state after the final norm.
    Hidden,
    /// `[Sequences, hidden]` one vector a sequence.
    Pooled,
    /// `[Outputs, 1]` sampled ids.
    Tokens,
    /// `[Sequences, 1]` rows of the sequence that stand: those that are no drafts and each confirmed draft.
    Accepted,
}

/// One operation with the values that it reads and makes.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// What is done.
    pub op: Op,
    /// Values read, in the order that the op documents.
    pub inputs: Vec<ValueId>,
    /// Values made, each by exactly one node.
    pub outputs: Vec<ValueId>,
}

impl Node {
    /// The nodes that a fused op replaces, in order; otherwise itself alone.
    pub fn parts(&self) -> &[Node] {
        if let Op::Fused { body, .. } = &self.op { body } else { std::slice::from_ref(self) }
    }
}

/// A straight-line program over one batch.
///
/// Built by [`crate::ProgramBuilder`] and checked by [`crate::verify`].
#[derive(Clone, Debug, PartialEq)]
pub struct Program {
    /// What the program is for: `target`, `observe`, `draft`.
    pub name: String,
    /// The types of all values.
    pub values: Vec<Value>,
    /// The weights that it reads.
    pub weights: Vec<WeightUse>,
    /// The state of all programs that run over the same sequences.
    pub state: Arc<StateLayout>,
    /// Values that exist before the first node.
    pub inputs: Vec<(InputKind, ValueId)>,
    /// The operations, in order.
    pub nodes: Vec<Node>,
    /// Values that the step returns.
    pub outputs: Vec<(OutputKind, ValueId)>,
    /// The program can't be split into chunks nor resumed (bidirectional attention).
    pub whole_prompt_only: bool,
}

impl Program {
    /// The type of a value.
    pub fn value(&self, id: ValueId) -> Value {
        self.values[id.0 as usize]
    }

    /// A weight that the program reads.
    pub fn weight(&self, id: WeightId) -> &WeightUse {
        &self.weights[id.0 as usize]
    }

    /// The value that the step returns as `kind`, where it does.
    pub fn output(&self, kind: OutputKind) -> Option<ValueId> {
        self.outputs.iter().find(|(k, _)| *k == kind).map(|(_, value)| *value)
    }

    /// The value that is handed in as `kind`, where there is one.
    pub fn input(&self, kind: InputKind) -> Option<ValueId> {
        self.inputs.iter().find(|(k, _)| *k == kind).map(|(_, value)| *value)
    }

    /// Where sampling starts: nodes before it run in `submit`, the others in `sample`.
    pub fn sampling_start(&self) -> usize {
        let samples = |node: &Node| matches!(node.op, Op::Sample | Op::Accept);
        self.nodes.iter().position(samples).unwrap_or(self.nodes.len())
    }
}
