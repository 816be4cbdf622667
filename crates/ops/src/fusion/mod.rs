//! Rewrites of a program for backends that run several ops as one.
//!
//! Each rewrite is a pure function from program to program in a file of its own. Values keep their ids.

mod add_rms_norm;
mod gated_experts;
mod gated_linear;
mod query_key_value;

pub use gated_experts::GatedExperts;
pub use gated_linear::GatedLinear;
pub use query_key_value::QueryKeyValue;
pub(crate) use query_key_value::results as queries_and_keys_of;

use crate::{FusedKind, Node, Op, Program, ValueId, WeightId};
use std::ops::Range;

/// A rewrite that a backend may ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fusion {
    /// `add` and the `rms_norm` of its result become [`crate::FusedKind::AddRmsNorm`].
    AddRmsNorm,
    /// Projections to queries, keys and values, up to the pages, become [`crate::FusedKind::QueryKeyValue`].
    QueryKeyValue,
    /// Two products and the gate of one by the other become [`crate::FusedKind::GatedLinear`].
    GatedLinear,
    /// Two products by experts and the gate of one by the other become [`crate::FusedKind::GatedExperts`].
    GatedExperts,
}

/// The program with these rewrites applied, in order.
pub fn fuse(program: &Program, fusions: &[Fusion]) -> Program {
    fusions.iter().fold(program.clone(), |program, fusion| match fusion {
        Fusion::AddRmsNorm => add_rms_norm::rewrite(program),
        Fusion::QueryKeyValue => query_key_value::rewrite(program),
        Fusion::GatedLinear => gated_linear::rewrite(program),
        Fusion::GatedExperts => gated_experts::rewrite(program),
    })
}

/// The program with each fused op that `keeps` refuses replaced by its body.
pub fn unfuse(program: &Program, keeps: &dyn Fn(FusedKind, &[Node]) -> bool) -> Program {
    let mut unfused = program.clone();
    unfused.nodes = Vec::new();
    for node in &program.nodes {
        let is_kept = if let Op::Fused { kind, body } = &node.op { keeps(*kind, body) } else { true };
        let parts = if is_kept { std::slice::from_ref(node) } else { node.parts() };
        unfused.nodes.extend_from_slice(parts);
    }
    unfused
}

/// A product of a fused body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Linear {
    /// Its matrix.
    pub weight: WeightId,
    /// What is added.
    pub bias: Option<WeightId>,
}

impl Linear {
    /// The product of this value that a node is.
    fn of(node: &Node, x: ValueId) -> Option<Self> {
        let Op::Linear { weight, bias } = node.op else { return None };
        (node.inputs == [x]).then_some(Self { weight, bias })
    }
}

/// Nodes of a body of two products and the gate of one by the other.
const GATED_NODES: usize = 3;

/// Two products, the first of which gates the second: whether by `silu`, otherwise by `gelu`; `None` for another body.
fn gate_by_silu(body: &[Node]) -> Option<bool> {
    let [gate, up, gated] = body else { return None };
    let is_silu = gated.op == Op::SiluGate;
    let is_gate = is_silu || gated.op == Op::GeluGate;
    let made = gate.outputs.iter().chain(&up.outputs);
    (is_gate && gated.inputs.iter().eq(made)).then_some(is_silu)
}

/// The program with each two products and their gate that `is_body` accepts made one.
fn gates_joined(program: Program, kind: FusedKind, is_body: impl Fn(&[Node]) -> bool) -> Program {
    joined(program, kind, |program, start| {
        let end = start + GATED_NODES;
        let body = program.nodes.get(start..end)?;
        let made = body[GATED_NODES - 1].outputs.clone();
        (is_body(body) && is_inner(program, start..end, &made)).then_some((end, made))
    })
}

/// Whether nobody beside these nodes reads what they make, but for `made`.
fn is_inner(program: &Program, range: Range<usize>, made: &[ValueId]) -> bool {
    let inner = &program.nodes[range.clone()];
    !read_outside(program, range)
        .any(|id| !made.contains(id) && inner.iter().any(|node| node.outputs.contains(id)))
}

/// The values that other nodes read, and those that are returned.
fn read_outside(program: &Program, range: Range<usize>) -> impl Iterator<Item = &ValueId> {
    let outside = program.nodes[..range.start].iter().chain(&program.nodes[range.end..]);
    outside.flat_map(|node| &node.inputs).chain(program.outputs.iter().map(|(_, id)| id))
}

/// The program with neighbouring nodes made one: `find` says, for a place, where those that begin there end, and the values
/// that they make for others. All read what the first of them reads.
fn joined(
    mut program: Program,
    kind: FusedKind,
    find: impl Fn(&Program, usize) -> Option<(usize, Vec<ValueId>)>,
) -> Program {
    let (mut nodes, mut place) = (Vec::new(), 0);
    while place < program.nodes.len() {
        match find(&program, place) {
            Some((end, made)) => {
                let body = program.nodes[place..end].to_vec();
                let inputs = body[0].inputs.clone();
                nodes.push(Node { op: Op::Fused { kind, body }, inputs, outputs: made });
                place = end;
            }
            None => {
                nodes.push(program.nodes[place].clone());
                place += 1;
            }
        }
    }
    program.nodes = nodes;
    program
}
