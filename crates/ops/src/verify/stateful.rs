//! The types of ops that read or write state, against the sizes of their state entries.

use super::types::{head_dim, numbers, one};
use super::{Place, ProgramError};
use crate::{Attention, DeltaRule, Element, KvFormat, Mask, Rows, StateId, Value, WeightId, WeightRole};

type Made = Result<Vec<Value>, ProgramError>;

pub(super) fn write_kv(at: Place<'_>, state: StateId, inputs: &[Value]) -> Made {
    at.same("number of inputs", 2, inputs.len())?;
    keys_and_values(at, state, inputs)?;
    Ok(Vec::new())
}

pub(super) fn attention(at: Place<'_>, op: &Attention, inputs: &[Value]) -> Made {
    let paged = at.paged(op.state)?;
    at.same("heads above zero", true, op.heads > 0)?;
    at.same("query heads left over by kv heads", 0, op.heads % paged.kv_heads)?;
    let written = if paged.key_format == KvFormat::Int8 { 2 } else { 1 };
    at.same("inputs for its keys' format, or three", true, inputs.len() == written || inputs.len() == 3)?;
    numbers(at, Rows::Tokens, op.heads * paged.key_dim, inputs[0])?;
    match inputs {
        [_, keys] => numbers(at, Rows::Tokens, paged.kv_heads * paged.key_dim, *keys)?,
        [_, rest @ ..] if !rest.is_empty() => keys_and_values(at, op.state, rest)?,
        _ => {}
    }
    match op.mask {
        Mask::Window(window) | Mask::BlockWindow(window) => at.same("window above zero", true, window > 0)?,
        Mask::Causal | Mask::Block => {}
    }
    if let Some(sinks) = op.sinks {
        at.weight(sinks, &[WeightRole::Vector], &[op.heads])?;
    }
    at.same("soft cap above zero", true, op.soft_cap.is_none_or(|cap| cap > 0.0))?;
    Ok(vec![Value { rows: Rows::Tokens, width: op.heads * paged.value_dim, element: Element::F32 }])
}

fn keys_and_values(at: Place<'_>, state: StateId, inputs: &[Value]) -> Result<(), ProgramError> {
    let paged = at.paged(state)?;
    numbers(at, Rows::Tokens, paged.kv_heads * paged.key_dim, inputs[0])?;
    numbers(at, Rows::Tokens, paged.kv_heads * paged.value_dim, inputs[1])
}

pub(super) fn causal_conv(at: Place<'_>, weight: WeightId, state: StateId, inputs: &[Value]) -> Made {
    let conv = at.recurrent(state)?.conv;
    let x = one(at, inputs)?;
    numbers(at, Rows::Tokens, conv.channels, x)?;
    at.weight(weight, &[WeightRole::Convolution], &[conv.channels, conv.kernel])?;
    Ok(vec![x])
}

pub(super) fn gated_delta_rule(at: Place<'_>, rule: &DeltaRule, inputs: &[Value]) -> Made {
    let delta = at.recurrent(rule.state)?.state;
    at.same("number of inputs", 5, inputs.len())?;
    head_dim(at, rule.key_heads, delta.value_heads)?;
    let keys = rule.key_heads * delta.key_dim;
    let values = delta.value_heads * delta.value_dim;
    for (input, width) in inputs.iter().zip([keys, keys, values, delta.value_heads, delta.value_heads]) {
        numbers(at, Rows::Tokens, width, *input)?;
    }
    Ok(vec![inputs[2]])
}
