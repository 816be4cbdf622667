//! `causal_conv`: a depthwise convolution over each sequence, then silu.
//!
//! ```text
//! y[t, c] = silu(sum_j weight[j, c] * x[t - (kernel - 1) + j, c])
//! ```
//!
//! Inputs before the sequence's rows come from its window `[kernel - 1, channels]`. Vectors run along the
//! channels.

use super::Crew;
use crate::simd::{Kernel, Lanes};
use gannet_ops::math::silu;
use std::ops::Range;

/// The rows of a sequence, and the inputs before them.
pub(crate) struct Window<'a> {
    pub(crate) rows: Range<usize>,
    /// `[kernel - 1, channels]`.
    pub(crate) before: &'a [f32],
}

/// x `[tokens, channels]`, weight `[kernel, channels]`, the window of each row's sequence -> out as x.
pub(crate) fn causal_conv<'a>(
    crew: &mut Crew<'_>,
    x: &[f32],
    weight: &[f32],
    channels: usize,
    window_of: &(dyn Fn(usize) -> Window<'a> + Sync),
    out: &mut [f32],
) {
    let isa = crew.isa;
    let past = weight.len() / channels - 1;
    crew.light_rows(out, channels, |first, out| {
        for (row, out) in out.chunks_exact_mut(channels).enumerate() {
            let row = first + row;
            let window = window_of(row);
            let input = |back: usize| match (row - window.rows.start).checked_sub(back) {
                Some(place) => &x[(window.rows.start + place) * channels..][..channels],
                None => &window.before[(past + row - window.rows.start - back) * channels..][..channels],
            };
            out.fill(0.0);
            for (tap, weight) in weight.chunks_exact(channels).enumerate() {
                isa.run(Tap { x: input(past - tap), weight, out });
            }
            isa.run(Activate { out });
        }
    });
}

/// Adds one input times its weight.
struct Tap<'a> {
    x: &'a [f32],
    weight: &'a [f32],
    out: &'a mut [f32],
}

impl Kernel for Tap<'_> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self) {
        for ((out, x), weight) in self.out.iter_mut().zip(self.x).zip(self.weight) {
            *out = x.mul_add(*weight, *out);
        }
    }
}

struct Activate<'a> {
    out: &'a mut [f32],
}

impl Kernel for Activate<'_> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self) {
        self.out.iter_mut().for_each(|x| *x = silu(*x));
    }
}
