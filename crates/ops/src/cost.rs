//! What each node of a program costs for a batch of a given shape: operations, bytes, and which of the two bounds it on
//! a given machine.
//!
//! Bytes are those that have to move at least once: each weight and each page that a step touches, each value
//! written once and read once. A backend may do worse, never better. Elementary functions count as one operation.

use crate::{
    Attention, ExpertLinear, KvFormat, Mask, Node, Op, Program, Rows, StateEntry, StateId, Value, ValueId,
    WeightId,
};
use gannet_tensor::Format;

/// A batch as far as cost goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchShape {
    /// Rows of the batch.
    pub tokens: u64,
    /// Rows whose result is asked for.
    pub outputs: u64,
    /// Sequences of the batch.
    pub sequences: u64,
    /// Keys that each sequence has, its rows in the batch included.
    pub context: u64,
}

/// What a machine can do at most.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Machine {
    /// Bytes a second from memory.
    pub bytes_per_second: f64,
    /// Floating point operations a second; a multiply-add is two.
    pub flops_per_second: f64,
    /// Operations a second on bf16 numbers; those of float32 where products of them go through it.
    pub bf16_per_second: f64,
    /// Operations a second on bytes.
    pub int8_per_second: f64,
}

/// What numbers a node's products are of, at best.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Arithmetic {
    /// Single precision.
    #[default]
    Float32,
    /// Half the bits, the exponents of single precision.
    Bf16,
    /// Bytes: codes of a quantised weight with codes of what it multiplies.
    Int8,
}

impl Machine {
    /// Operations a second.
    fn rate(&self, arithmetic: Arithmetic) -> f64 {
        match arithmetic {
            Arithmetic::Float32 => self.flops_per_second,
            Arithmetic::Bf16 => self.bf16_per_second,
            Arithmetic::Int8 => self.int8_per_second,
        }
    }
}

impl Arithmetic {
    /// The cheapest that loses nothing of a weight's format.
    fn of_weight(format: Format) -> Self {
        if format == Format::Bf16 {
            Arithmetic::Bf16
        } else if format.is_quantised() {
            Arithmetic::Int8
        } else {
            Arithmetic::Float32
        }
    }

    /// The cheapest that loses nothing of keys and values.
    fn of_kv(format: KvFormat) -> Self {
        match format {
            // Codes meet queries and weights in float32.
            KvFormat::F32 | KvFormat::F16 | KvFormat::Int8 => Arithmetic::Float32,
            KvFormat::Bf16 => Arithmetic::Bf16,
        }
    }
}

/// What bounds a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bound {
    /// Moving its bytes takes longer.
    Memory,
    /// Its arithmetic takes longer.
    Arithmetic,
}

/// What one node costs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// Operations; a multiply-add is two.
    pub flops: u64,
    /// What they are done in.
    pub arithmetic: Arithmetic,
    /// Bytes of weights read.
    pub weight_bytes: u64,
    /// Bytes of values read and written, in float32.
    pub value_bytes: u64,
    /// Bytes of pages and recurrent state read and written.
    pub state_bytes: u64,
}

impl Cost {
    /// All bytes that have to move.
    pub fn bytes(&self) -> u64 {
        self.weight_bytes + self.value_bytes + self.state_bytes
    }

    /// The least time that the machine needs, in seconds.
    pub fn seconds(&self, machine: &Machine) -> f64 {
        let moving = self.bytes() as f64 / machine.bytes_per_second;
        moving.max(self.flops as f64 / machine.rate(self.arithmetic))
    }

    /// What bounds it on the machine.
    pub fn bound(&self, machine: &Machine) -> Bound {
        let computing = self.flops as f64 / machine.rate(self.arithmetic);
        if computing > self.bytes() as f64 / machine.bytes_per_second {
            Bound::Arithmetic
        } else {
            Bound::Memory
        }
    }
}

/// The cost of each node of a verified program, in order.
pub fn costs(program: &Program, batch: BatchShape, format: &dyn Fn(WeightId) -> Format) -> Vec<Cost> {
    let counter = Counter { program, batch, format };
    program.nodes.iter().map(|node| counter.node(node)).collect()
}

