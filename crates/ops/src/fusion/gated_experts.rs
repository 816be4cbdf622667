//! Two products of routed rows with the matrices of their experts, of which one gates the other: one product over both matrices of
//! an expert that ends in the gate.

use super::{gate_by_silu, gates_joined};
use crate::{ExpertLinear, FusedKind, Node, Op, Program};

/// What the body of [`FusedKind::GatedExperts`] is made of.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GatedExperts {
    /// Of the gate, and of what it gates.
    pub linears: [ExpertLinear; 2],
    /// The gate is by `silu`; otherwise by `gelu`.
    pub is_silu: bool,
}

impl GatedExperts {
    /// Reads a body; `None` where it is another one.
    pub fn of(body: &[Node]) -> Option<Self> {
        let is_silu = gate_by_silu(body)?;
        let [gate, up, _] = body else { return None };
        let (Op::ExpertLinear(first), Op::ExpertLinear(second)) = (&gate.op, &up.op) else { return None };
        (gate.inputs == up.inputs).then_some(Self { linears: [*first, *second], is_silu })
    }
}

pub(super) fn rewrite(program: Program) -> Program {
    gates_joined(program, FusedKind::GatedExperts, |body| GatedExperts::of(body).is_some())
}
