//! Writes a [`Program`] op by op and works out the types of values.
//!
//! A block of `model` calls these methods in the order of the formula. A wrong width is a fault of the caller's
//! config check, so the builder only records; [`crate::verify`] says what is wrong.

use crate::{
    Attention, CaptureId, DeltaRule, Element, ExpertLinear, InputKind, KvFormat, Node, Op, OutputKind,
    PoolKind, Program, Rope, Router, Rows, StateEntry, StateId, StateLayout, Value, ValueId, WeightId,
    WeightRole, WeightUse,
};
use std::collections::HashMap;
use std::sync::Arc;

/// A program being written.
pub struct ProgramBuilder {
    program: Program,
    weights: HashMap<String, WeightId>,
    /// The keys that were written to each entry last.
    written: HashMap<StateId, ValueId>,
}

impl ProgramBuilder {
    /// An empty program over a state layout.
    pub fn new(name: &str, state: Arc<StateLayout>) -> Self {
        let program = Program {
            name: name.to_owned(),
            values: Vec::new(),
            weights: Vec::new(),
            state,
            inputs: Vec::new(),
            nodes: Vec::new(),
            outputs: Vec::new(),
            whole_prompt_only: false,
        };
        Self { program, weights: HashMap::new(), written: HashMap::new() }
    }

    /// The program as written.
    pub fn finish(self) -> Program {
        self.program
    }

    /// Marks the program as one that needs a prompt in one piece.
    pub fn whole_prompt_only(&mut self) {
        self.program.whole_prompt_only = true;
    }

    /// Declares a weight. The same name gives the same weight; an embedding that is also a matrix is tied.
    pub fn weight(&mut self, name: &str, shape: &[usize], role: WeightRole) -> WeightId {
        if let Some(&id) = self.weights.get(name) {
            let known = &mut self.program.weights[id.0 as usize];
            if known.role != role {
                known.role = WeightRole::TiedEmbedding;
            }
            return id;
        }
        let id = WeightId(self.program.weights.len() as u32);
        self.program.weights.push(WeightUse { name: name.to_owned(), shape: shape.to_vec(), role });
        self.weights.insert(name.to_owned(), id);
        id
    }

    /// The ids of the batch's tokens.
    pub fn ids(&mut self) -> ValueId {
        self.input(InputKind::Ids, Value { rows: Rows::Tokens, width: 1, element: Element::Id })
    }

    /// Rows that tokens bring in place of an id.
    pub fn embeddings(&mut self, width: usize) -> ValueId {
        self.input(InputKind::Embeddings, Value { rows: Rows::Tokens, width, element: Element::F32 })
    }

    /// A captured value of an earlier step.
    pub fn handed(&mut self, number: u32, width: usize) -> ValueId {
        self.input(InputKind::Handed(number), Value { rows: Rows::Handed, width, element: Element::F32 })
    }

    /// Names a value as a result of the step.
    pub fn output(&mut self, kind: OutputKind, value: ValueId) {
        self.program.outputs.push((kind, value));
    }

    /// [`Op::Embed`].
    pub fn embed(&mut self, weight: WeightId, inputs: &[ValueId]) -> ValueId {
        let width = self.columns(weight);
        self.make(Op::Embed { weight }, inputs, Rows::Tokens, width)
    }

    /// [`Op::RmsNorm`].
    pub fn rms_norm(&mut self, x: ValueId, weight: WeightId, epsilon: f32) -> ValueId {
        self.same(Op::RmsNorm { weight, epsilon }, &[x])
    }

    /// [`Op::HeadNorm`].
    pub fn head_norm(&mut self, x: ValueId, weight: WeightId, heads: usize, epsilon: f32) -> ValueId {
        self.same(Op::HeadNorm { weight, heads, epsilon }, &[x])
    }

    /// [`Op::GatedNorm`] of `x` by `gate`.
    pub fn gated_norm(
        &mut self,
        x: ValueId,
        gate: ValueId,
        weight: WeightId,
        heads: usize,
        epsilon: f32,
    ) -> ValueId {
        self.same(Op::GatedNorm { weight, heads, epsilon }, &[x, gate])
    }

    /// [`Op::L2Norm`].
    pub fn l2_norm(&mut self, x: ValueId, heads: usize, epsilon: f32, scale: f32) -> ValueId {
        self.same(Op::L2Norm { heads, epsilon, scale }, &[x])
    }

