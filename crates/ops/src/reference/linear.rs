//! The matrix product of each row.

use super::values::{Numbers, dot};

/// `x * weight^T + bias`; weight is `[rows, columns]`.
pub fn linear(x: &Numbers, weight: &[f32], bias: Option<&[f32]>) -> Numbers {
    let width = weight.len() / x.width;
    let mut y = Vec::with_capacity(x.count() * width);
    for row in x.rows() {
        for (column, weights) in weight.chunks(x.width).enumerate() {
            y.push(dot(row, weights) + bias.map_or(0.0, |bias| bias[column]));
        }
    }
    Numbers::new(width, y)
}
