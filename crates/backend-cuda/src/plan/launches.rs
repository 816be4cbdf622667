//! What each node launches: kernels, blocks and arguments, in the order of `kernels/README.md`.
//!
//! The same function says, when a plan is made, which kernels a node needs, over places that are none, and, in a step,
//! what to launch over the places of the step's values; so what is launched was loaded.

use super::experts::Groups;
use super::folds::{Fold, Folds};
use super::maps::TensorMaps;
use super::matrices::Matrices;
use super::metadata::Lists;
use super::ropes::Ropes;
use super::work::Shape;
use crate::backend::Need;
use crate::driver::{Address, Argument, Properties};
use crate::error::unsupported;
use crate::jit::{Variant, embed, embed_codes};
use crate::number::Number;
use crate::state::LayerPages;
use crate::units::LayerUnits;
use crate::weights::Stored;
use gannet_ops::numerics::VOCABULARY_PARTITION;
use gannet_ops::{
    BatchLimits, DeviceError, FusedKind, Node, Op, Program, Rope, Rows, StateId, Value, ValueId, WeightId,
};

/// Threads of a block, but for the kernels that say otherwise.
const THREADS: u32 = 256;
/// Heads of a block of the norms over heads.
const NORMED_HEADS: usize = 8;
/// Blocks of what strides over its elements, at most.
const STRIDED_BLOCKS: usize = 1 << 16;

/// A launch to be made.
pub(super) struct Call {
    pub(super) need: Need,
    pub(super) grid: [u32; 3],
    pub(super) block: u32,
    pub(super) shared_bytes: u32,
    pub(super) arguments: Vec<Argument>,
}

impl Call {
    /// A block for each row.
    pub(super) fn by_row(need: Need, rows: usize, arguments: Vec<Argument>) -> Self {
        Self { need, grid: [word(rows), 1, 1], block: THREADS, shared_bytes: 0, arguments }
    }
}

/// Where everything is that a node reads and writes.
pub(super) struct Frame<'a> {
    pub(super) program: &'a Program,
    pub(super) weights: &'a Matrices,
    pub(super) formats: &'a [Number],
    /// What products of one row make for themselves; `None` where every value is looked at.
    pub(super) folds: Option<&'a Folds>,
    /// Rows of the batch, and those whose result is asked for.
    pub(super) rows: usize,
    pub(super) outputs: usize,
    pub(super) values: &'a dyn Fn(ValueId) -> Address,
    pub(super) pages: &'a dyn Fn(StateId) -> LayerPages<'a>,
    pub(super) units: &'a dyn Fn(StateId) -> LayerUnits<'a>,
    pub(super) lists: Lists<'a>,
    pub(super) ropes: &'a Ropes,
    pub(super) device: &'a Properties,
    pub(super) limits: &'a BatchLimits,
    /// The ways in which layers attend, in the order of their work in the lists.
    pub(super) ways: &'a [Shape],
    pub(super) maps: &'a TensorMaps,
    /// For the partial sums of split rows.
    pub(super) partials: Address,
    /// For a value in the format of a product that reads it.
    pub(super) rounded: Address,
    /// For the product of stacked queries, keys and values.
    pub(super) stacked: Address,
    /// For weights that products of many rows unpack.
    pub(super) unpacked: Address,
    /// For the rows of products by experts, in the order of these.
    pub(super) gathered: Address,
    /// The lists of the rows of experts.
    pub(super) groups: Groups,
    /// For keys in half precision of pages that the step both begins and fills.
    pub(super) open_scratch: Address,
}

/// A list of arguments from addresses and numbers.
macro_rules! arguments {
    ($($argument:expr),* $(,)?) => { vec![$(Argument::from($argument)),*] };
}
pub(super) use arguments;

pub(super) fn word(size: usize) -> u32 {
    u32::try_from(size).expect("the plan saw that sizes fit 32 bits")
}

