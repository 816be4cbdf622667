//! Runs a program's nodes one after the other: finds each op's inputs and calls the function of its name.

use super::state::{Kept, KeptRows, Part, ReferenceState, Trail};
use super::values::{Made, Numbers};
use super::weights::Weight;
use super::{attention, experts, gates, linear, norms, position_scale, recurrent, rope, rows, unknown};
use crate::step::map_ids;
use crate::{
    Attention, Batch, DeltaRule, DeviceError, InputKind, Node, Op, Program, RecurrentWrite, StateId, Value,
    ValueId, WeightId,
};
use std::sync::Arc;

/// A step in progress.
pub(super) struct Run<'a> {
    pub(super) program: &'a Program,
    pub(super) weights: &'a [Arc<Weight>],
    /// All of it known: see [`crate::step::resolve`].
    pub(super) batch: &'a Batch,
    pub(super) state: &'a mut ReferenceState,
    pub(super) values: Vec<Option<Made>>,
    pub(super) kept: KeptRows,
}

impl Run<'_> {
    /// Makes the values that exist before the first node.
    pub(super) fn inputs(&mut self) -> Result<(), DeviceError> {
        for (kind, id) in &self.program.inputs {
            let made = match kind {
                InputKind::Ids => Made::Ids(rows::ids(self.batch)),
                InputKind::Embeddings => rows::embeddings(self.batch, self.program.value(*id).width)?.into(),
                InputKind::Handed(number) => self.handed(*number, self.program.value(*id))?.into(),
            };
            self.values[id.0 as usize] = Some(made);
        }
        Ok(())
    }

    fn handed(&self, number: u32, wanted: Value) -> Result<Numbers, DeviceError> {
        let handed = self.batch.handed.get(number as usize);
        let handed = handed.ok_or_else(|| unknown("handed value", number, "the batch brings fewer"))?;
        let (capture, captures) = (handed.capture, &self.state.steps.get(handed.step)?.kept.captures);
        let missing = || unknown("capture", capture.0, format!("step {} kept none", handed.step.0));
        let captured = captures.get(&capture).ok_or_else(missing)?;
        if captured.width != wanted.width {
            let reason = format!("it is {} wide, the program reads {}", captured.width, wanted.width);
            return Err(unknown("capture", capture.0, reason));
        }
        Ok(captured.clone())
    }

    /// Runs one node and keeps what it makes.
    pub(super) fn node(&mut self, node: &Node) -> Result<(), DeviceError> {
        if let Op::Fused { body, .. } = &node.op {
            return body.iter().try_for_each(|part| self.node(part));
        }
        for (id, made) in node.outputs.iter().zip(self.made_by(node)?) {
            self.values[id.0 as usize] = Some(made);
        }
        Ok(())
    }

    fn made_by(&mut self, node: &Node) -> Result<Vec<Made>, DeviceError> {
        let x = |input: usize| numbers(&self.values, node.inputs[input]);
        let w = |id: &WeightId| &self.weights[id.0 as usize];
        let made = match &node.op {
            Op::Embed { weight } => {
                let embeddings = (node.inputs.len() > 1).then(|| x(1));
                rows::embed(ids(&self.values, node.inputs[0]), w(weight), embeddings)?
            }
            Op::RmsNorm { weight, epsilon } | Op::HeadNorm { weight, epsilon, .. } => {
                norms::rms_norm(x(0), &w(weight).data, *epsilon)
            }
            Op::GatedNorm { weight, epsilon, .. } => norms::gated_norm(x(0), x(1), &w(weight).data, *epsilon),
            Op::L2Norm { heads, epsilon, scale } => norms::l2_norm(x(0), *heads, *epsilon, *scale),
            Op::Linear { weight, bias } => {
                linear::linear(x(0), &w(weight).data, bias.as_ref().map(|bias| &w(bias).data[..]))
            }
            Op::Rope(op) => rope::rope(x(0), op, &self.batch.rows),
            Op::PositionScale { slope, period } => {
                position_scale::position_scale(x(0), *slope, *period, &self.batch.rows)
            }
            Op::WriteKv { state } => {
                attention::write_kv(x(0), x(1), self.state.pages(*state), self.batch)?;
                return Ok(Vec::new());
            }
            Op::Attention(op) => self.attention(op, node)?,
            Op::CausalConv { weight, state } => self.causal_conv(*weight, *state, node)?,
            Op::DecayGate { decay, bias } => gates::decay_gate(x(0), &w(decay).data, &w(bias).data),
            Op::GatedDeltaRule(rule) => self.gated_delta_rule(rule, node)?,
            Op::SiluGate => gates::silu_gate(x(0), x(1)),
            Op::GeluGate => gates::gelu_gate(x(0), x(1)),
            Op::ClampedGate { alpha, limit } => gates::clamped_gate(x(0), x(1), *alpha, *limit),
            Op::SigmoidGate => gates::sigmoid_gate(x(0), x(1)),
            Op::SoftCap { cap } => x(0).map(|x| gates::soft_cap(x, *cap)),
            Op::Scale { factor } => x(0).map(|x| factor * x),
            Op::Add => gates::add(x(0), x(1)),
            Op::RouteExperts(router) => return Ok(experts::route_experts(x(0), router)),
            Op::ExpertLinear(op) => {
                let bias = op.bias.as_ref().map(|bias| &w(bias).data[..]);
                experts::expert_linear(x(0), ids(&self.values, node.inputs[1]), w(&op.weight), bias)
            }
            Op::CombineExperts => {
                let shared = (node.inputs.len() > 2).then(|| x(2));
                experts::combine_experts(x(0), x(1), shared, self.batch.rows.len())
            }
            Op::SelectOutputs => rows::select_outputs(x(0), self.batch),
            Op::Pool { kind } => rows::pool(x(0), *kind, self.batch),
            Op::GatherRows { handed } => rows::gather_rows(x(0), self.row_map(*handed)?)?,
            Op::MapIds { table } => {
                return Ok(vec![Made::Ids(map_ids(ids(&self.values, node.inputs[0]), table)?)]);
            }
            Op::Slice { groups, start, width } => rows::slice(x(0), *groups, *start, *width),
            Op::Concat => rows::concat(&(0..node.inputs.len()).map(x).collect::<Vec<_>>()),
            Op::Capture { id } => {
                self.kept.captures.insert(*id, x(0).clone());
                return Ok(Vec::new());
            }
            Op::Sample | Op::Accept | Op::Fused { .. } => unreachable!("these are run by their callers"),
        };
        Ok(vec![made.into()])
    }

    fn row_map(&self, handed: u32) -> Result<&[u32], DeviceError> {
        let handed_value = self.batch.handed.get(handed as usize);
        let found = handed_value.ok_or_else(|| unknown("handed value", handed, "the batch brings fewer"))?;
        Ok(&found.row_map)
    }

    fn attention(&mut self, op: &Attention, node: &Node) -> Result<Numbers, DeviceError> {
        let x = |input: usize| numbers(&self.values, node.inputs[input]);
        let unwritten = (node.inputs.len() == 3).then(|| (x(1), x(2)));
        let sinks = op.sinks.map(|sinks| &self.weights[sinks.0 as usize].data[..]);
        let exact = (node.inputs.len() == 2).then(|| x(1).map(|x| half::f16::from_f32(x).to_f32()));
        let pages = self.state.pages(op.state);
        let context =
            attention::Context { batch: self.batch, pages, unwritten, exact: exact.as_ref(), sinks };
        attention::attention(op, x(0), &context)
    }

    fn causal_conv(&mut self, weight: WeightId, state: StateId, node: &Node) -> Result<Numbers, DeviceError> {
        let x = numbers(&self.values, node.inputs[0]);
        let weight = &self.weights[weight.0 as usize].data;
        let row = |row: usize, window: &mut [f32]| recurrent::causal_conv(x.row(row), weight, window);
        recur(self.batch, self.state, &mut self.kept, (state, Part::Window), row)
            .map(|y| Numbers::new(x.width, y))
    }

    fn gated_delta_rule(&mut self, rule: &DeltaRule, node: &Node) -> Result<Numbers, DeviceError> {
        let x = |input: usize| numbers(&self.values, node.inputs[input]);
        let inputs = recurrent::DeltaInputs { q: x(0), k: x(1), v: x(2), g: x(3), b: x(4) };
        let sizes = self.state.slots(rule.state).layout().state;
        let row = |row: usize, matrices: &mut [f32]| {
            recurrent::gated_delta_rule(&inputs, row, rule, sizes, matrices)
        };
        recur(self.batch, self.state, &mut self.kept, (rule.state, Part::Matrices), row)
            .map(|y| Numbers::new(inputs.v.width, y))
    }
}

