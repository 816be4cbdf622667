//! `l2_norm`: `x / sqrt(sum(x^2) + epsilon) * scale` over each head.

use super::{Crew, norm};
use crate::simd::{Kernel, Lanes};

/// x `[n * dim]` -> out as x.
pub(crate) fn l2_norm(
    crew: &mut Crew<'_>,
    x: &[f32],
    dim: usize,
    (epsilon, scale): (f32, f32),
    out: &mut [f32],
) {
    let isa = crew.isa;
    crew.light_rows(out, dim, |first, out| {
        isa.run(Heads { x: &x[first * dim..][..out.len()], dim, epsilon, scale, out });
    });
}

struct Heads<'a> {
    x: &'a [f32],
    dim: usize,
    epsilon: f32,
    scale: f32,
    out: &'a mut [f32],
}

impl Kernel for Heads<'_> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self) {
        for (out, x) in self.out.chunks_exact_mut(self.dim).zip(self.x.chunks_exact(self.dim)) {
            let length = (norm::dot::<L>(x, x) + self.epsilon).sqrt();
            for (out, x) in out.iter_mut().zip(x) {
                *out = x / length * self.scale;
            }
        }
    }
}
