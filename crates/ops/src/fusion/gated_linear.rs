//! Two products of one value of which one gates the other: one product over both matrices that ends in the gate.

use super::{Linear, is_inner, joined};
use crate::{FusedKind, Node, Op, Program};

/// What the body of [`FusedKind::GatedLinear`] is made of.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GatedLinear {
    /// Of the gate, and of what it gates.
    pub linears: [Linear; 2],
    /// The gate is by `silu`; otherwise by `gelu`.
    pub is_silu: bool,
}

/// Nodes of a body.
const NODES: usize = 3;

impl GatedLinear {
    /// Reads a body; `None` where it is another one.
    pub fn of(body: &[Node]) -> Option<Self> {
        let [gate, up, gated] = body else { return None };
        let x = gate.inputs.first()?;
        let linears = [Linear::of(gate, *x)?, Linear::of(up, *x)?];
        let is_silu = gated.op == Op::SiluGate;
        let is_gate = is_silu || gated.op == Op::GeluGate;
        let made = [gate.outputs[0], up.outputs[0]];
        (is_gate && gated.inputs == made).then_some(Self { linears, is_silu })
    }
}

pub(super) fn rewrite(program: Program) -> Program {
    joined(program, FusedKind::GatedLinear, |program, start| {
        let end = start + NODES;
        let body = program.nodes.get(start..end)?;
        GatedLinear::of(body)?;
        let made = body[NODES - 1].outputs[0];
        is_inner(program, start..end, &[made]).then(|| (end, vec![made]))
    })
}
