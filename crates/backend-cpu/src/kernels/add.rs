//! `add`: `a + b`.

use super::Crew;
use super::elementwise::{OfTwo, of_two};

#[derive(Clone, Copy)]
struct Add;

impl OfTwo for Add {
    #[inline(always)]
    fn of(self, a: f32, b: f32) -> f32 {
        a + b
    }
}

/// a, b -> out, all of one shape.
pub(crate) fn add(crew: &mut Crew<'_>, a: &[f32], b: &[f32], out: &mut [f32]) {
    of_two(crew, Add, a, b, out);
}
