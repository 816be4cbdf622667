//! The types that each op makes of the types that it reads, as `Op` documents them.

use super::{Place, ProgramError, stateful};
use crate::{
    Element, ExpertLinear, InputKind, Op, PoolKind, Rope, Router, Rows, Value, WeightId, WeightRole,
};

type Made = Result<Vec<Value>, ProgramError>;

/// Checks one op and says what it makes.
pub(super) fn made_by(at: Place<'_>, op: &Op, inputs: &[Value]) -> Made {
    match op {
        Op::Embed { weight } => embed(at, *weight, inputs),
        Op::RmsNorm { weight, .. } => norm(at, Some(*weight), 1, one(at, inputs)?),
        Op::HeadNorm { weight, heads, .. } => norm(at, Some(*weight), *heads, one(at, inputs)?),
        Op::GatedNorm { weight, heads, .. } => {
            alike(at, inputs)?;
            norm(at, Some(*weight), *heads, inputs[0])
        }
        Op::L2Norm { heads, .. } => norm(at, None, *heads, one(at, inputs)?),
        Op::Linear { weight, bias } => linear(at, *weight, *bias, one(at, inputs)?),
        Op::Rope(op) => rope(at, op, one(at, inputs)?),
        Op::PositionScale { period, .. } => {
            at.same("period above zero", true, *period > 0)?;
            moved(at, Rows::Tokens, Rows::Tokens, one(at, inputs)?)
        }
        Op::WriteKv { state } => stateful::write_kv(at, *state, inputs),
        Op::Attention(op) => stateful::attention(at, op, inputs),
        Op::CausalConv { weight, state } => stateful::causal_conv(at, *weight, *state, inputs),
        Op::DecayGate { decay, bias } => decay_gate(at, *decay, *bias, one(at, inputs)?),
        Op::GatedDeltaRule(rule) => stateful::gated_delta_rule(at, rule, inputs),
        Op::SiluGate | Op::GeluGate | Op::Add => alike(at, inputs),
        Op::ClampedGate { limit, .. } => {
            at.same("limit above zero", true, *limit > 0.0)?;
            alike(at, inputs)
        }
        Op::SigmoidGate => sigmoid_gate(at, inputs),
        Op::SoftCap { cap } => {
            at.same("cap above zero", true, *cap > 0.0)?;
            same_numbers(at, one(at, inputs)?)
        }
        Op::Scale { .. } => same_numbers(at, one(at, inputs)?),
        Op::RouteExperts(router) => route_experts(at, router, one(at, inputs)?),
        Op::ExpertLinear(op) => expert_linear(at, op, inputs),
        Op::CombineExperts => combine_experts(at, inputs),
        Op::SelectOutputs => moved(at, Rows::Tokens, Rows::Outputs, one(at, inputs)?),
        Op::Pool { kind } => pool(at, *kind, one(at, inputs)?),
        Op::GatherRows { handed } => gather_rows(at, *handed, one(at, inputs)?),
        Op::MapIds { table } => {
            at.same("entries of its table above zero", true, !table.is_empty())?;
            ids(at, one(at, inputs)?.rows, one(at, inputs)?)
        }
        Op::Slice { groups, start, width } => slice(at, (*groups, *start, *width), one(at, inputs)?),
        Op::Concat => concat(at, inputs),
        Op::Capture { .. } => moved(at, Rows::Tokens, Rows::Tokens, one(at, inputs)?).map(|_| Vec::new()),
        Op::Sample => {
            moved(at, Rows::Outputs, Rows::Outputs, one(at, inputs)?)?;
            Ok(vec![Value { rows: Rows::Outputs, width: 1, element: Element::Id }])
        }
        Op::Accept => {
            ids(at, Rows::Outputs, one(at, inputs)?)?;
            Ok(vec![Value { rows: Rows::Sequences, width: 1, element: Element::Id }])
        }
        Op::Fused { .. } => Err(at.wrong("a fused op here", "none".into(), "one".into())),
    }
}

