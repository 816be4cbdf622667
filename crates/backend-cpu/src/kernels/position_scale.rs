//! `position_scale`: `x * (1 + slope * ln(1 + floor(position / period)))`.

use super::Crew;
use crate::simd::{Kernel, Lanes};
use gannet_ops::math::ln;

/// The factor of a row at this position.
pub(crate) fn factor(slope: f32, period: u32, position: u32) -> f32 {
    slope.mul_add(ln((position / period) as f32 + 1.0), 1.0)
}

/// x `[tokens, width]`, a factor a token -> out as x.
pub(crate) fn position_scale(crew: &mut Crew<'_>, factors: &[f32], width: usize, x: &[f32], out: &mut [f32]) {
    let isa = crew.isa;
    crew.light_rows(out, width, |first, out| {
        let rows = out.len() / width;
        let (x, factors) = (&x[first * width..][..out.len()], &factors[first..][..rows]);
        isa.run(Rows { x, factors, width, out });
    });
}

struct Rows<'a> {
    x: &'a [f32],
    factors: &'a [f32],
    width: usize,
    out: &'a mut [f32],
}

impl Kernel for Rows<'_> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self) {
        let rows = self.x.chunks_exact(self.width).zip(self.out.chunks_exact_mut(self.width));
        for ((x, out), factor) in rows.zip(self.factors) {
            for (x, out) in x.iter().zip(out) {
                *out = factor * x;
            }
        }
    }
}
