//! `silu_gate`: `silu(gate) * up`.

use super::Crew;
use super::elementwise::{OfTwo, of_two};
use gannet_ops::math::silu;

#[derive(Clone, Copy)]
struct SiluGate;

impl OfTwo for SiluGate {
    #[inline(always)]
    fn of(self, gate: f32, up: f32) -> f32 {
        silu(gate) * up
    }
}

/// gate, up -> out, all of one shape.
pub(crate) fn silu_gate(crew: &mut Crew<'_>, gate: &[f32], up: &[f32], out: &mut [f32]) {
    of_two(crew, SiluGate, gate, up, out);
}