/// The only input.
pub(super) fn one(at: Place<'_>, inputs: &[Value]) -> Result<Value, ProgramError> {
    at.same("number of inputs", 1, inputs.len())?;
    Ok(inputs[0])
}

/// Checks that a value holds numbers in so many rows.
pub(super) fn numbers(at: Place<'_>, rows: Rows, width: usize, found: Value) -> Result<(), ProgramError> {
    at.same("type of an input", Value { rows, width, element: Element::F32 }, found)
}

fn same_numbers(at: Place<'_>, x: Value) -> Made {
    moved(at, x.rows, x.rows, x)
}

/// Checks that x holds numbers in rows `from`; the result has as many columns in rows `to`.
fn moved(at: Place<'_>, from: Rows, to: Rows, x: Value) -> Made {
    numbers(at, from, x.width, x)?;
    at.same("width of its input above zero", true, x.width > 0)?;
    Ok(vec![Value { rows: to, ..x }])
}

/// Two inputs of one type, and a result like them.
fn alike(at: Place<'_>, inputs: &[Value]) -> Made {
    at.same("number of inputs", 2, inputs.len())?;
    at.same("type of its second input", inputs[0], inputs[1])?;
    same_numbers(at, inputs[0])
}

fn ids(at: Place<'_>, rows: Rows, found: Value) -> Made {
    at.same("type of an input", Value { rows, width: 1, element: Element::Id }, found)?;
    Ok(vec![found])
}

/// Checks that a row is so many heads and gives the elements of one.
pub(super) fn head_dim(at: Place<'_>, heads: usize, width: usize) -> Result<usize, ProgramError> {
    at.same("heads above zero", true, heads > 0)?;
    at.same("columns left over by its heads", 0, width % heads)?;
    Ok(width / heads)
}

fn embed(at: Place<'_>, weight: WeightId, inputs: &[Value]) -> Made {
    let shape = at.shape(weight)?;
    at.same("dimensions of its weight", 2, shape.len())?;
    at.weight(weight, &[WeightRole::Embedding, WeightRole::TiedEmbedding], shape)?;
    at.same("one or two inputs", true, matches!(inputs.len(), 1 | 2))?;
    ids(at, Rows::Tokens, inputs[0])?;
    if let Some(embeddings) = inputs.get(1) {
        numbers(at, Rows::Tokens, shape[1], *embeddings)?;
    }
    Ok(vec![Value { rows: Rows::Tokens, width: shape[1], element: Element::F32 }])
}

fn norm(at: Place<'_>, weight: Option<WeightId>, heads: usize, x: Value) -> Made {
    let dim = head_dim(at, heads, x.width)?;
    if let Some(weight) = weight {
        at.weight(weight, &[WeightRole::Vector], &[dim])?;
    }
    same_numbers(at, x)
}

fn linear(at: Place<'_>, weight: WeightId, bias: Option<WeightId>, x: Value) -> Made {
    let shape = at.shape(weight)?;
    at.same("dimensions of its weight", 2, shape.len())?;
    at.weight(weight, &[WeightRole::Matrix, WeightRole::TiedEmbedding], &[shape[0], x.width])?;
    if let Some(bias) = bias {
        at.weight(bias, &[WeightRole::Vector], &[shape[0]])?;
    }
    same_numbers(at, x)?;
    Ok(vec![Value { width: shape[0], ..x }])
}

fn rope(at: Place<'_>, op: &Rope, x: Value) -> Made {
    at.same("heads times their dim", x.width, op.heads * op.head_dim)?;
    let pairs = op.table.inverse_frequencies.len();
    at.same("pairs within half a head", true, pairs * 2 <= op.head_dim)?;
    at.same("axes of its table", pairs, op.table.axes.len())?;
    at.same("axes below 3", true, op.table.axes.iter().all(|axis| *axis < 3))?;
    moved(at, Rows::Tokens, Rows::Tokens, x)
}

