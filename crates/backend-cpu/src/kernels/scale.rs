//! `scale`: `factor * x`.

use super::Crew;
use super::elementwise::{OfTwo, of_two};

#[derive(Clone, Copy)]
struct Scale {
    factor: f32,
}

impl OfTwo for Scale {
    #[inline(always)]
    fn of(self, x: f32, _: f32) -> f32 {
        self.factor * x
    }
}

/// x -> out, of one shape.
pub(crate) fn scale(crew: &mut Crew<'_>, factor: f32, x: &[f32], out: &mut [f32]) {
    of_two(crew, Scale { factor }, x, x, out);
}
