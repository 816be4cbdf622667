//! The two ops with a state that each row changes: a causal convolution and the gated delta rule.
//!
//! What a row does to the state is an [`Advance`], apart from what it reads of it, so that accepted rows can be run
//! again without the rest of the model.

use super::gates::{sigmoid, silu};
use super::values::{Numbers, dot};
use crate::{DeltaLayout, DeltaRule, HeadMap};

/// What one row does to a convolution's window or to a layer's matrices.
#[derive(Clone, Debug)]
pub enum Advance {
    /// The oldest inputs leave the window `[kernel - 1, channels]`, these enter.
    Slide(Vec<f32>),
    /// `S *= exp(g); S += k (sigmoid(b) (v - S^T k))^T` for each value head.
    Delta(DeltaRow),
}

/// The inputs of one row of the delta rule.
#[derive(Clone, Debug)]
pub struct DeltaRow {
    rule: DeltaRule,
    sizes: DeltaLayout,
    k: Vec<f32>,
    v: Vec<f32>,
    g: Vec<f32>,
    b: Vec<f32>,
}

impl Advance {
    /// Elements of its inputs.
    pub(super) fn elements(&self) -> usize {
        match self {
            Advance::Slide(inputs) => inputs.len(),
            Advance::Delta(row) => row.k.len() + row.v.len() + row.g.len() + row.b.len(),
        }
    }

    pub(super) fn apply(&self, state: &mut [f32]) {
        match self {
            Advance::Slide(inputs) => slide(state, inputs),
            Advance::Delta(row) => row.apply(state),
        }
    }
}

fn slide(window: &mut [f32], inputs: &[f32]) {
    if window.len() >= inputs.len() {
        window.copy_within(inputs.len().., 0);
        let newest = window.len() - inputs.len();
        window[newest..].copy_from_slice(inputs);
    }
}

/// One row of the convolution: `silu(sum_j weight[c, j] * x[t - (kernel - 1) + j])`, then the window slides.
///
/// x `[channels]`, weight `[channels, kernel]`, window `[kernel - 1, channels]`.
pub fn causal_conv(x: &[f32], weight: &[f32], window: &mut [f32]) -> (Vec<f32>, Advance) {
    let kernel = weight.len() / x.len();
    let convolved = x.iter().enumerate().map(|(channel, now)| {
        let weights = &weight[channel * kernel..(channel + 1) * kernel];
        let before = window.chunks(x.len()).map(|inputs| inputs[channel]);
        silu(before.chain([*now]).zip(weights).map(|(x, weight)| x * weight).sum())
    });
    let y = convolved.collect();
    let advance = Advance::Slide(x.to_vec());
    advance.apply(window);
    (y, advance)
}

/// The inputs of the delta rule.
pub struct DeltaInputs<'a> {
    /// `[rows, key_heads * key_dim]`.
    pub q: &'a Numbers,
    /// As q.
    pub k: &'a Numbers,
    /// `[rows, value_heads * value_dim]`.
    pub v: &'a Numbers,
    /// The logarithm of the decay, `[rows, value_heads]`.
    pub g: &'a Numbers,
    /// The strength before its sigmoid, as g.
    pub b: &'a Numbers,
}

/// One row of the delta rule: the matrices `[value_heads, key_dim, value_dim]` advance, then `y = S^T q`.
pub fn gated_delta_rule(
    inputs: &DeltaInputs<'_>,
    row: usize,
    rule: &DeltaRule,
    sizes: DeltaLayout,
    matrices: &mut [f32],
) -> (Vec<f32>, Advance) {
    let of = |x: &Numbers| x.row(row).to_vec();
    let (k, v, g, b) = (of(inputs.k), of(inputs.v), of(inputs.g), of(inputs.b));
    let delta = DeltaRow { rule: rule.clone(), sizes, k, v, g, b };
    delta.apply(matrices);
    let q = inputs.q.row(row);
    let read = |head: usize| {
        let q = delta.key_head(q, head);
        let matrix = delta.matrix(matrices, head);
        (0..sizes.value_dim).map(move |column| dot(q, &column_of(matrix, column, sizes.value_dim)))
    };
    ((0..sizes.value_heads).flat_map(read).collect(), Advance::Delta(delta))
}

impl DeltaRow {
    fn apply(&self, matrices: &mut [f32]) {
        let DeltaLayout { value_heads, key_dim, value_dim } = self.sizes;
        for head in 0..value_heads {
            let k = self.key_head(&self.k, head);
            let v = &self.v[head * value_dim..(head + 1) * value_dim];
            let (decay, strength) = (self.g[head].exp(), sigmoid(self.b[head]));
            let matrix = &mut matrices[head * key_dim * value_dim..(head + 1) * key_dim * value_dim];
            for element in matrix.iter_mut() {
                *element *= decay;
            }
            for column in 0..value_dim {
                let known = dot(k, &column_of(matrix, column, value_dim));
                let correction = strength * (v[column] - known);
                for (row, k) in k.iter().enumerate() {
                    matrix[row * value_dim + column] += k * correction;
                }
            }
        }
    }

    /// The part of a row of q or k that a value head reads.
    fn key_head<'a>(&self, row: &'a [f32], value_head: usize) -> &'a [f32] {
        let head = match self.rule.head_map {
            HeadMap::Grouped => value_head / (self.sizes.value_heads / self.rule.key_heads),
            HeadMap::Tiled => value_head % self.rule.key_heads,
        };
        &row[head * self.sizes.key_dim..(head + 1) * self.sizes.key_dim]
    }

    /// `[key_dim, value_dim]`.
    fn matrix<'a>(&self, matrices: &'a [f32], head: usize) -> &'a [f32] {
        let elements = self.sizes.key_dim * self.sizes.value_dim;
        &matrices[head * elements..(head + 1) * elements]
    }
}

fn column_of(matrix: &[f32], column: usize, columns: usize) -> Vec<f32> {
    matrix.iter().skip(column).step_by(columns).copied().collect()
}
