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
        match start {
            Start::Zero => state.fill(0.0),
            Start::InPlace => {}
            Start::Copy(from) => state.copy_from_slice(&from[place.start / step * run..][..run]),
        }
        let head = place.start / sizes.value_dim;
        let part = Part { isa, rule, sizes, inputs, head, columns: place };
        for row in rows.clone() {
            part.row(row, state, columns.row(row));
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
    fn row(&self, row: usize, state: &mut [f32], out: &mut [f32]) {
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
    /// `[key_dim, columns]`.
    state: &'a mut [f32],
    out: &'a mut [f32],
}

impl Kernel for Step<'_> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self) {
        // A constant width lets the sums stay in registers.
        if let Some(out) = self.out.first_chunk_mut::<COLUMNS>().filter(|_| self.v.len() == COLUMNS) {
            let mut correction = [0.0; COLUMNS];
            advance(self.k, self.q, self.v, (exp(self.g), sigmoid(self.b)), self.state, &mut correction, out);
        } else {
            let mut correction = vec![0.0; self.v.len()];
            advance(
                self.k,
                self.q,
                self.v,
                (exp(self.g), sigmoid(self.b)),
                self.state,
                &mut correction,
                self.out,
            );
        }
    }
}

#[inline(always)]
fn advance(
    k: &[f32],
    q: &[f32],
    v: &[f32],
    (decay, strength): (f32, f32),
    state: &mut [f32],
    correction: &mut [f32],
    out: &mut [f32],
) {
    let width = correction.len();
    for (state, k) in state.chunks_exact_mut(width).zip(k) {
        for (state, known) in state.iter_mut().zip(&mut *correction) {
            *state *= decay;
            *known = state.mul_add(*k, *known);
        }
    }
    for (correction, v) in correction.iter_mut().zip(v) {
        *correction = strength * (v - *correction);
    }
    out.fill(0.0);
    for (state, (k, q)) in state.chunks_exact_mut(width).zip(k.iter().zip(q)) {
        for (state, (correction, out)) in state.iter_mut().zip(correction.iter().zip(&mut *out)) {
            *state = k.mul_add(*correction, *state);
            *out = state.mul_add(*q, *out);
        }
    }
}
