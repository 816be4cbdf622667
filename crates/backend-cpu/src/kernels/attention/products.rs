//! The two products of attention on a strip of keys: queries with keys, and weights with values.

use super::super::pages::{Elements, Strip};
use crate::simd::{Lanes, folds};
use gannet_ops::numerics::{KEY_BLOCK, LANES};
use std::ops::Range;

/// Values side by side: the sixteens of a head that one pass over the keys sums.
const SIXTEENS: usize = 4;
/// Keys side by side where there aren't registers for sixteen sums.
const FEW_KEYS: usize = 4;

/// An element of keys and values.
trait Element: Copy {
    fn load<L: Lanes>(from: &[Self; LANES]) -> L;
    fn load_part<L: Lanes>(from: &[Self]) -> L;
}

impl Element for f32 {
    #[inline(always)]
    fn load<L: Lanes>(from: &[f32; LANES]) -> L {
        L::load(from)
    }

    #[inline(always)]
    fn load_part<L: Lanes>(from: &[f32]) -> L {
        L::load_part(from)
    }
}

impl Element for u16 {
    #[inline(always)]
    fn load<L: Lanes>(from: &[u16; LANES]) -> L {
        L::load_f16(from)
    }

    #[inline(always)]
    fn load_part<L: Lanes>(from: &[u16]) -> L {
        let mut halves = [0; LANES];
        halves[..from.len()].copy_from_slice(from);
        L::load_f16(&halves)
    }
}

/// `q . k` of each head with each key of the strip, to places `at` of the head's block.
///
/// q is `[heads, padded dim]`, zero beyond `dim`.
#[inline(always)]
pub(super) fn scores<L: Lanes>(
    keys: &Strip<'_>,
    dim: usize,
    q: &[f32],
    blocks: &mut [[f32; KEY_BLOCK]],
    at: Range<usize>,
) {
    for (q, block) in q.chunks_exact(dim.next_multiple_of(LANES)).zip(blocks) {
        match keys.elements {
            Elements::F32(elements) => {
                head_scores::<L, f32>(elements, keys.stride, dim, q, &mut block[at.clone()])
            }
            Elements::F16(elements) => {
                head_scores::<L, u16>(elements, keys.stride, dim, q, &mut block[at.clone()])
            }
        }
    }
}

#[inline(always)]
fn head_scores<L: Lanes, T: Element>(keys: &[T], stride: usize, dim: usize, q: &[f32], out: &mut [f32]) {
    let q = q.as_chunks::<LANES>().0;
    let mut done = 0;
    if L::HOLDS_SIXTEEN {
        for out in out.as_chunks_mut::<LANES>().0 {
            L::fold_each(dots::<L, T, LANES>(keys, stride, dim, q, done)).store(out);
            done += LANES;
        }
    } else {
        for out in out.as_chunks_mut::<FEW_KEYS>().0 {
            *out = folds(dots::<L, T, FEW_KEYS>(keys, stride, dim, q, done));
            done += FEW_KEYS;
        }
    }
    for (key, out) in out.iter_mut().enumerate().skip(done) {
        [*out] = folds(dots::<L, T, 1>(keys, stride, dim, q, key));
    }
}

/// The products of one query with `KEYS` keys from `first` on, not folded yet.
#[inline(always)]
fn dots<L: Lanes, T: Element, const KEYS: usize>(
    keys: &[T],
    stride: usize,
    dim: usize,
    q: &[[f32; LANES]],
    first: usize,
) -> [L; KEYS] {
    let keys: [&[T]; KEYS] = std::array::from_fn(|key| &keys[(first + key) * stride..][..dim]);
    let whole = keys.map(|key| &key.as_chunks::<LANES>().0[..dim / LANES]);
    let mut sums = [L::splat(0.0); KEYS];
    for step in 0..dim / LANES {
        let q = L::load(&q[step]);
        for (sum, key) in sums.iter_mut().zip(whole) {
            *sum = T::load::<L>(&key[step]).mul_add(q, *sum);
        }
    }
    if !dim.is_multiple_of(LANES) {
        let q = L::load(&q[dim / LANES]);
        for (sum, key) in sums.iter_mut().zip(keys) {
            *sum = T::load_part::<L>(key.as_chunks::<LANES>().1).mul_add(q, *sum);
        }
    }
    sums
}

/// Adds `weight * value` of each value of the strip to the head's sum `[padded dim]`, by ascending key.
#[inline(always)]
pub(super) fn add_values<L: Lanes>(values: &Strip<'_>, dim: usize, weights: &[f32], sum: &mut [f32]) {
    match values.elements {
        Elements::F32(elements) => head_values::<L, f32>(elements, values.stride, dim, weights, sum),
        Elements::F16(elements) => head_values::<L, u16>(elements, values.stride, dim, weights, sum),
    }
}

#[inline(always)]
fn head_values<L: Lanes, T: Element>(
    values: &[T],
    stride: usize,
    dim: usize,
    weights: &[f32],
    sum: &mut [f32],
) {
    let sixteens = &mut sum.as_chunks_mut::<LANES>().0[..dim.div_ceil(LANES)];
    let (whole, rest) = sixteens.split_at_mut(dim / LANES);
    let (groups, singles) = whole.as_chunks_mut::<SIXTEENS>();
    let singles_start = groups.len() * SIXTEENS;
    for (group, sums) in groups.iter_mut().enumerate() {
        columns::<L, T, SIXTEENS>(values, stride, weights, group * SIXTEENS * LANES, sums);
    }
    for (place, sum) in singles.iter_mut().enumerate() {
        columns::<L, T, 1>(
            values,
            stride,
            weights,
            (singles_start + place) * LANES,
            std::array::from_mut(sum),
        );
    }
    if let [sum] = rest {
        let start = dim / LANES * LANES;
        let mut lanes = L::load(sum);
        for (key, weight) in weights.iter().enumerate() {
            let value = T::load_part::<L>(&values[key * stride + start..][..dim - start]);
            lanes = value.mul_add(L::splat(*weight), lanes);
        }
        lanes.store(sum);
    }
}

/// `COUNT` sixteens of the values from column `start` on.
#[inline(always)]
fn columns<L: Lanes, T: Element, const COUNT: usize>(
    values: &[T],
    stride: usize,
    weights: &[f32],
    start: usize,
    sums: &mut [[f32; LANES]; COUNT],
) {
    let mut lanes = [L::splat(0.0); COUNT];
    for (lanes, sum) in lanes.iter_mut().zip(&*sums) {
        *lanes = L::load(sum);
    }
    for (key, weight) in weights.iter().enumerate() {
        let value = values[key * stride + start..][..COUNT * LANES].as_chunks::<LANES>().0;
        let weight = L::splat(*weight);
        for (lanes, value) in lanes.iter_mut().zip(value) {
            *lanes = T::load::<L>(value).mul_add(weight, *lanes);
        }
    }
    for (sum, lanes) in sums.iter_mut().zip(lanes) {
        lanes.store(sum);
    }
}