/// The type of what a node makes, as programs are printed: `[tokens, 576]`; empty where it makes nothing.
pub fn shape(program: &Program, node: &Node) -> String {
    let types: Vec<String> =
        node.outputs.iter().map(|id| crate::print::type_text(program.value(*id))).collect();
    types.join(", ")
}

struct Counter<'a> {
    program: &'a Program,
    batch: BatchShape,
    format: &'a dyn Fn(WeightId) -> Format,
}

impl Counter<'_> {
    fn node(&self, node: &Node) -> Cost {
        let values = node.inputs.iter().chain(&node.outputs);
        let value_bytes = values.map(|id| 4 * self.elements(self.program.value(*id))).sum();
        // What passes between the parts of a fused op stays in registers, so only its own values count.
        let parts = node.parts();
        let mut cost = Cost { value_bytes, arithmetic: self.arithmetic(node), ..Cost::default() };
        for part in parts {
            cost.flops += self.flops(part);
            cost.weight_bytes += self.weight_bytes(part);
            cost.state_bytes += self.state_bytes(part);
        }
        cost
    }

    /// Products of weights and of keys are done in what their format allows, everything else in float32.
    fn arithmetic(&self, node: &Node) -> Arithmetic {
        if let Op::Linear { weight, .. } | Op::ExpertLinear(ExpertLinear { weight, .. }) = &node.op {
            Arithmetic::of_weight((self.format)(*weight))
        } else if let Op::Attention(op) = &node.op
            && let StateEntry::Paged(paged) = self.entry(op.state)
        {
            Arithmetic::of_kv(paged.key_format)
        } else {
            Arithmetic::Float32
        }
    }

    fn rows(&self, rows: Rows) -> u64 {
        match rows {
            Rows::Tokens | Rows::Handed => self.batch.tokens,
            Rows::Outputs => self.batch.outputs,
            Rows::Sequences => self.batch.sequences,
            Rows::Routed(k) => self.batch.tokens * u64::from(k),
        }
    }

    fn elements(&self, value: Value) -> u64 {
        self.rows(value.rows) * value.width as u64
    }

    fn flops(&self, node: &Node) -> u64 {
        let read = |input: usize| self.elements(self.program.value(node.inputs[input]));
        match &node.op {
            Op::Linear { .. } => 2 * read(0) * self.made(node).width as u64,
            Op::ExpertLinear(op) => {
                let made = self.made(node);
                2 * self.rows(made.rows) * made.width as u64 * self.program.weight(op.weight).shape[2] as u64
            }
            Op::Attention(op) => self.attention_flops(op),
            Op::CausalConv { weight, .. } => read(0) * (2 * self.program.weight(*weight).shape[1] as u64 + 4),
            Op::GatedDeltaRule(rule) => 7 * self.batch.tokens * self.recurrent_elements(rule.state).1,
            Op::RmsNorm { .. } | Op::HeadNorm { .. } | Op::L2Norm { .. } => 4 * read(0),
            Op::GatedNorm { .. } => 9 * read(0),
            Op::Rope(_) => 3 * read(0),
            Op::SiluGate | Op::SigmoidGate | Op::SoftCap { .. } => 4 * read(0),
            Op::GeluGate | Op::ClampedGate { .. } => 9 * read(0),
            Op::DecayGate { .. } | Op::RouteExperts(_) => 4 * read(0),
            Op::CombineExperts => 2 * read(0),
            Op::Add | Op::Scale { .. } | Op::PositionScale { .. } | Op::Pool { .. } | Op::Sample => read(0),
            Op::Fused { body, .. } => body.iter().map(|part| self.flops(part)).sum(),
            Op::Embed { .. }
            | Op::WriteKv { .. }
            | Op::SelectOutputs
            | Op::GatherRows { .. }
            | Op::MapIds { .. }
            | Op::Slice { .. }
            | Op::Concat
            | Op::Capture { .. }
            | Op::Accept => 0,
        }
    }

    fn made(&self, node: &Node) -> Value {
        let none = Value { rows: Rows::Tokens, width: 0, element: crate::Element::F32 };
        node.outputs.first().map_or(none, |id: &ValueId| self.program.value(*id))
    }

    /// Scores and weighted values of each row over the keys that it sees, a causal triangle counted in full
    /// squares less their half.
    fn attention_flops(&self, op: &Attention) -> u64 {
        let StateEntry::Paged(paged) = self.entry(op.state) else { return 0 };
        let own = self.batch.tokens / self.batch.sequences.max(1);
        let seen = match op.mask {
            Mask::Causal | Mask::Window(_) => self.batch.context.saturating_sub(own / 2),
            Mask::Block | Mask::BlockWindow(_) => self.batch.context,
        };
        let keys = seen.min(window(op.mask));
        2 * self.batch.tokens * op.heads as u64 * keys * (paged.key_dim + paged.value_dim) as u64
    }

    fn weight_bytes(&self, node: &Node) -> u64 {
        if let Op::Embed { weight } = &node.op {
            return self.bytes_of(*weight, self.batch.tokens);
        }
        if let Op::ExpertLinear(ExpertLinear { weight, bias, top_k }) = &node.op {
            let shape = &self.program.weight(*weight).shape;
            let touched = (self.batch.tokens * u64::from(*top_k)).min(shape[0] as u64);
            let biases = bias.map_or(0, |bias| self.bytes_of(bias, touched));
            return self.bytes_of(*weight, touched * shape[1] as u64) + biases;
        }
        node.op.weights().iter().map(|weight| self.bytes_of(*weight, u64::MAX)).sum()
    }

    /// Bytes of at most so many rows of a weight.
    fn bytes_of(&self, weight: WeightId, rows: u64) -> u64 {
        let shape = &self.program.weight(weight).shape;
        let (columns, outer) = shape.split_last().map_or((1, &[][..]), |(last, outer)| (*last, outer));
        let all: u64 = outer.iter().map(|n| *n as u64).product();
        let row_bytes = (self.format)(weight).row_bytes(columns).unwrap_or(4 * columns);
        rows.min(all) * row_bytes as u64
    }

    fn state_bytes(&self, node: &Node) -> u64 {
        let sequences = self.batch.sequences;
        if let Op::WriteKv { state } = &node.op {
            self.batch.tokens * self.kv_bytes(*state)
        } else if let Op::Attention(op) = &node.op {
            let own = self.batch.tokens / sequences.max(1);
            let keys = self.batch.context.min(window(op.mask).saturating_add(own));
            sequences * keys * self.kv_bytes(op.state)
        } else if let Op::CausalConv { state, .. } = &node.op {
            // Read before the rows and written after them.
            2 * 4 * sequences * self.recurrent_elements(*state).0
        } else if let Op::GatedDeltaRule(rule) = &node.op {
            2 * 4 * sequences * self.recurrent_elements(rule.state).1
        } else {
            0
        }
    }

    fn entry(&self, state: StateId) -> &StateEntry {
        &self.program.state.entries[state.0 as usize]
    }

    /// Bytes that one token has in the pages of a layer.
    fn kv_bytes(&self, state: StateId) -> u64 {
        match self.entry(state) {
            StateEntry::Paged(paged) => (paged.page_bytes() / crate::PAGE_TOKENS) as u64,
            StateEntry::Recurrent(_) => 0,
        }
    }

    /// Elements of a layer's window and of its matrices.
    fn recurrent_elements(&self, state: StateId) -> (u64, u64) {
        match self.entry(state) {
            StateEntry::Recurrent(recurrent) => {
                let (window, matrices) = recurrent.elements();
                (window as u64, matrices as u64)
            }
            StateEntry::Paged(_) => (0, 0),
        }
    }
}

/// The most keys that a row sees.
fn window(mask: Mask) -> u64 {
    match mask {
        Mask::Causal | Mask::Block => u64::MAX,
        Mask::Window(window) => u64::from(window),
        Mask::BlockWindow(window) => 2 * u64::from(window) - 1,
    }
}