    /// [`Op::Linear`].
    pub fn linear(&mut self, x: ValueId, weight: WeightId, bias: Option<WeightId>) -> ValueId {
        let rows = self.program.value(x).rows;
        let width = self.program.weight(weight).shape.first().copied().unwrap_or(0);
        self.make(Op::Linear { weight, bias }, &[x], rows, width)
    }

    /// [`Op::Rope`].
    pub fn rope(&mut self, x: ValueId, rope: Rope) -> ValueId {
        self.same(Op::Rope(rope), &[x])
    }

    /// [`Op::PositionScale`].
    pub fn position_scale(&mut self, x: ValueId, slope: f32, period: u32) -> ValueId {
        self.same(Op::PositionScale { slope, period }, &[x])
    }

    /// [`Op::WriteKv`].
    pub fn write_kv(&mut self, k: ValueId, v: ValueId, state: StateId) {
        self.push(Op::WriteKv { state }, &[k, v], Vec::new());
        self.written.insert(state, k);
    }

    /// [`Op::Attention`]; `inputs` is q, or q, k and v of rows that are not written. The written keys that it reads over
    /// keys in int8 are added here.
    pub fn attention(&mut self, inputs: &[ValueId], attention: Attention) -> ValueId {
        let entry = self.program.state.entries.get(attention.state.0 as usize);
        let (value_dim, is_quantised) = match entry {
            Some(StateEntry::Paged(paged)) => (paged.value_dim, paged.key_format == KvFormat::Int8),
            Some(StateEntry::Recurrent(_)) | None => (0, false),
        };
        let width = attention.heads * value_dim;
        let written = self.written.get(&attention.state).filter(|_| is_quantised && inputs.len() == 1);
        let inputs: Vec<ValueId> = inputs.iter().chain(written).copied().collect();
        self.make(Op::Attention(attention), &inputs, Rows::Tokens, width)
    }

    /// [`Op::CausalConv`].
    pub fn causal_conv(&mut self, x: ValueId, weight: WeightId, state: StateId) -> ValueId {
        self.same(Op::CausalConv { weight, state }, &[x])
    }

    /// [`Op::DecayGate`].
    pub fn decay_gate(&mut self, a: ValueId, decay: WeightId, bias: WeightId) -> ValueId {
        self.same(Op::DecayGate { decay, bias }, &[a])
    }

    /// [`Op::GatedDeltaRule`] over q, k, v, g and b.
    pub fn gated_delta_rule(&mut self, inputs: [ValueId; 5], rule: DeltaRule) -> ValueId {
        let width = self.program.value(inputs[2]).width;
        self.make(Op::GatedDeltaRule(rule), &inputs, Rows::Tokens, width)
    }

    /// [`Op::SiluGate`].
    pub fn silu_gate(&mut self, gate: ValueId, up: ValueId) -> ValueId {
        self.same(Op::SiluGate, &[gate, up])
    }

    /// [`Op::GeluGate`].
    pub fn gelu_gate(&mut self, gate: ValueId, up: ValueId) -> ValueId {
        self.same(Op::GeluGate, &[gate, up])
    }

    /// [`Op::ClampedGate`].
    pub fn clamped_gate(&mut self, gate: ValueId, up: ValueId, alpha: f32, limit: f32) -> ValueId {
        self.same(Op::ClampedGate { alpha, limit }, &[gate, up])
    }

    /// [`Op::SigmoidGate`] of `x` by `gate`.
    pub fn sigmoid_gate(&mut self, x: ValueId, gate: ValueId) -> ValueId {
        self.same(Op::SigmoidGate, &[x, gate])
    }

    /// [`Op::SoftCap`].
    pub fn soft_cap(&mut self, x: ValueId, cap: f32) -> ValueId {
        self.same(Op::SoftCap { cap }, &[x])
    }

    /// [`Op::Scale`].
    pub fn scale(&mut self, x: ValueId, factor: f32) -> ValueId {
        self.same(Op::Scale { factor }, &[x])
    }

    /// [`Op::Add`].
    pub fn add(&mut self, a: ValueId, b: ValueId) -> ValueId {
        self.same(Op::Add, &[a, b])
    }

    /// [`Op::RouteExperts`]: ids and weights.
    pub fn route_experts(&mut self, logits: ValueId, router: Router) -> (ValueId, ValueId) {
        let rows = Rows::Routed(router.top_k);
        let ids = self.value(Value { rows, width: 1, element: Element::Id });
        let weights = self.value(Value { rows, width: 1, element: Element::F32 });
        self.push(Op::RouteExperts(router), &[logits], vec![ids, weights]);
        (ids, weights)
    }

