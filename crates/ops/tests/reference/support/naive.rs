//! Straight-line maths in float64, with nothing of the interpreter in it.

use super::weights::tensor;

pub(crate) type Row = Vec<f64>;

pub(crate) fn weight(name: &str, shape: &[usize]) -> Row {
    tensor(name, shape).iter().map(|x| f64::from(*x)).collect()
}

/// `W x`, for the weight of this name and so many rows.
pub(crate) fn matrix(name: &str, rows: usize, x: &[f64]) -> Row {
    weight(name, &[rows, x.len()]).chunks(x.len()).map(|weights| dot(weights, x)).collect()
}

pub(crate) fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

pub(crate) fn add(a: &[f64], b: &[f64]) -> Row {
    a.iter().zip(b).map(|(a, b)| a + b).collect()
}

pub(crate) fn rms_norm(name: &str, x: &[f64]) -> Row {
    let root = (dot(x, x) / x.len() as f64 + 1e-6).sqrt();
    x.iter().zip(weight(name, &[x.len()])).map(|(x, weight)| x / root * weight).collect()
}

pub(crate) fn silu(x: f64) -> f64 {
    x / (1.0 + (-x).exp())
}

pub(crate) fn softmax(scores: &[f64]) -> Row {
    let sum: f64 = scores.iter().map(|score| score.exp()).sum();
    scores.iter().map(|score| score.exp() / sum).collect()
}

/// Rotates the halves of each head against each other.
pub(crate) fn rope(x: &[f64], dim: usize, theta: f64, position: f64) -> Row {
    let half = dim / 2;
    let rotate = |(place, value): (usize, &f64)| {
        let (head, i) = (place / dim * dim, place % dim);
        let angle = position * theta.powf(-2.0 * (i % half) as f64 / dim as f64);
        let other = x[head + (i + half) % dim];
        value * angle.cos() + if i < half { -other } else { other } * angle.sin()
    };
    x.iter().enumerate().map(rotate).collect()
}

/// One row's attention over these keys, `heads` of them in groups over `kv_heads`.
pub(crate) fn attention(q: &[f64], keys: &[Row], values: &[Row], heads: usize, kv_heads: usize) -> Row {
    let dim = q.len() / heads;
    let mut y = Vec::new();
    for head in 0..heads {
        let shared = head / (heads / kv_heads) * dim;
        let q = &q[head * dim..(head + 1) * dim];
        let scores: Row =
            keys.iter().map(|k| dot(q, &k[shared..shared + dim]) / (dim as f64).sqrt()).collect();
        let weights = softmax(&scores);
        y.extend((0..dim).map(|i| weights.iter().zip(values).map(|(w, v)| w * v[shared + i]).sum::<f64>()));
    }
    y
}

/// `down(silu(gate(x)) * up(x))`.
pub(crate) fn silu_mlp(prefix: &str, inner: usize, x: &[f64]) -> Row {
    let gate = matrix(&format!("{prefix}gate_proj.weight"), inner, x);
    let up = matrix(&format!("{prefix}up_proj.weight"), inner, x);
    let gated: Row = gate.iter().zip(&up).map(|(gate, up)| silu(*gate) * up).collect();
    matrix(&format!("{prefix}down_proj.weight"), x.len(), &gated)
}

/// Fails where any number is further from the truth than the tolerance.
#[track_caller]
pub(crate) fn assert_close(name: &str, found: &[f32], expected: &[f64], tolerance: f64) {
    assert!(found.len() >= expected.len(), "{name}: {} numbers, expected {}", found.len(), expected.len());
    for (place, (found, expected)) in found.iter().zip(expected).enumerate() {
        let error = (f64::from(*found) - expected).abs();
        assert!(error <= tolerance, "{name}[{place}] is {found}, expected {expected} within {tolerance}");
    }
}
