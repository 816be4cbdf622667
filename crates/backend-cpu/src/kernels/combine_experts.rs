//! `combine_experts`: the weighted sum of a token's experts by ascending id, the shared expert last.

use super::Crew;
use crate::simd::{Kernel, Lanes};

/// y `[tokens * top_k, width]`, weights `[tokens * top_k]`, shared `[tokens, width]` -> out `[tokens,
/// width]`.
pub(crate) fn combine_experts(
    crew: &mut Crew<'_>,
    (y, width): (&[f32], usize),
    weights: &[f32],
    shared: Option<&[f32]>,
    out: &mut [f32],
) {
    let top_k = weights.len() / (out.len() / width).max(1);
    let isa = crew.isa;
    crew.light_rows(out, width, |first, out| {
        for (token, out) in out.chunks_exact_mut(width).enumerate() {
            let token = first + token;
            let (y, weights) =
                (&y[token * top_k * width..][..top_k * width], &weights[token * top_k..][..top_k]);
            let shared = shared.map(|shared| &shared[token * width..][..width]);
            isa.run(Token { y, weights, shared, out });
        }
    });
}

struct Token<'a> {
    y: &'a [f32],
    weights: &'a [f32],
    shared: Option<&'a [f32]>,
    out: &'a mut [f32],
}

impl Kernel for Token<'_> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self) {
        self.out.fill(0.0);
        for (y, weight) in self.y.chunks_exact(self.out.len()).zip(self.weights) {
            self.out.iter_mut().zip(y).for_each(|(out, y)| *out = weight.mul_add(*y, *out));
        }
        if let Some(shared) = self.shared {
            self.out.iter_mut().zip(shared).for_each(|(out, shared)| *out += shared);
        }
    }
}
