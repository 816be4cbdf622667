//! Two products of routed rows with the matrices of their experts, of which one gates the other: one product over both matrices of
//! an expert that ends in the gate.

use super::{is_inner, joined};
use crate::{ExpertLinear, FusedKind, Node, Op, Program};

/// What the body of [`FusedKind::GatedExperts`] is made of.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GatedExperts {
    /// Of the gate, and of what it gates.
    pub linears: [ExpertLinear; 2],
    /// The gate is by `silu`; otherwise by `gelu`.
    pub is_silu: bool,
}

/// Nodes of a body.
const NODES: usize = 3;

impl GatedExperts {
    /// Reads a body; `None` where it is another one.
    pub fn of(body: &[Node]) -> Option<Self> {
        let [gate, up, gated] = body else { return None };
        let (Op::ExpertLinear(first), Op::ExpertLinear(second)) = (&gate.op, &up.op) else { return None };
        let is_silu = gated.op == Op::SiluGate;
        let is_gate = is_silu || gated.op == Op::GeluGate;
        let made = [gate.outputs[0], up.outputs[0]];
        let is_one = is_gate && gate.inputs == up.inputs && gated.inputs == made;
        is_one.then_some(Self { linears: [*first, *second], is_silu })
    }
}

pub(super) fn rewrite(program: Program) -> Program {
    joined(program, FusedKind::GatedExperts, |program, start| {
        let end = start + NODES;
        let body = program.nodes.get(start..end)?;
        GatedExperts::of(body)?;
        let made = vec![body[NODES - 1].outputs[0]];
        is_inner(program, start..end, &made).then_some((end, made))
    })
}
