//! `gelu_gate`: `gelu_tanh(gate) * up`.

use super::Crew;
use super::elementwise::{OfTwo, of_two};
use gannet_ops::math::gelu_tanh;

#[derive(Clone, Copy)]
struct GeluGate;

impl OfTwo for GeluGate {
    #[inline(always)]
    fn of(self, gate: f32, up: f32) -> f32 {
        gelu_tanh(gate) * up
    }
}

/// gate, up -> out, all of one shape.
pub(crate) fn gelu_gate(crew: &mut Crew<'_>, gate: &[f32], up: &[f32], out: &mut [f32]) {
    of_two(crew, GeluGate, gate, up, out);
}