fn decay_gate(at: Place<'_>, decay: WeightId, bias: WeightId, a: Value) -> Made {
    at.weight(decay, &[WeightRole::Vector], &[a.width])?;
    at.weight(bias, &[WeightRole::Vector], &[a.width])?;
    moved(at, Rows::Tokens, Rows::Tokens, a)
}

fn sigmoid_gate(at: Place<'_>, inputs: &[Value]) -> Made {
    at.same("number of inputs", 2, inputs.len())?;
    let (x, gate) = (inputs[0], inputs[1]);
    let width = if gate.width == 1 { 1 } else { x.width };
    numbers(at, x.rows, width, gate)?;
    same_numbers(at, x)
}

fn route_experts(at: Place<'_>, router: &Router, logits: Value) -> Made {
    numbers(at, Rows::Tokens, router.experts, logits)?;
    let chosen = router.top_k as usize;
    at.same("experts a token from 1 to all", true, (1..=router.experts).contains(&chosen))?;
    let rows = Rows::Routed(router.top_k);
    Ok([Element::Id, Element::F32].map(|element| Value { rows, width: 1, element }).to_vec())
}

fn expert_linear(at: Place<'_>, op: &ExpertLinear, inputs: &[Value]) -> Made {
    at.same("number of inputs", 2, inputs.len())?;
    let (x, routed) = (inputs[0], Rows::Routed(op.top_k));
    let shape = at.shape(op.weight)?;
    at.same("dimensions of its weight", 3, shape.len())?;
    at.weight(op.weight, &[WeightRole::Experts], &[shape[0], shape[1], x.width])?;
    if let Some(bias) = op.bias {
        at.weight(bias, &[WeightRole::Vector], &shape[..2])?;
    }
    numbers(at, if x.rows == Rows::Tokens { Rows::Tokens } else { routed }, x.width, x)?;
    ids(at, routed, inputs[1])?;
    Ok(vec![Value { rows: routed, width: shape[1], element: Element::F32 }])
}

fn combine_experts(at: Place<'_>, inputs: &[Value]) -> Made {
    at.same("two or three inputs", true, matches!(inputs.len(), 2 | 3))?;
    let y = inputs[0];
    at.same("rows of its first input are routed", true, matches!(y.rows, Rows::Routed(_)))?;
    numbers(at, y.rows, y.width, y)?;
    numbers(at, y.rows, 1, inputs[1])?;
    if let Some(shared) = inputs.get(2) {
        numbers(at, Rows::Tokens, y.width, *shared)?;
    }
    Ok(vec![Value { rows: Rows::Tokens, ..y }])
}

fn pool(at: Place<'_>, kind: PoolKind, x: Value) -> Made {
    match kind {
        PoolKind::Last => {}
        PoolKind::First | PoolKind::Mean => {
            at.same("program that needs a whole prompt", true, at.program.whole_prompt_only)?;
        }
    }
    moved(at, Rows::Tokens, Rows::Sequences, x)
}

fn gather_rows(at: Place<'_>, handed: u32, x: Value) -> Made {
    let declared = at.program.input(InputKind::Handed(handed)).is_some();
    at.same("handed input of its number", true, declared)?;
    moved(at, Rows::Handed, Rows::Tokens, x)
}

fn slice(at: Place<'_>, (groups, start, width): (usize, usize, usize), x: Value) -> Made {
    let columns = head_dim(at, groups, x.width)?;
    let end = start.saturating_add(width);
    at.same("columns within a group", true, width > 0 && end <= columns)?;
    same_numbers(at, x)?;
    Ok(vec![Value { width: groups * width, ..x }])
}

fn concat(at: Place<'_>, inputs: &[Value]) -> Made {
    at.same("inputs above zero", true, !inputs.is_empty())?;
    for part in inputs {
        numbers(at, inputs[0].rows, part.width, *part)?;
    }
    Ok(vec![Value { width: inputs.iter().map(|part| part.width).sum(), ..inputs[0] }])
}
