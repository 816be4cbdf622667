//! What the norms share: one vector over its root mean square, or over its length.

use super::Crew;
use crate::simd::{Kernel, Lanes};
use gannet_ops::numerics::LANES;

/// The dot product in the named order: element i goes to lane `i % 16`, and the lanes are folded.
#[inline(always)]
pub(super) fn dot<L: Lanes>(a: &[f32], b: &[f32]) -> f32 {
    let ((a, a_rest), (b, b_rest)) = (a.as_chunks::<LANES>(), b.as_chunks::<LANES>());
    let mut lanes = L::splat(0.0);
    for (a, b) in a.iter().zip(b) {
        lanes = L::load(a).mul_add(L::load(b), lanes);
    }
    if !a_rest.is_empty() {
        lanes = L::load_part(a_rest).mul_add(L::load_part(b_rest), lanes);
    }
    lanes.fold()
}

/// `sqrt(mean(x^2) + epsilon)`.
#[inline(always)]
pub(super) fn root_mean_square<L: Lanes>(x: &[f32], epsilon: f32) -> f32 {
    (dot::<L>(x, x) / x.len() as f32 + epsilon).sqrt()
}

/// Heads x `[n * dim]` over their root mean squares, times the weight `[dim]`.
pub(super) fn heads(crew: &mut Crew<'_>, x: &[f32], weight: &[f32], epsilon: f32, out: &mut [f32]) {
    let (isa, dim) = (crew.isa, weight.len());
    crew.light_rows(out, dim, |first, out| {
        isa.run(Heads { x: &x[first * dim..][..out.len()], weight, epsilon, out });
    });
}

struct Heads<'a> {
    x: &'a [f32],
    weight: &'a [f32],
    epsilon: f32,
    out: &'a mut [f32],
}

impl Kernel for Heads<'_> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self) {
        let dim = self.weight.len();
        for (out, x) in self.out.chunks_exact_mut(dim).zip(self.x.chunks_exact(dim)) {
            normalise::<L>(x, self.weight, self.epsilon, out);
        }
    }
}

/// One vector over its root mean square, times the weight.
#[inline(always)]
pub(super) fn normalise<L: Lanes>(x: &[f32], weight: &[f32], epsilon: f32, out: &mut [f32]) {
    let root = root_mean_square::<L>(x, epsilon);
    for ((out, x), weight) in out.iter_mut().zip(x).zip(weight) {
        *out = x / root * weight;
    }
}
