//! Functions of one element, or of two in the same place, over whole values.

use super::{Crew, ELEMENTS_PER_PART};
use crate::simd::{Kernel, Lanes};

/// A function of two numbers. Implementations are `#[inline(always)]`.
pub(super) trait OfTwo: Copy + Sync {
    fn of(self, a: f32, b: f32) -> f32;
}

/// `out[i] = function(a[i], b[i])`.
pub(super) fn of_two(crew: &mut Crew<'_>, function: impl OfTwo, a: &[f32], b: &[f32], out: &mut [f32]) {
    let isa = crew.isa;
    crew.rows(out, 1, ELEMENTS_PER_PART, |first, out, _| {
        let (a, b) = (&a[first..][..out.len()], &b[first..][..out.len()]);
        isa.run(Each { function, a, b, out });
    });
}

struct Each<'a, F> {
    function: F,
    a: &'a [f32],
    b: &'a [f32],
    out: &'a mut [f32],
}

impl<F: OfTwo> Kernel for Each<'_, F> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self) {
        for ((out, a), b) in self.out.iter_mut().zip(self.a).zip(self.b) {
            *out = self.function.of(*a, *b);
        }
    }
}
