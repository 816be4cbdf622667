//! `gated_delta_rule`: the recurrent step of each value head, row after row, in prefill too.
//!
//! ```text
//! S *= exp(g);   S += k (sigmoid(b) (v - S^T k))^T;   y = S^T q
//! ```
//!
//! A column of S is independent of the others, so a part of the work is 32 columns of one head, which stay in
//! the first cache level for all rows of a sequence: 128 x 32 floats are 16 KiB. The state is laid out as
//! `[value_heads][column blocks][key_dim][32]`, so that a part's is contiguous. Sums run by ascending row of
//! S.

use super::Crew;
use crate::simd::{Isa, Kernel, Lanes};
use gannet_ops::math::{exp, sigmoid};
use gannet_ops::numerics::LANES;
use gannet_ops::{DeltaLayout, DeltaRule, HeadMap};
use std::ops::Range;

/// Columns of a part.
const COLUMNS: usize = 32;

/// The inputs of the rule, each `[tokens, ..]`; q and k have `key_heads * key_dim` columns, v `value_heads *
/// value_dim`, g and b `value_heads`.
#[derive(Clone, Copy)]
pub(crate) struct Inputs<'a> {
    pub(crate) q: &'a [f32],
    pub(crate) k: &'a [f32],
    pub(crate) v: &'a [f32],
    pub(crate) g: &'a [f32],
    pub(crate) b: &'a [f32],
}

/// The state before the first row.
#[derive(Clone, Copy)]
pub(crate) enum Start<'a> {
    /// All zero.
    Zero,
    /// Already where the result goes.
    InPlace,
    /// Another state.
    Copy(&'a [f32]),
}

/// The rows of one sequence over its state; their results go to `out` `[tokens, value_heads * value_dim]`.
pub(crate) fn gated_delta_rule(
    crew: &mut Crew<'_>,
    (rule, sizes): (&DeltaRule, DeltaLayout),
    inputs: Inputs<'_>,
    rows: Range<usize>,
    start: Start<'_>,
    state: &mut [f32],
    out: &mut [f32],
) {
    let step = if sizes.value_dim.is_multiple_of(COLUMNS) { COLUMNS } else { sizes.value_dim };
    let run = sizes.key_dim * step;
    let (isa, width) = (crew.isa, sizes.value_heads * sizes.value_dim);
    crew.columns_and_runs((out, width, step), (state, run), |mut columns, state| {
        let place = columns.range();
        let mut before = match start {
            Start::Zero => {
                state.fill(0.0);
                None
            }
            Start::InPlace => None,
            Start::Copy(from) => Some(&from[place.start / step * run..][..run]),
        };
        let head = place.start / sizes.value_dim;
        let part = Part { isa, rule, sizes, inputs, head, columns: place };
        for row in rows.clone() {
            part.row(row, (before.take(), state), columns.row(row));
        }
        if let Some(before) = before {
            state.copy_from_slice(before);
        }
    });
}

/// Some columns of one head.
struct Part<'a> {
    isa: Isa,
    rule: &'a DeltaRule,
    sizes: DeltaLayout,
    inputs: Inputs<'a>,
    head: usize,
    columns: Range<usize>,
}

impl Part<'_> {
    /// One row, over the state before it, where that is elsewhere, and the state that it leaves.
    fn row(&self, row: usize, (before, state): (Option<&[f32]>, &mut [f32]), out: &mut [f32]) {
        let DeltaLayout { value_heads, key_dim, value_dim } = self.sizes;
        let key_heads = self.rule.key_heads;
        let key_head = match self.rule.head_map {
            HeadMap::Grouped => self.head / (value_heads / key_heads),
            HeadMap::Tiled => self.head % key_heads,
        };
        let key = (row * key_heads + key_head) * key_dim;
        let gate = row * value_heads + self.head;
        self.isa.run(Step {
            q: &self.inputs.q[key..][..key_dim],
            k: &self.inputs.k[key..][..key_dim],
            v: &self.inputs.v[row * value_heads * value_dim..][self.columns.clone()],
            g: self.inputs.g[gate],
            b: self.inputs.b[gate],
            before,
            state,
            out,
        });
    }
}

/// One row with some columns of one head.
struct Step<'a> {
    q: &'a [f32],
    k: &'a [f32],
    v: &'a [f32],
    g: f32,
    b: f32,
    /// The state before the row, where it isn't `state`.
    before: Option<&'a [f32]>,
    /// `[key_dim, columns]`.
    state: &'a mut [f32],
    out: &'a mut [f32],
}

impl Kernel for Step<'_> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self) {
        let Self { q, k, v, g, b, before, state, out } = self;
        let gates = (exp(g), sigmoid(b));
        match (v.as_array::<COLUMNS>(), out.as_mut_array::<COLUMNS>()) {
            (Some(v), Some(out)) => advance_block::<L>([k, q], v, gates, (before, state), out),
            (Some(_) | None, Some(_) | None) => {
                if let Some(before) = before {
                    state.copy_from_slice(before);
                }
                advance([k, q], v, gates, state, out);
            }
        }
    }
}

