//! `sigmoid_gate`: `x * sigmoid(gate)`, with a gate an element or one a row.

use super::Crew;
use super::elementwise::{OfTwo, of_two};
use crate::simd::{Kernel, Lanes};
use gannet_ops::math::sigmoid;

#[derive(Clone, Copy)]
struct SigmoidGate;

impl OfTwo for SigmoidGate {
    #[inline(always)]
    fn of(self, x: f32, gate: f32) -> f32 {
        x * sigmoid(gate)
    }
}

/// x `[rows, width]`, gate of the same shape or `[rows, 1]` -> out as x.
pub(crate) fn sigmoid_gate(crew: &mut Crew<'_>, width: usize, x: &[f32], gate: &[f32], out: &mut [f32]) {
    if gate.len() == x.len() {
        return of_two(crew, SigmoidGate, x, gate, out);
    }
    let isa = crew.isa;
    crew.light_rows(out, width, |first, out| {
        for (row, out) in out.chunks_exact_mut(width).enumerate() {
            isa.run(Row { x: &x[(first + row) * width..][..width], gate: gate[first + row], out });
        }
    });
}

struct Row<'a> {
    x: &'a [f32],
    gate: f32,
    out: &'a mut [f32],
}

impl Kernel for Row<'_> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self) {
        let factor = sigmoid(self.gate);
        for (out, x) in self.out.iter_mut().zip(self.x) {
            *out = x * factor;
        }
    }
}
