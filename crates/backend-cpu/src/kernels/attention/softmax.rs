//! The running softmax of some queries: a block into its split, a split into the total, and the sink.
//!
//! Queries take each step side by side, so that none waits for its own largest score and exponentials alone.

use super::super::soft_cap::soft_capped;
use crate::simd::Lanes;
use gannet_ops::Attention;
use gannet_ops::math::exp_nonpositive;
use gannet_ops::numerics::{KEY_BLOCK, LANES};
use std::ops::Range;

/// Floats that the sums of a query take.
pub(super) const SUMS: usize = 2;

/// The largest score so far of each query, then of each the sum of `exp(score - largest)`.
pub(super) struct Sums<'a>(&'a mut [f32]);

impl<'a> Sums<'a> {
    /// Those that lie in these floats, [`SUMS`] for each query.
    #[inline(always)]
    pub(super) fn new(floats: &'a mut [f32]) -> Self {
        Self(floats)
    }

    #[inline(always)]
    pub(super) fn floats(&self) -> &[f32] {
        self.0
    }

    #[inline(always)]
    pub(super) fn queries(&self) -> usize {
        self.0.len() / SUMS
    }

    #[inline(always)]
    fn parts(&mut self) -> (&mut [f32], &mut [f32]) {
        self.0.split_at_mut(self.0.len() / SUMS)
    }

    /// Makes them those of no key.
    #[inline(always)]
    pub(super) fn clear(&mut self) {
        let (largest, weights) = self.parts();
        largest.fill(f32::NEG_INFINITY);
        weights.fill(0.0);
    }

    /// Makes products of the queries with a block scores and then weights, at the places that `at` gives for each query, and
    /// adds them. Tells `keep` by what a query's values of the blocks before are to be multiplied.
    ///
    /// Places that a query doesn't see get no weight, so every block is summed over the same 64 places. A query that sees
    /// none stays as it is.
    #[inline(always)]
    pub(super) fn add_block<L: Lanes>(
        &mut self,
        op: &Attention,
        block: &mut [[f32; KEY_BLOCK]],
        at: impl Fn(usize) -> Range<usize>,
        mut keep: impl FnMut(usize, f32),
    ) {
        let (largest, weights) = self.parts();
        let sums = largest.chunks_mut(LANES).zip(weights.chunks_mut(LANES));
        for (number, (block, (largest, weights))) in block.chunks_mut(LANES).zip(sums).enumerate() {
            let first = number * LANES;
            let mut sees = [false; LANES];
            let mut kept = [0.0; LANES];
            let queries = block.iter_mut().zip(&mut *largest).zip(sees.iter_mut().zip(&mut kept));
            for (query, ((products, largest), (sees, kept))) in queries.enumerate() {
                let at = at(first + query);
                *sees = !at.is_empty();
                if *sees {
                    let found = larger(score::<L>(op, products, at), *largest);
                    *kept = *largest - found;
                    *largest = found;
                }
            }
            exponentials(&mut kept);
            let sums = largest.iter().zip(weights);
            let queries = block.iter_mut().zip(sums).zip(sees.iter().zip(kept));
            for (query, ((scores, (largest, weight)), (sees, kept))) in queries.enumerate() {
                if *sees {
                    *weight = weight.mul_add(kept, weigh::<L>(scores, *largest));
                    keep(first + query, kept);
                }
            }
        }
    }

    /// Adds the sums of a split, for the queries that saw any of its keys. Tells `keep` by what a query's total and its values
    /// of the split are to be multiplied.
    #[inline(always)]
    pub(super) fn fold(&mut self, split: &[f32], mut keep: impl FnMut(usize, [f32; 2])) {
        let (largest, weights) = self.parts();
        let (split_largest, split_weights) = split.split_at(largest.len());
        let totals = largest.chunks_mut(LANES).zip(weights.chunks_mut(LANES));
        let splits = split_largest.chunks(LANES).zip(split_weights.chunks(LANES));
        for (number, ((largest, weights), (split_largest, split_weights))) in totals.zip(splits).enumerate() {
            let (mut kept, mut added) = ([0.0; LANES], [0.0; LANES]);
            for (((total, split), kept), added) in
                largest.iter_mut().zip(split_largest).zip(&mut kept).zip(&mut added)
            {
                let found = larger(*split, *total);
                (*kept, *added) = (*total - found, *split - found);
                *total = found;
            }
            exponentials(&mut kept);
            exponentials(&mut added);
            let splits = split_largest.iter().zip(split_weights);
            for (query, (((weight, split), kept), added)) in
                weights.iter_mut().zip(splits).zip(kept).zip(added).enumerate()
            {
                let (largest, split) = split;
                // Of no key. A key's score that is no number makes the weight none either.
                if *split == 0.0 && *largest == f32::NEG_INFINITY {
                    continue;
                }
                *weight = split.mul_add(added, *weight * kept);
                keep(number * LANES + query, [kept, added]);
            }
        }
    }

    /// The weight of all keys and of the sink of a query, and by what its values are to be multiplied first.
    #[inline(always)]
    pub(super) fn total(&self, query: usize, sink: Option<f32>) -> (f32, f32) {
        let (largest, weight) = (self.0[query], self.0[self.queries() + query]);
        let Some(sink) = sink else { return (1.0, weight) };
        let with_sink = larger(sink, largest);
        let kept = exp_nonpositive(largest - with_sink);
        (kept, weight.mul_add(kept, exp_nonpositive(sink - with_sink)))
    }
}

/// Makes the products of a query with a block its scores, of no weight at other places than `at`, and finds the largest. Beside
/// one that is no number it may be any: that one's weight is none.
#[inline(always)]
fn score<L: Lanes>(op: &Attention, block: &mut [f32; KEY_BLOCK], at: Range<usize>) -> f32 {
    // All places, seen or not: loops of one length.
    let scale = L::splat(op.scale);
    for sixteen in block.as_chunks_mut::<LANES>().0 {
        L::load(sixteen).mul(scale).store(sixteen);
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
    let mut lanes = L::splat(f32::NEG_INFINITY);
    for sixteen in block.as_chunks::<LANES>().0 {
        lanes = L::load(sixteen).larger(lanes);
    }
    lanes.largest()
}

/// Makes scores weights. Returns their sum.
#[inline(always)]
fn weigh<L: Lanes>(block: &mut [f32; KEY_BLOCK], largest: f32) -> f32 {
    let mut lanes = L::splat(0.0);
    for sixteen in block.as_chunks_mut::<LANES>().0 {
        for score in &mut *sixteen {
            *score = exp_nonpositive(*score - largest);
        }
        lanes = lanes.add(L::load(sixteen));
    }
    lanes.fold()
}

#[inline(always)]
fn exponentials(lanes: &mut [f32; LANES]) {
    for x in lanes {
        *x = exp_nonpositive(*x);
    }
}

/// The first where it is larger, else the second, which is a number.
#[inline(always)]
fn larger(x: f32, other: f32) -> f32 {
    if x > other { x } else { other }
}
