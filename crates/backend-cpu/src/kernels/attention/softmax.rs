//! The running softmax of one head: a block into its split, a split into the total, and the sink.

use super::super::soft_cap::soft_capped;
use bytemuck::{Pod, Zeroable};
use gannet_ops::Attention;
use gannet_ops::math::exp_nonpositive;
use gannet_ops::numerics::{self, KEY_BLOCK, LANES, fold};
use std::ops::Range;

/// The largest score so far, and the sum of `exp(score - largest)`.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub(super) struct Sums {
    largest: f32,
    weight: f32,
}

impl Sums {
    /// Of no key.
    pub(super) const NONE: Sums = Sums { largest: f32::NEG_INFINITY, weight: 0.0 };

    /// Whether no key was added. A key's score that is no number makes the weight none either.
    #[inline(always)]
    pub(super) fn is_none(&self) -> bool {
        self.weight == 0.0 && self.largest == f32::NEG_INFINITY
    }
}

/// Makes the products at `at` of a block scores and then weights, and adds them to the sums of the split.
/// Returns by what the values of the blocks before are to be multiplied.
///
/// Places that the row doesn't see get no weight, so every block is summed over the same 64 places.
#[inline(always)]
pub(super) fn start_block(
    op: &Attention,
    block: &mut [f32; KEY_BLOCK],
    at: Range<usize>,
    sums: &mut Sums,
) -> f32 {
    // All places, seen or not: loops of one length.
    for score in &mut *block {
        *score *= op.scale;
    }
    if let Some(cap) = op.soft_cap {
        for score in &mut *block {
            *score = soft_capped(cap, *score);
        }
    }
    if at != (0..KEY_BLOCK) {
        block[..at.start].fill(f32::NEG_INFINITY);
        block[at.end..].fill(f32::NEG_INFINITY);
    }
    let sixteens = block.as_chunks_mut::<LANES>().0;
    let largest = sums.largest.max(largest(sixteens));
    let mut lanes = [0.0; LANES];
    for sixteen in sixteens {
        for (score, lane) in sixteen.iter_mut().zip(&mut lanes) {
            *score = exp_nonpositive(*score - largest);
            *lane += *score;
        }
    }
    let kept = exp_nonpositive(sums.largest - largest);
    *sums = Sums { largest, weight: sums.weight.mul_add(kept, fold(lanes)) };
    kept
}

/// The largest score. Beside one that is no number it may be any: that one's weight is none.
#[inline(always)]
fn largest(sixteens: &[[f32; LANES]]) -> f32 {
    let mut lanes = [f32::NEG_INFINITY; LANES];
    for sixteen in sixteens {
        for (lane, score) in lanes.iter_mut().zip(sixteen) {
            *lane = if *score > *lane { *score } else { *lane };
        }
    }
    numerics::largest(lanes)
}

/// Adds the sums of a split to the total's. Returns by what the values of the total and those of the split
/// are to be multiplied.
#[inline(always)]
pub(super) fn fold_split(total: &mut Sums, split: Sums) -> [f32; 2] {
    let largest = total.largest.max(split.largest);
    let (kept, added) = (exp_nonpositive(total.largest - largest), exp_nonpositive(split.largest - largest));
    *total = Sums { largest, weight: split.weight.mul_add(added, total.weight * kept) };
    [kept, added]
}

/// The weight of all keys and of the sink, and by what the values of the total are to be multiplied first.
#[inline(always)]
pub(super) fn total_weight(total: Sums, sink: Option<f32>) -> (f32, f32) {
    let Some(sink) = sink else { return (1.0, total.weight) };
    let largest = total.largest.max(sink);
    let kept = exp_nonpositive(total.largest - largest);
    (kept, total.weight.mul_add(kept, exp_nonpositive(sink - largest)))
}