/// Columns of any number, a few at a time.
#[inline(always)]
fn advance(
    [k, q]: [&[f32]; 2],
    v: &[f32],
    (decay, strength): (f32, f32),
    state: &mut [f32],
    out: &mut [f32],
) {
    let width = v.len();
    for (number, (v, out)) in v.chunks(COLUMNS).zip(out.chunks_mut(COLUMNS)).enumerate() {
        let columns = number * COLUMNS..number * COLUMNS + v.len();
        let mut correction = [0.0f32; COLUMNS];
        let correction = &mut correction[..v.len()];
        for (state, k) in state.chunks_exact_mut(width).zip(k) {
            for (state, known) in state[columns.clone()].iter_mut().zip(&mut *correction) {
                *state *= decay;
                *known = state.mul_add(*k, *known);
            }
        }
        for (correction, v) in correction.iter_mut().zip(v) {
            *correction = strength * (v - *correction);
        }
        out.fill(0.0);
        for (state, (k, q)) in state.chunks_exact_mut(width).zip(k.iter().zip(q)) {
            let state = state[columns.clone()].iter_mut();
            for (state, (correction, out)) in state.zip(correction.iter().zip(&mut *out)) {
                *state = k.mul_add(*correction, *state);
                *out = state.mul_add(*q, *out);
            }
        }
    }
}

/// The columns of a part in registers.
type Block<L> = [L; COLUMNS / LANES];

/// A part's columns. The state is read twice and written once: what has decayed is computed anew in the second
/// pass, to the same bits.
#[inline(always)]
fn advance_block<L: Lanes>(
    [k, q]: [&[f32]; 2],
    v: &[f32; COLUMNS],
    (decay, strength): (f32, f32),
    (before, state): (Option<&[f32]>, &mut [f32]),
    out: &mut [f32; COLUMNS],
) {
    let decay = L::splat(decay);
    let known = recall::<L>(before.unwrap_or(state), k, decay);
    let correction = correct(known, load(v), L::splat(strength));
    let mut sums = [L::splat(0.0); COLUMNS / LANES];
    let keys = k.iter().zip(q);
    let (rows, _) = state.as_chunks_mut::<COLUMNS>();
    match before {
        Some(before) => {
            let (before, _) = before.as_chunks::<COLUMNS>();
            for ((row, before), (k, q)) in rows.iter_mut().zip(before).zip(keys) {
                store(renew(load(before), decay, [*k, *q], correction, &mut sums), row);
            }
        }
        None => {
            for (row, (k, q)) in rows.iter_mut().zip(keys) {
                store(renew(load(row), decay, [*k, *q], correction, &mut sums), row);
            }
        }
    }
    store(sums, out);
}

/// What the decayed state knows of a key.
#[inline(always)]
fn recall<L: Lanes>(state: &[f32], k: &[f32], decay: L) -> Block<L> {
    let mut known = [L::splat(0.0); COLUMNS / LANES];
    for (row, k) in state.as_chunks::<COLUMNS>().0.iter().zip(k) {
        for (known, state) in known.iter_mut().zip(load::<L>(row)) {
            *known = state.mul(decay).mul_add(L::splat(*k), *known);
        }
    }
    known
}

/// `strength (v - known)`.
#[inline(always)]
fn correct<L: Lanes>(mut known: Block<L>, v: Block<L>, strength: L) -> Block<L> {
    for (known, v) in known.iter_mut().zip(v) {
        *known = strength.mul(known.mul_add(L::splat(-1.0), v));
    }
    known
}

/// A row of the state after the correction; adds what it gives to the sums.
#[inline(always)]
fn renew<L: Lanes>(
    mut row: Block<L>,
    decay: L,
    [k, q]: [f32; 2],
    correction: Block<L>,
    sums: &mut Block<L>,
) -> Block<L> {
    for ((state, correction), sum) in row.iter_mut().zip(correction).zip(sums) {
        *state = L::splat(k).mul_add(correction, state.mul(decay));
        *sum = state.mul_add(L::splat(q), *sum);
    }
    row
}

#[inline(always)]
fn load<L: Lanes>(from: &[f32; COLUMNS]) -> Block<L> {
    let (halves, _) = from.as_chunks::<LANES>();
    [L::load(&halves[0]), L::load(&halves[1])]
}

#[inline(always)]
fn store<L: Lanes>(block: Block<L>, to: &mut [f32; COLUMNS]) {
    for (lanes, to) in block.into_iter().zip(to.as_chunks_mut::<LANES>().0) {
        lanes.store(to);
    }
}
