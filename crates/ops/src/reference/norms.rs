//! Norms over a row or over each head of it. Heads are neighbours, so one function serves both.

use super::gates::silu;
use super::values::Numbers;

/// `x / sqrt(mean(x^2) + epsilon) * weight`, over as many elements as the weight has.
pub fn rms_norm(x: &Numbers, weight: &[f32], epsilon: f32) -> Numbers {
    let normed = x.data.chunks(weight.len()).flat_map(|head| {
        let mean = head.iter().map(|x| x * x).sum::<f32>() / head.len() as f32;
        let root = (mean + epsilon).sqrt();
        head.iter().zip(weight).map(move |(x, weight)| x / root * weight)
    });
    Numbers::new(x.width, normed.collect())
}

/// `rms_norm(x) * silu(z)`.
pub fn gated_norm(x: &Numbers, z: &Numbers, weight: &[f32], epsilon: f32) -> Numbers {
    let normed = rms_norm(x, weight, epsilon);
    Numbers::new(x.width, normed.data.iter().zip(&z.data).map(|(x, z)| x * silu(*z)).collect())
}

/// `x / sqrt(sum(x^2) + epsilon) * scale` over each head.
pub fn l2_norm(x: &Numbers, heads: usize, epsilon: f32, scale: f32) -> Numbers {
    let normed = x.data.chunks(x.width / heads).flat_map(|head| {
        let root = (head.iter().map(|x| x * x).sum::<f32>() + epsilon).sqrt();
        head.iter().map(move |x| x / root * scale)
    });
    Numbers::new(x.width, normed.collect())
}
