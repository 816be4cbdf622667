//! The passes over all scores of a row: all that a draw does a vocabulary's width of work for.
//!
//! A backend may run them with its own instructions and threads, by calling the functions here on parts of a row: they
//! are plain loops over sixteen lanes, always inlined, and what they compute depends on ids alone. So a draw is the
//! same token whoever makes the passes.

use crate::math::exp;
use crate::numerics::{self, LANES, VOCABULARY_PARTITION, fold};

/// Tokens that share one maximum: two words of a mask, four registers of sixteen lanes.
pub const GROUP: usize = 64;

/// Bits of a word of a mask.
const WORD: usize = u32::BITS as usize;

/// The exponent of infinities and of what is no number.
const EXPONENT: u32 = 0x7f80_0000;

/// The scores of a row, and which of its tokens may be drawn.
#[derive(Clone, Copy, Debug)]
pub struct MaskedRow<'a> {
    /// `[vocabulary]`.
    pub scores: &'a [f32],
    /// Bits of the tokens that may be drawn, lowest id first in each word; a word that is missing allows nothing. All
    /// may be drawn where absent.
    pub mask: Option<&'a [u32]>,
}

/// Who makes the passes.
pub trait Passes {
    /// As [`maxima`].
    fn maxima(&mut self, row: MaskedRow<'_>, maxima: &mut [f32]) -> bool;

    /// As [`exponentials`].
    fn exponentials(&mut self, row: MaskedRow<'_>, scale: Scale, sums: &mut [f32]);

    /// As [`masses`].
    fn masses(&mut self, row: MaskedRow<'_>, scale: Scale, sums: &mut [f64]);
}

/// What an exponential is taken of: `score / temperature - max`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scale {
    /// Above 0.
    pub temperature: f32,
    /// The largest of the divided scores.
    pub max: f32,
}

/// The passes as they are defined, on the caller.
#[derive(Clone, Copy, Debug, Default)]
pub struct PlainPasses;

impl Passes for PlainPasses {
    fn maxima(&mut self, row: MaskedRow<'_>, largest: &mut [f32]) -> bool {
        maxima(row, largest)
    }

    fn exponentials(&mut self, row: MaskedRow<'_>, scale: Scale, sums: &mut [f32]) {
        exponentials(row, scale, sums);
    }

    fn masses(&mut self, row: MaskedRow<'_>, scale: Scale, sums: &mut [f64]) {
        masses(row, scale, sums);
    }
}

impl<'a> MaskedRow<'a> {
    /// The part of the row from `first` on, a multiple of [`GROUP`], of at most `count` tokens.
    #[inline(always)]
    pub fn part(self, first: usize, count: usize) -> Self {
        let end = self.scores.len().min(first + count);
        let mask = self.mask.map(|words| &words[words.len().min(first / WORD)..]);
        Self { scores: &self.scores[first..end], mask }
    }

    /// Which of the sixteen tokens from `first` on, a multiple of sixteen, may be drawn.
    #[inline(always)]
    fn sixteen(self, first: usize) -> u32 {
        match self.mask {
            None => u32::MAX,
            Some(words) => words.get(first / WORD).copied().unwrap_or(0) >> (first % WORD),
        }
    }
}

/// For each [`GROUP`] of tokens the largest score of those that may be drawn, minus infinity where none may; returns
/// whether all scores of the row are finite numbers.
#[inline(always)]
pub fn maxima(row: MaskedRow<'_>, maxima: &mut [f32]) -> bool {
    let mut is_odd = 0;
    for (place, (group, largest)) in row.scores.chunks(GROUP).zip(maxima).enumerate() {
        let (sixteens, rest) = group.as_chunks::<LANES>();
        let mut lanes = [f32::NEG_INFINITY; LANES];
        let mut odd = [0u32; LANES];
        for (number, scores) in sixteens.iter().enumerate() {
            let allowed = row.sixteen(place * GROUP + number * LANES);
            for lane in 0..LANES {
                let score = if allowed >> lane & 1 == 1 { scores[lane] } else { f32::NEG_INFINITY };
                lanes[lane] = if score > lanes[lane] { score } else { lanes[lane] };
                odd[lane] |= u32::from(scores[lane].to_bits() & EXPONENT == EXPONENT);
            }
        }
        let allowed = row.sixteen(place * GROUP + sixteens.len() * LANES);
        for (lane, score) in rest.iter().enumerate() {
            let is_larger = allowed >> lane & 1 == 1 && *score > lanes[lane];
            lanes[lane] = if is_larger { *score } else { lanes[lane] };
            odd[lane] |= u32::from(score.to_bits() & EXPONENT == EXPONENT);
        }
        *largest = numerics::largest(lanes);
        is_odd |= odd.iter().fold(0, |any, odd| any | odd);
    }
    is_odd == 0
}

/// For each [`VOCABULARY_PARTITION`] the sum of the exponentials of the tokens that may be drawn, in the named order.
#[inline(always)]
pub fn exponentials(row: MaskedRow<'_>, scale: Scale, sums: &mut [f32]) {
    let Scale { temperature, max } = scale;
    for (place, (part, sum)) in row.scores.chunks(VOCABULARY_PARTITION).zip(sums).enumerate() {
        let (sixteens, rest) = part.as_chunks::<LANES>();
        let mut lanes = [0.0f32; LANES];
        for (number, scores) in sixteens.iter().enumerate() {
            let allowed = row.sixteen(place * VOCABULARY_PARTITION + number * LANES);
            for lane in 0..LANES {
                let added = exp(scores[lane] / temperature - max);
                lanes[lane] += if allowed >> lane & 1 == 1 { added } else { 0.0 };
            }
        }
        let allowed = row.sixteen(place * VOCABULARY_PARTITION + sixteens.len() * LANES);
        for (lane, score) in rest.iter().enumerate() {
            let added = exp(*score / temperature - max);
            lanes[lane] += if allowed >> lane & 1 == 1 { added } else { 0.0 };
        }
        *sum = fold(lanes);
    }
}

/// An exponential of at most 1 as a whole number of 2^-32, ties to even. A million of them add up to less than 2^53 such
/// units, so that their sums are exact, and the same in any order.
#[inline(always)]
pub fn mass(exponential: f32) -> f64 {
    // Numbers from 2^20 on are multiples of 2^-32.
    const ROUNDER: f64 = (1u32 << 20) as f64;
    (f64::from(exponential) + ROUNDER) - ROUNDER
}

/// For each [`VOCABULARY_PARTITION`] the mass of the tokens that may be drawn.
#[inline(always)]
pub fn masses(row: MaskedRow<'_>, scale: Scale, sums: &mut [f64]) {
    let Scale { temperature, max } = scale;
    for (place, (part, sum)) in row.scores.chunks(VOCABULARY_PARTITION).zip(sums).enumerate() {
        let (sixteens, rest) = part.as_chunks::<LANES>();
        let mut lanes = [0.0f64; LANES];
        for (number, scores) in sixteens.iter().enumerate() {
            let allowed = row.sixteen(place * VOCABULARY_PARTITION + number * LANES);
            for lane in 0..LANES {
                let added = mass(exp(scores[lane] / temperature - max));
                lanes[lane] += if allowed >> lane & 1 == 1 { added } else { 0.0 };
            }
        }
        let allowed = row.sixteen(place * VOCABULARY_PARTITION + sixteens.len() * LANES);
        for (lane, score) in rest.iter().enumerate() {
            let added = mass(exp(score / temperature - max));
            lanes[lane] += if allowed >> lane & 1 == 1 { added } else { 0.0 };
        }
        *sum = lanes.iter().sum();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scores(count: usize) -> Vec<f32> {
        (0..count).map(|id| ((id * 7919 % 10_007) as f32 * 0.37).sin() * 9.0).collect()
    }

    fn check(count: usize, mask: Option<&[u32]>) {
        let scores = scores(count);
        let is_allowed =
            |id: usize| mask.is_none_or(|words| words.get(id / 32).is_some_and(|w| w >> (id % 32) & 1 == 1));
        let row = MaskedRow { scores: &scores, mask };
        let mut found = vec![0.0; count.div_ceil(GROUP)];
        assert!(maxima(row, &mut found));
        for (group, found) in found.iter().enumerate() {
            let ids = group * GROUP..count.min(group * GROUP + GROUP);
            let expected =
                ids.filter(|id| is_allowed(*id)).map(|id| scores[id]).fold(f32::NEG_INFINITY, f32::max);
            assert_eq!(*found, expected, "group {group} of {count} tokens");
        }
        let mut sums = vec![0.0; count.div_ceil(VOCABULARY_PARTITION)];
        exponentials(row, Scale { temperature: 0.7, max: 9.0 / 0.7 }, &mut sums);
        let exact: f64 = (0..count)
            .filter(|id| is_allowed(*id))
            .map(|id| (f64::from(scores[id]) / 0.7 - 9.0 / 0.7).exp())
            .sum();
        let found: f64 = sums.iter().map(|sum| f64::from(*sum)).sum();
        assert!((found - exact).abs() <= 1e-5 * exact.max(1e-3), "{count} tokens: {found}, expected {exact}");
        let mut sums = vec![0.0; count.div_ceil(VOCABULARY_PARTITION)];
        masses(row, Scale { temperature: 0.7, max: 9.0 / 0.7 }, &mut sums);
        let found: f64 = sums.iter().sum();
        assert!((found - exact).abs() <= 1e-5 * exact.max(1e-3), "{count} tokens: {found}, expected {exact}");
        let each = |id: &usize| mass(exp(scores[*id] / 0.7 - 9.0 / 0.7));
        let backwards: f64 = (0..count).rev().filter(|id| is_allowed(*id)).map(|id| each(&id)).sum();
        assert_eq!(found, backwards, "{count} tokens in the opposite order");
    }

    #[test]
    fn passes_cover_any_number_of_tokens_and_any_mask() {
        for count in [1, 15, 16, 63, 64, 65, 4095, 4096, 4097, 10_000] {
            let words: Vec<u32> =
                (0..(count as u32).div_ceil(32)).map(|n| n.wrapping_mul(0x9e37_79b9)).collect();
            check(count, None);
            check(count, Some(&words));
            check(count, Some(&words[..words.len() / 2]));
        }
    }

    #[test]
    fn a_score_that_is_not_finite_is_seen_wherever_it_is() {
        for (at, bad) in [(0, f32::NAN), (63, f32::INFINITY), (64, f32::NEG_INFINITY), (129, -f32::NAN)] {
            let mut scores = scores(130);
            scores[at] = bad;
            let nothing: &[u32] = &[];
            for mask in [None, Some(nothing)] {
                assert!(!maxima(MaskedRow { scores: &scores, mask }, &mut [0.0; 3]), "{bad} at {at}");
            }
        }
    }
}
