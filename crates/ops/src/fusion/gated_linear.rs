//! Two products of one value of which one gates the other: one product over both matrices that ends in the gate.

use super::{Linear, gate_by_silu, gates_joined};
use crate::{FusedKind, Node, Program};

/// What the body of [`FusedKind::GatedLinear`] is made of.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GatedLinear {
    /// Of the gate, and of what it gates.
    pub linears: [Linear; 2],
    /// The gate is by `silu`; otherwise by `gelu`.
    pub is_silu: bool,
}

impl GatedLinear {
    /// Reads a body; `None` where it is another one.
    pub fn of(body: &[Node]) -> Option<Self> {
        let is_silu = gate_by_silu(body)?;
        let [gate, up, _] = body else { return None };
        let x = gate.inputs.first()?;
        Some(Self { linears: [Linear::of(gate, *x)?, Linear::of(up, *x)?], is_silu })
    }
}

pub(super) fn rewrite(program: Program) -> Program {
    gates_joined(program, FusedKind::GatedLinear, |body| GatedLinear::of(body).is_some())
}
