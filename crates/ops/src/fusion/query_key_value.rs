//! The projections of one value to queries, keys and values with all that follows on them up to the pages: three products
//! over one matrix, then one pass over what they make.

use super::{Linear, is_inner, joined, read_outside};
use crate::{FusedKind, Node, Op, Program, Rope, StateId, ValueId, WeightId};

/// What the body of [`FusedKind::QueryKeyValue`] is made of.
#[derive(Clone, Debug, PartialEq)]
pub struct QueryKeyValue<'a> {
    /// Of queries, keys and values.
    pub linears: [Linear; 3],
    /// Of the heads of queries and of keys, with what is added to the mean of squares; both or none.
    pub norms: Option<([WeightId; 2], f32)>,
    /// The rotations of queries and keys, by one table; both or none.
    pub ropes: Option<[&'a Rope; 2]>,
    /// Where keys and values go.
    pub state: StateId,
}

/// Nodes of a body, at least and at most.
const NODES: std::ops::RangeInclusive<usize> = 4..=8;

impl<'a> QueryKeyValue<'a> {
    /// Reads a body; `None` where it is another one.
    pub fn of(body: &'a [Node]) -> Option<Self> {
        let [query, key, value, between @ .., last] = body else { return None };
        let x = query.inputs.first()?;
        let linears = [Linear::of(query, *x)?, Linear::of(key, *x)?, Linear::of(value, *x)?];
        let Op::WriteKv { state } = last.op else { return None };
        let mut ends = [query.outputs[0], key.outputs[0]];
        let (mut norms, mut ropes) = ([None; 2], [None; 2]);
        for node in between {
            let side = ends.iter().position(|end| node.inputs == [*end])?;
            if ropes[side].is_some() {
                return None;
            } else if let Op::Rope(rope) = &node.op {
                ropes[side] = Some(rope);
            } else if let (Op::HeadNorm { weight, epsilon, .. }, None) = (&node.op, norms[side]) {
                norms[side] = Some((*weight, *epsilon));
            } else {
                return None;
            }
            ends[side] = node.outputs[0];
        }
        let norms = match norms {
            [None, None] => None,
            [Some((query, epsilon)), Some((key, other))] if epsilon == other => Some(([query, key], epsilon)),
            _ => return None,
        };
        let ropes = match ropes {
            [None, None] => None,
            [Some(query), Some(key)] if query.table == key.table => Some([query, key]),
            _ => return None,
        };
        (last.inputs == [ends[1], value.outputs[0]]).then_some(Self { linears, norms, ropes, state })
    }
}

/// The queries as they enter the scores, and the keys as they are written: what the body makes for others.
pub(crate) fn results(body: &[Node]) -> Option<[ValueId; 2]> {
    let mut end = body.first()?.outputs[0];
    for node in body {
        end = if node.inputs == [end] { node.outputs[0] } else { end };
    }
    Some([end, *body.last()?.inputs.first()?])
}

pub(super) fn rewrite(program: Program) -> Program {
    joined(program, FusedKind::QueryKeyValue, |program, start| {
        let ends = NODES.map(|count| start + count).filter(|end| *end <= program.nodes.len());
        ends.into_iter().find_map(|end| {
            let body = &program.nodes[start..end];
            QueryKeyValue::of(body)?;
            let [queries, keys] = results(body)?;
            // Attention over keys in int8 reads those of the step as they are.
            let are_keys_read = read_outside(program, start..end).any(|id| *id == keys);
            let made = if are_keys_read { vec![queries, keys] } else { vec![queries] };
            is_inner(program, start..end, &made).then_some((end, made))
        })
    })
}
