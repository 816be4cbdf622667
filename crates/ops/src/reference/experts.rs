//! Mixtures of experts: who computes a token, what they compute, and the sum.

use super::values::{Made, Numbers, dot, softmax};
use super::weights::Weight;
use crate::Router;

/// Softmax over all experts, then the most likely ones, ties to the lower id: `[Routed, 1]` ids and weights.
pub(super) fn route_experts(logits: &Numbers, router: &Router) -> Vec<Made> {
    let (ids, weights) = chosen(logits, router);
    vec![Made::Ids(ids.into_iter().map(Some).collect()), Numbers::new(1, weights).into()]
}

/// Ids of experts, ascending within a row, and their weights.
pub fn chosen(logits: &Numbers, router: &Router) -> (Vec<u32>, Vec<f32>) {
    let (mut ids, mut weights) = (Vec::new(), Vec::new());
    for row in logits.rows() {
        let likely = softmax(row);
        let mut chosen: Vec<usize> = (0..router.experts).collect();
        // The sort is stable, so equals stay in the order of their ids.
        chosen.sort_by(|a, b| likely[*b].total_cmp(&likely[*a]));
        chosen.truncate(router.top_k as usize);
        chosen.sort_unstable();
        let sum: f32 = chosen.iter().map(|expert| likely[*expert]).sum();
        let whole = if router.renormalise { sum } else { 1.0 };
        ids.extend(chosen.iter().map(|expert| *expert as u32));
        weights.extend(chosen.iter().map(|expert| likely[*expert] / whole));
    }
    (ids, weights)
}

/// Each routed row times the matrix of its expert, plus the expert's bias. `x` has a row a token, or a row an expert of each token.
pub(super) fn expert_linear(
    x: &Numbers,
    ids: &[Option<u32>],
    weight: &Weight,
    bias: Option<&[f32]>,
) -> Numbers {
    let (rows, columns) = (weight.shape[1], weight.shape[2]);
    let copies = ids.len() / x.count().max(1);
    let mut y = Vec::with_capacity(ids.len() * rows);
    for (routed, expert) in ids.iter().enumerate() {
        let expert = expert.expect("every routed row has an expert") as usize;
        let matrix = &weight.data[expert * rows * columns..(expert + 1) * rows * columns];
        let product = |(output, weights)| {
            dot(x.row(routed / copies), weights) + bias.map_or(0.0, |bias| bias[expert * rows + output])
        };
        y.extend(matrix.chunks(columns).enumerate().map(product));
    }
    Numbers::new(rows, y)
}

/// The weighted sum by ascending expert id, the shared expert last.
pub fn combine_experts(y: &Numbers, weights: &Numbers, shared: Option<&Numbers>, tokens: usize) -> Numbers {
    let top_k = y.count() / tokens;
    let mut sums = Vec::with_capacity(tokens * y.width);
    for token in 0..tokens {
        for column in 0..y.width {
            let routed = token * top_k..(token + 1) * top_k;
            let sum: f32 = routed.map(|row| weights.data[row] * y.row(row)[column]).sum();
            sums.push(sum + shared.map_or(0.0, |shared| shared.row(token)[column]));
        }
    }
    Numbers::new(y.width, sums)
}