impl Frame<'_> {
    /// The launches of a node, in order; none where its values have no rows.
    ///
    /// # Errors
    /// An operation, or a kind of one, that has no kernel.
    pub(super) fn calls(&self, node: &Node) -> Result<Vec<Call>, DeviceError> {
        if node.outputs.iter().any(|id| self.rows_of(*id) == 0) {
            return Ok(Vec::new());
        }
        match &node.op {
            Op::Embed { weight } => Ok(vec![self.embed(*weight, node)]),
            Op::RmsNorm { weight, epsilon } => Ok(vec![self.rms_norm(*weight, *epsilon, node)]),
            Op::HeadNorm { weight, heads, epsilon } => {
                Ok(vec![self.head_norm(*weight, (*heads, *epsilon), node)])
            }
            Op::Linear { .. } if self.router_of(node.outputs[0]).is_some() => Ok(Vec::new()),
            Op::Linear { .. } => Ok(self.product(node, (self.values)(node.outputs[0]), Number::F32)),
            Op::Rope(rope) => Ok(vec![self.rope(rope, node)]),
            Op::PositionScale { slope, period } => {
                let mut call =
                    self.by_row("position_scale", node, self.inputs(node, &[self.lists.positions()]));
                call.arguments.extend(arguments![*period, *slope]);
                Ok(vec![call])
            }
            Op::WriteKv { state } => self.write_kv(*state, node),
            Op::Attention(op) => self.attention(op, node),
            Op::SiluGate => Ok(vec![self.strided("silu_gate", node, &[])]),
            Op::GeluGate => Ok(vec![self.strided("gelu_gate", node, &[])]),
            Op::ClampedGate { alpha, limit } => {
                Ok(vec![self.strided("clamped_gate", node, &[(*alpha).into(), (*limit).into()])])
            }
            Op::SigmoidGate => {
                let mut call = self.by_row("sigmoid_gate", node, self.inputs(node, &[]));
                call.arguments.extend(arguments![word(self.width(node.inputs[1]))]);
                Ok(vec![call])
            }
            Op::SoftCap { cap } => Ok(vec![self.strided("soft_cap", node, &[(*cap).into()])]),
            Op::Scale { factor } => Ok(vec![self.strided("scale", node, &[(*factor).into()])]),
            Op::Add => Ok(vec![self.strided("add", node, &[])]),
            Op::SelectOutputs => Ok(vec![self.select_outputs(node)]),
            Op::Slice { groups, start, width } => Ok(vec![self.slice((*groups, *start, *width), node)]),
            Op::Concat => Ok(self.concat(node)),
            Op::Fused { kind: FusedKind::AddRmsNorm, body } => self.add_rms_norm(body, node),
            Op::Fused { kind: FusedKind::QueryKeyValue, body } => self.query_key_value(body, node),
            Op::Fused { kind: FusedKind::GatedLinear, .. } => {
                let made = node.outputs[0];
                Ok(self.product(node, (self.values)(made), self.format(made)))
            }
            Op::GatedNorm { weight, heads, epsilon } => {
                Ok(vec![self.gated_norm(*weight, (*heads, *epsilon), node)])
            }
            Op::L2Norm { heads, epsilon, scale } => Ok(vec![self.l2_norm(*heads, (*epsilon, *scale), node)]),
            Op::CausalConv { weight, state } => Ok(vec![self.causal_conv(*weight, *state, node)]),
            Op::DecayGate { decay, bias } => Ok(vec![self.decay_gate(*decay, *bias, node)]),
            Op::GatedDeltaRule(rule) => Ok(vec![self.gated_delta_rule(rule, node)?]),
            Op::RouteExperts(router) => Ok(match self.router_of(node.inputs[0]) {
                Some(fold) => self.route_normed(fold, router, node),
                None => self.route_experts(router, node),
            }),
            Op::ExpertLinear(_) | Op::Fused { kind: FusedKind::GatedExperts, .. } => {
                Ok(self.expert_product(node))
            }
            Op::CombineExperts => Ok(vec![self.combine_experts(node)]),
            Op::Pool { .. } | Op::GatherRows { .. } | Op::MapIds { .. } | Op::Capture { .. } => {
                Err(unsupported(node.op.name(), self.reason("it has no kernel yet")))
            }
            Op::Sample | Op::Accept => unreachable!("these run after the forward pass"),
        }
    }

    /// The likeliest token of each row of scores, into a list of ids; `parts` has room for a key of each partition.
    pub(super) fn argmax(&self, logits: ValueId, [tokens, parts]: [Address; 2]) -> [Call; 2] {
        let (rows, width) = (word(self.outputs), self.width(logits));
        let partitions = word(width.div_ceil(VOCABULARY_PARTITION));
        let call = |entry: &'static str, grid: [u32; 3], arguments: Vec<Argument>| {
            let need = (Variant::new("sample", &[]), entry);
            Call { need, grid, block: THREADS, shared_bytes: 0, arguments }
        };
        let scores = (self.values)(logits);
        [
            call("argmax_parts", [partitions, rows, 1], arguments![parts, scores, rows, word(width)]),
            call("argmax", [rows, 1, 1], arguments![tokens, parts, rows, partitions]),
        ]
    }

    pub(super) fn reason(&self, why: &str) -> String {
        format!("{why}, and program `{}` has it; this model runs with `--backend cpu`", self.program.name)
    }

    pub(super) fn of(&self, id: ValueId) -> Value {
        self.program.value(id)
    }

    pub(super) fn width(&self, id: ValueId) -> usize {
        self.of(id).width
    }

    pub(super) fn rows_of(&self, id: ValueId) -> usize {
        match self.of(id).rows {
            Rows::Outputs => self.outputs,
            Rows::Routed(top_k) => self.rows * top_k as usize,
            Rows::Tokens | Rows::Sequences | Rows::Handed => self.rows,
        }
    }

    pub(super) fn format(&self, id: ValueId) -> Number {
        self.formats[id.0 as usize]
    }

    pub(super) fn weight(&self, id: WeightId) -> Address {
        self.weights.alone(id).buffer.address()
    }

    pub(super) fn optional_weight(&self, id: Option<WeightId>) -> Address {
        id.map_or(Address::NONE, |id| self.weight(id))
    }

    /// The first output and all inputs of a node, and what follows them.
    pub(super) fn inputs(&self, node: &Node, after: &[Address]) -> Vec<Argument> {
        let values = node.outputs[..1].iter().chain(&node.inputs).map(|id| (self.values)(*id));
        values.chain(after.iter().copied()).map(Argument::from).collect()
    }

    /// The variant of an operation's kernel that writes the format of a node's output.
    fn making(&self, entry: &'static str, id: ValueId) -> Need {
        let file = Variant::new(entry, &[("Y", self.format(id).name())]);
        let plain = ["head_norm", "position_scale", "soft_cap", "scale", "add"];
        (if plain.contains(&entry) { Variant::new(entry, &[]) } else { file }, entry)
    }

    /// A kernel with a block for each row, that takes rows and width after its values.
    fn by_row(&self, entry: &'static str, node: &Node, mut arguments: Vec<Argument>) -> Call {
        let made = node.outputs[0];
        let (rows, width) = (word(self.rows_of(made)), word(self.width(made)));
        arguments.extend(arguments![rows, width]);
        Call {
            need: self.making(entry, made),
            grid: [rows, 1, 1],
            block: THREADS,
            shared_bytes: 0,
            arguments,
        }
    }

    /// A kernel that strides over elements, and takes their count after its values.
    fn strided(&self, entry: &'static str, node: &Node, after: &[Argument]) -> Call {
        let made = node.outputs[0];
        let count = self.rows_of(made) * self.width(made);
        let arguments = [self.inputs(node, &[]), arguments![count as u64], after.to_vec()].concat();
        strided(self.making(entry, made), count, arguments)
    }

    fn embed(&self, weight: WeightId, node: &Node) -> Call {
        let matrix = self.weights.alone(weight);
        let embeddings = node.inputs.get(1).map_or(Address::NONE, |id| (self.values)(*id));
        let (made, vocabulary) = (node.outputs[0], matrix.shape[0]);
        let arguments = arguments![
            (self.values)(made),
            self.lists.ids(),
            matrix.buffer.address(),
            embeddings,
            word(self.rows),
            word(vocabulary),
            word(self.width(made)),
        ];
        let need = match matrix.stored {
            Stored::Plain(number) => (embed(number), "embed"),
            Stored::Codes(units) => (embed_codes(units.name()), "embed_codes"),
        };
        Call { need, grid: [word(self.rows), 1, 1], block: THREADS, shared_bytes: 0, arguments }
    }

    fn rms_norm(&self, weight: WeightId, epsilon: f32, node: &Node) -> Call {
        let mut call = self.by_row("rms_norm", node, self.inputs(node, &[self.weight(weight)]));
        call.arguments.push(epsilon.into());
        call
    }

    fn add_rms_norm(&self, body: &[Node], node: &Node) -> Result<Vec<Call>, DeviceError> {
        let [Node { op: Op::Add, .. }, Node { op: Op::RmsNorm { weight, epsilon }, .. }] = body else {
            return Err(unsupported(node.op.name(), self.reason("its body is not that of its kind")));
        };
        if self.fold_of(node.outputs[1]).is_some() || self.is_routed(node.outputs[1]) {
            return Ok(Vec::new());
        }
        let values = node.outputs.iter().chain(&node.inputs).map(|id| (self.values)(*id));
        let mut arguments: Vec<Argument> = values.map(Argument::from).collect();
        let (normed, rows) = (node.outputs[1], word(self.rows_of(node.outputs[1])));
        arguments.extend(arguments![self.weight(*weight), rows, word(self.width(normed)), *epsilon]);
        let need = self.making("add_rms_norm", normed);
        Ok(vec![Call { need, grid: [rows, 1, 1], block: THREADS, shared_bytes: 0, arguments }])
    }

    fn head_norm(&self, weight: WeightId, (heads, epsilon): (usize, f32), node: &Node) -> Call {
        let made = node.outputs[0];
        let (rows, dim) = (self.rows_of(made), self.width(made) / heads);
        let mut arguments = self.inputs(node, &[self.weight(weight)]);
        arguments.extend(arguments![word(rows), word(heads), word(dim), epsilon]);
        by_head(self.making("head_norm", made), rows * heads, arguments)
    }

    /// How the row of a product is made, where the product makes it in this step.
    pub(super) fn fold_of(&self, x: ValueId) -> Option<&Fold> {
        self.folds.filter(|_| self.rows == 1).and_then(|folds| folds.of(x))
    }

    /// The arguments of `linear_one`, `linear_one_codes` and `linear_one_wide` but for its shape: its row, or what it makes that of.
    pub(super) fn one_row(
        &self,
        [y, read, weight, bias]: [Address; 4],
        [n, k]: [u32; 2],
        x: ValueId,
    ) -> Vec<Argument> {
        let none = Address::NONE;
        let (row, epsilon) = match self.fold_of(x) {
            None => ([none, read, none, none, none], 0.0),
            Some(Fold { sum, added: [a, b], weight, epsilon }) => {
                let [sum, a, b] = [sum, a, b].map(|id| (self.values)(*id));
                ([sum, none, a, b, self.weight(*weight)], *epsilon)
            }
        };
        let mut arguments = arguments![y];
        arguments.extend(row.map(Argument::from));
        arguments.extend(arguments![weight, bias, n, k, epsilon]);
        arguments
    }

    fn rope(&self, rope: &Rope, node: &Node) -> Call {
        let [frequencies, axes] = self.ropes.of(&rope.table);
        let pairs = rope.table.inverse_frequencies.len();
        let mut arguments = self.inputs(node, &[self.lists.positions(), frequencies, axes]);
        arguments.extend(arguments![
            word(self.rows),
            word(rope.heads),
            word(rope.head_dim),
            word(pairs),
            rope.table.attention_scale,
        ]);
        let need = (Variant::new("rope", &[]), "rope");
        let shared_bytes = word(pairs * 2 * size_of::<f32>());
        Call { need, grid: [word(self.rows), 1, 1], block: THREADS, shared_bytes, arguments }
    }

    fn select_outputs(&self, node: &Node) -> Call {
        let made = node.outputs[0];
        let mut arguments = self.inputs(node, &[self.lists.output_rows()]);
        arguments.extend(arguments![word(self.outputs), word(self.width(made))]);
        let need = (Variant::new("gather_rows", &[("X", self.format(made).name())]), "gather_rows");
        Call { need, grid: [word(self.outputs), 1, 1], block: THREADS, shared_bytes: 0, arguments }
    }

    fn slice(&self, (groups, start, width): (usize, usize, usize), node: &Node) -> Call {
        let (x, made) = (node.inputs[0], node.outputs[0]);
        let rows = word(self.rows_of(made));
        let mut arguments = self.inputs(node, &[]);
        let group_width = self.width(x) / groups;
        arguments.extend(arguments![rows, word(groups), word(group_width), word(start), word(width)]);
        Call {
            need: self.making("slice", made),
            grid: [rows, 1, 1],
            block: THREADS,
            shared_bytes: 0,
            arguments,
        }
    }

    /// A launch for each part.
    fn concat(&self, node: &Node) -> Vec<Call> {
        let made = node.outputs[0];
        let (rows, width) = (word(self.rows_of(made)), word(self.width(made)));
        let mut start = 0;
        let part = |id: &ValueId| {
            let part = word(self.width(*id));
            let arguments = arguments![(self.values)(made), (self.values)(*id), rows, part, width, start];
            start += part;
            let need = (Variant::new("concat", &[]), "concat");
            Call { need, grid: [rows, 1, 1], block: THREADS, shared_bytes: 0, arguments }
        };
        node.inputs.iter().map(part).collect()
    }
}

/// A kernel whose warps take a head each.
pub(super) fn by_head(need: Need, heads: usize, arguments: Vec<Argument>) -> Call {
    let grid = [word(heads.div_ceil(NORMED_HEADS)), 1, 1];
    Call { need, grid, block: THREADS, shared_bytes: 0, arguments }
}

pub(super) fn strided(need: Need, count: usize, arguments: Vec<Argument>) -> Call {
    let blocks = count.div_ceil(THREADS as usize).min(STRIDED_BLOCKS);
    Call { need, grid: [word(blocks), 1, 1], block: THREADS, shared_bytes: 0, arguments }
}
