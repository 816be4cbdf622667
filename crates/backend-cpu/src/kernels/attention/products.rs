//! The two products of attention on a block of keys: queries with keys, and weights with values.
//!
//! Neither folds lanes: a lane is a key in the first, which goes on by channel, and a column in the second,
//! which goes on by key. Some queries go side by side, so that each load of a key or value serves them all.

use super::super::pages::Elements;
use super::ahead::Ahead;
use super::tiles::Tile;
use crate::simd::{Bf16, Code, Element, F16, Lanes};
use gannet_ops::numerics::{KEY_BLOCK, LANES};
use std::ops::Range;

/// Queries side by side at most.
const QUERIES: usize = 6;
/// Sixteens side by side where the registers hold so many sums.
const SIXTEENS: usize = 4;

/// `q . k` of each query `[queries, dim]` with the keys at `at` of the block, and with some beside them.
#[inline(always)]
pub(super) fn scores<L: Lanes>(
    (keys, ahead): (&Tile<'_>, Ahead),
    (dim, at): (usize, Range<usize>),
    (q, scaled_q): (&[f32], &mut [f32]),
    out: &mut [[f32; KEY_BLOCK]],
) {
    let sixteens = at.start / LANES..at.end.div_ceil(LANES);
    let q = match keys.scales {
        None => q,
        Some(scales) => {
            scale_channels::<L>(q, scales, scaled_q);
            &*scaled_q
        }
    };
    match keys.elements {
        Elements::F32(keys) => dots::<L, f32>((keys.as_chunks().0, ahead), (dim, sixteens), q, out),
        Elements::F16(keys) => dots::<L, F16>((keys.as_chunks().0, ahead), (dim, sixteens), q, out),
        Elements::Bf16(keys) => dots::<L, Bf16>((keys.as_chunks().0, ahead), (dim, sixteens), q, out),
        Elements::Int8(keys) => dots::<L, Code>((keys.codes.as_chunks().0, ahead), (dim, sixteens), q, out),
    }
}

/// Each query times the scales of the keys' channels.
#[inline(always)]
fn scale_channels<L: Lanes>(q: &[f32], scales: &[u16], out: &mut [f32]) {
    let (sixteens, rest) = scales.as_chunks::<LANES>();
    let dim = scales.len();
    for (out, q) in out.chunks_exact_mut(dim).zip(q.chunks_exact(dim)) {
        let ((out, out_rest), (q, q_rest)) = (out.as_chunks_mut::<LANES>(), q.as_chunks::<LANES>());
        for ((out, q), scales) in out.iter_mut().zip(q).zip(sixteens) {
            L::load(q).mul(L::load_f16(scales)).store(out);
        }
        for ((out, q), scale) in out_rest.iter_mut().zip(q_rest).zip(rest) {
            *out = q * L::half(*scale);
        }
    }
}

/// The weights of a block's keys times the scales of their values, where they have any; those of keys that a row
/// doesn't see stay unread.
#[inline(always)]
pub(super) fn scale_weights<L: Lanes>(values: &Tile<'_>, weights: &mut [[f32; KEY_BLOCK]]) {
    let Some(scales) = values.scales else { return };
    for weights in weights {
        let sixteens = weights.as_chunks_mut::<LANES>().0.iter_mut();
        for (weights, scales) in sixteens.zip(scales.as_chunks::<LANES>().0) {
            L::load(weights).mul(L::load_f16(scales)).store(weights);
        }
    }
}

#[inline(always)]
fn dots<L: Lanes, T: Element>(
    (keys, ahead): (&[[T::Bits; KEY_BLOCK]], Ahead),
    (dim, sixteens): (usize, Range<usize>),
    q: &[f32],
    out: &mut [[f32; KEY_BLOCK]],
) {
    for (pass, queries) in side_by_side(out.len()) {
        let keys = (keys, ahead.of_pass(pass, out.len().div_ceil(QUERIES)));
        let (q, out) = (&q[queries.start * dim..queries.end * dim], &mut out[queries]);
        let at = (dim, sixteens.clone());
        match out.len() {
            1 => dots_of::<L, T, 1>(keys, at, q, out),
            2 => dots_of::<L, T, 2>(keys, at, q, out),
            3 => dots_of::<L, T, 3>(keys, at, q, out),
            4 => dots_of::<L, T, 4>(keys, at, q, out),
            5 => dots_of::<L, T, 5>(keys, at, q, out),
            _ => dots_of::<L, T, QUERIES>(keys, at, q, out),
        }
    }
}

/// Queries in as few passes as hold them, about as many in each, with the number of each pass.
#[inline(always)]
fn side_by_side(queries: usize) -> impl Iterator<Item = (usize, Range<usize>)> {
    let passes = queries.div_ceil(QUERIES);
    let start = move |pass: usize| pass * queries / passes;
    (0..passes).map(move |pass| (pass, start(pass)..start(pass + 1)))
}

#[inline(always)]
fn dots_of<L: Lanes, T: Element, const COUNT: usize>(
    (keys, ahead): (&[[T::Bits; KEY_BLOCK]], Ahead),
    (dim, sixteens): (usize, Range<usize>),
    q: &[f32],
    out: &mut [[f32; KEY_BLOCK]],
) {
    let out = out.first_chunk_mut::<COUNT>().expect("as many as the caller counted");
    if L::HOLDS_SIXTEEN && sixteens.len() == SIXTEENS {
        dots_with::<L, T, COUNT, SIXTEENS>((keys, ahead), dim, q, out, 0);
    } else {
        for (pass, sixteen) in sixteens.clone().enumerate() {
            let keys = (keys, ahead.of_pass(pass, sixteens.len()));
            dots_with::<L, T, COUNT, 1>(keys, dim, q, out, sixteen);
        }
    }
}

/// The products of some queries with `WIDTH` sixteens of keys, by ascending channel.
#[inline(always)]
fn dots_with<L: Lanes, T: Element, const COUNT: usize, const WIDTH: usize>(
    (keys, ahead): (&[[T::Bits; KEY_BLOCK]], Ahead),
    dim: usize,
    q: &[f32],
    out: &mut [[f32; KEY_BLOCK]; COUNT],
    first: usize,
) {
    let q: [&[f32]; COUNT] = std::array::from_fn(|query| &q[query * dim..][..dim]);
    let mut sums = [[L::splat(0.0); WIDTH]; COUNT];
    let mut asking = ahead.begin(dim);
    for (channel, keys) in keys[..dim].iter().enumerate() {
        asking.step();
        let keys = &keys.as_chunks::<LANES>().0[first..first + WIDTH];
        let mut loaded = [L::splat(0.0); WIDTH];
        for (loaded, keys) in loaded.iter_mut().zip(keys) {
            *loaded = T::load::<L>(keys);
        }
        for (sums, q) in sums.iter_mut().zip(q) {
            let q = L::splat(q[channel]);
            for (sum, key) in sums.iter_mut().zip(loaded) {
                *sum = key.mul_add(q, *sum);
            }
        }
    }
    for (out, sums) in out.iter_mut().zip(sums) {
        let out = &mut out.as_chunks_mut::<LANES>().0[first..first + WIDTH];
        for (out, sum) in out.iter_mut().zip(sums) {
            sum.store(out);
        }
    }
}

/// Adds `weight * value` of each value at `at` of the block to each query's sum `[queries, width]`, by
/// ascending key.
#[inline(always)]
pub(super) fn add_values<L: Lanes>(
    (values, ahead): (&Tile<'_>, Ahead),
    width: usize,
    weights: &[[f32; KEY_BLOCK]],
    at: Range<usize>,
    sums: &mut [f32],
) {
    match values.elements {
        Elements::F32(values) => weigh::<L, f32>((values, ahead), width, weights, at, sums),
        Elements::F16(values) => weigh::<L, F16>((values, ahead), width, weights, at, sums),
        Elements::Bf16(values) => weigh::<L, Bf16>((values, ahead), width, weights, at, sums),
        Elements::Int8(values) => weigh::<L, Code>((values.codes, ahead), width, weights, at, sums),
    }
}

#[inline(always)]
fn weigh<L: Lanes, T: Element>(
    (values, ahead): (&[T::Bits], Ahead),
    width: usize,
    weights: &[[f32; KEY_BLOCK]],
    at: Range<usize>,
    sums: &mut [f32],
) {
    for (pass, queries) in side_by_side(weights.len()) {
        let values = (values, ahead.of_pass(pass, weights.len().div_ceil(QUERIES)));
        let (sums, weights) = (&mut sums[queries.start * width..queries.end * width], &weights[queries]);
        let at = at.clone();
        match weights.len() {
            1 => weigh_by::<L, T, 1>(values, width, weights, at, sums),
            2 => weigh_by::<L, T, 2>(values, width, weights, at, sums),
            3 => weigh_by::<L, T, 3>(values, width, weights, at, sums),
            4 => weigh_by::<L, T, 4>(values, width, weights, at, sums),
            5 => weigh_by::<L, T, 5>(values, width, weights, at, sums),
            _ => weigh_by::<L, T, QUERIES>(values, width, weights, at, sums),
        }
    }
}

#[inline(always)]
fn weigh_by<L: Lanes, T: Element, const COUNT: usize>(
    (values, ahead): (&[T::Bits], Ahead),
    width: usize,
    weights: &[[f32; KEY_BLOCK]],
    at: Range<usize>,
    sums: &mut [f32],
) {
    let weights = weights.first_chunk::<COUNT>().expect("as many as the caller counted");
    let wide = if L::HOLDS_SIXTEEN { width / (SIXTEENS * LANES) } else { 0 };
    let narrow = (width - wide * SIXTEENS * LANES) / LANES;
    let values = |run: usize| (values, ahead.of_pass(run, wide + narrow));
    for run in 0..wide {
        let column = run * SIXTEENS * LANES;
        columns::<L, T, COUNT, SIXTEENS>(values(run), (width, column), weights, at.clone(), sums);
    }
    for run in 0..narrow {
        let column = (wide * SIXTEENS + run) * LANES;
        columns::<L, T, COUNT, 1>(values(wide + run), (width, column), weights, at.clone(), sums);
    }
}

/// `WIDTH` sixteens of columns of some queries, by ascending key.
#[inline(always)]
fn columns<L: Lanes, T: Element, const COUNT: usize, const WIDTH: usize>(
    (values, ahead): (&[T::Bits], Ahead),
    (width, column): (usize, usize),
    weights: &[[f32; KEY_BLOCK]; COUNT],
    at: Range<usize>,
    sums: &mut [f32],
) {
    let sums = &mut sums[column..];
    let mut lanes = [[L::splat(0.0); WIDTH]; COUNT];
    for query in 0..COUNT {
        let sums = sums[query * width..].as_chunks::<LANES>().0;
        for place in 0..WIDTH {
            lanes[query][place] = L::load(&sums[place]);
        }
    }
    let values = &values[at.start * width..at.end * width];
    let weights: [&[f32]; COUNT] = std::array::from_fn(|query| &weights[query][at.clone()]);
    let mut asking = ahead.begin(at.len());
    for (key, values) in values.chunks_exact(width).enumerate() {
        asking.step();
        let values = &values[column..].as_chunks::<LANES>().0[..WIDTH];
        let mut loaded = [L::splat(0.0); WIDTH];
        for place in 0..WIDTH {
            loaded[place] = T::load::<L>(&values[place]);
        }
        for query in 0..COUNT {
            let weight = L::splat(weights[query][key]);
            for place in 0..WIDTH {
                lanes[query][place] = loaded[place].mul_add(weight, lanes[query][place]);
            }
        }
    }
    for query in 0..COUNT {
        let sums = sums[query * width..].as_chunks_mut::<LANES>().0;
        for place in 0..WIDTH {
            lanes[query][place].store(&mut sums[place]);
        }
    }
}