    /// [`Op::ExpertLinear`].
    pub fn expert_linear(&mut self, x: ValueId, ids: ValueId, linear: ExpertLinear) -> ValueId {
        let width = self.program.weight(linear.weight).shape.get(1).copied().unwrap_or(0);
        self.make(Op::ExpertLinear(linear), &[x, ids], Rows::Routed(linear.top_k), width)
    }

    /// [`Op::CombineExperts`]; `inputs` is y, the weights and, where there is one, the shared expert's result.
    pub fn combine_experts(&mut self, inputs: &[ValueId]) -> ValueId {
        let width = self.program.value(inputs[0]).width;
        self.make(Op::CombineExperts, inputs, Rows::Tokens, width)
    }

    /// [`Op::SelectOutputs`].
    pub fn select_outputs(&mut self, x: ValueId) -> ValueId {
        let width = self.program.value(x).width;
        self.make(Op::SelectOutputs, &[x], Rows::Outputs, width)
    }

    /// [`Op::Pool`].
    pub fn pool(&mut self, x: ValueId, kind: PoolKind) -> ValueId {
        let width = self.program.value(x).width;
        self.make(Op::Pool { kind }, &[x], Rows::Sequences, width)
    }

    /// [`Op::GatherRows`] by the map of handed value `handed`.
    pub fn gather_rows(&mut self, x: ValueId, handed: u32) -> ValueId {
        let width = self.program.value(x).width;
        self.make(Op::GatherRows { handed }, &[x], Rows::Tokens, width)
    }

    /// [`Op::MapIds`].
    pub fn map_ids(&mut self, ids: ValueId, table: Arc<[u32]>) -> ValueId {
        self.same(Op::MapIds { table }, &[ids])
    }

    /// [`Op::Slice`].
    pub fn slice(&mut self, x: ValueId, groups: usize, start: usize, width: usize) -> ValueId {
        let rows = self.program.value(x).rows;
        self.make(Op::Slice { groups, start, width }, &[x], rows, groups * width)
    }

    /// [`Op::Concat`].
    pub fn concat(&mut self, parts: &[ValueId]) -> ValueId {
        let rows = self.program.value(parts[0]).rows;
        let width = parts.iter().map(|part| self.program.value(*part).width).sum();
        self.make(Op::Concat, parts, rows, width)
    }

    /// [`Op::Capture`]: keeps a value for later steps.
    pub fn capture(&mut self, x: ValueId, id: CaptureId) {
        self.push(Op::Capture { id }, &[x], Vec::new());
    }

    /// [`Op::Sample`].
    pub fn sample(&mut self, logits: ValueId) -> ValueId {
        let value = self.value(Value { rows: Rows::Outputs, width: 1, element: Element::Id });
        self.push(Op::Sample, &[logits], vec![value]);
        value
    }

    /// [`Op::Accept`].
    pub fn accept(&mut self, tokens: ValueId) -> ValueId {
        let value = self.value(Value { rows: Rows::Sequences, width: 1, element: Element::Id });
        self.push(Op::Accept, &[tokens], vec![value]);
        value
    }

    fn input(&mut self, kind: InputKind, value: Value) -> ValueId {
        if let Some(id) = self.program.input(kind) {
            return id;
        }
        let id = self.value(value);
        self.program.inputs.push((kind, id));
        id
    }

    fn columns(&self, weight: WeightId) -> usize {
        self.program.weight(weight).shape.last().copied().unwrap_or(0)
    }

    fn same(&mut self, op: Op, inputs: &[ValueId]) -> ValueId {
        let value = self.value(self.program.value(inputs[0]));
        self.push(op, inputs, vec![value]);
        value
    }

    fn make(&mut self, op: Op, inputs: &[ValueId], rows: Rows, width: usize) -> ValueId {
        let value = self.value(Value { rows, width, element: Element::F32 });
        self.push(op, inputs, vec![value]);
        value
    }

    fn value(&mut self, value: Value) -> ValueId {
        let id = ValueId(self.program.values.len() as u32);
        self.program.values.push(value);
        id
    }

    fn push(&mut self, op: Op, inputs: &[ValueId], outputs: Vec<ValueId>) {
        self.program.nodes.push(Node { op, inputs: inputs.to_vec(), outputs });
    }
}
