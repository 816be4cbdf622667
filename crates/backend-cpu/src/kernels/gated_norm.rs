//! `gated_norm`: `head_norm(x) * silu(z)`.

use super::{Crew, norm};
use crate::simd::{Kernel, Lanes};
use gannet_ops::math::silu;

/// x, z `[rows, heads * dim]`, weight `[dim]` -> out as x.
pub(crate) fn gated_norm(
    crew: &mut Crew<'_>,
    [x, z]: [&[f32]; 2],
    weight: &[f32],
    epsilon: f32,
    out: &mut [f32],
) {
    let (isa, dim) = (crew.isa, weight.len());
    crew.light_rows(out, dim, |first, out| {
        let part = first * dim..first * dim + out.len();
        isa.run(Heads { x: &x[part.clone()], z: &z[part], weight, epsilon, out });
    });
}

struct Heads<'a> {
    x: &'a [f32],
    z: &'a [f32],
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
            norm::normalise::<L>(x, self.weight, self.epsilon, out);
        }
        for (out, z) in self.out.iter_mut().zip(self.z) {
            *out *= silu(*z);
        }
    }
}
