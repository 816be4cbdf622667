//! `soft_cap`: `cap * tanh(x / cap)`.

use super::Crew;
use super::elementwise::{OfTwo, of_two};
use gannet_ops::math::tanh;

#[derive(Clone, Copy)]
struct SoftCap {
    cap: f32,
}

impl OfTwo for SoftCap {
    #[inline(always)]
    fn of(self, x: f32, _: f32) -> f32 {
        soft_capped(self.cap, x)
    }
}

/// x -> out, of one shape.
pub(crate) fn soft_cap(crew: &mut Crew<'_>, cap: f32, x: &[f32], out: &mut [f32]) {
    of_two(crew, SoftCap { cap }, x, x, out);
}

/// One number.
#[inline(always)]
pub(super) fn soft_capped(cap: f32, x: f32) -> f32 {
    cap * tanh(x / cap)
}
