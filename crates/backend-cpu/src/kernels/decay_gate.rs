//! `decay_gate`: `decay * softplus(a + bias)`.

use super::Crew;
use crate::simd::{Kernel, Lanes};
use gannet_ops::math::softplus;

/// a `[tokens, heads]`, decay and bias `[heads]` -> out as a.
pub(crate) fn decay_gate(crew: &mut Crew<'_>, a: &[f32], decay: &[f32], bias: &[f32], out: &mut [f32]) {
    let (isa, heads) = (crew.isa, decay.len());
    crew.light_rows(out, heads, |first, out| {
        isa.run(Rows { a: &a[first * heads..][..out.len()], decay, bias, out });
    });
}

struct Rows<'a> {
    a: &'a [f32],
    decay: &'a [f32],
    bias: &'a [f32],
    out: &'a mut [f32],
}

impl Kernel for Rows<'_> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self) {
        let heads = self.decay.len();
        for (out, a) in self.out.chunks_exact_mut(heads).zip(self.a.chunks_exact(heads)) {
            for head in 0..heads {
                out[head] = self.decay[head] * softplus(a[head] + self.bias[head]);
            }
        }
    }
}