/// Runs the rows of each sequence in order over its recurrent state, and puts the state where the batch says.
fn recur(
    batch: &Batch,
    state: &mut ReferenceState,
    kept: &mut KeptRows,
    (id, part): (StateId, Part),
    row: impl Fn(usize, &mut [f32]) -> (Vec<f32>, recurrent::Advance),
) -> Result<Vec<f32>, DeviceError> {
    let slots = state.slots(id);
    let mut y = Vec::new();
    for (sequence, rows) in batch.sequences.iter().enumerate() {
        let place = rows.recurrent.expect("the batch was checked against the layout");
        let mut present = slots.read(part, place.read)?;
        let mut trail = Trail::new(slots.layout().rollback, &present);
        for number in rows.rows.clone() {
            let (values, advance) = row(number as usize, &mut present);
            y.extend(values);
            trail.push(advance, &present);
        }
        match place.write {
            RecurrentWrite::Bank(bank) => slots.write(part, bank, &present)?,
            RecurrentWrite::Candidates(bank) => {
                kept.recurrent.push(Kept { state: id, part, sequence, bank, trail })
            }
        }
    }
    Ok(y)
}

fn made(values: &[Option<Made>], id: ValueId) -> &Made {
    values[id.0 as usize].as_ref().expect("the verifier saw it made before it is read")
}

pub(super) fn numbers(values: &[Option<Made>], id: ValueId) -> &Numbers {
    made(values, id).numbers()
}

pub(super) fn ids(values: &[Option<Made>], id: ValueId) -> &[Option<u32>] {
    made(values, id).ids()
}
