//! Rotary position embedding.

use super::values::Numbers;
use crate::{Rope, Row};

/// Rotates the pairs `(i, i + pairs)` of each head by `position * frequency`.
pub fn rope(x: &Numbers, rope: &Rope, rows: &[Row]) -> Numbers {
    let table = &rope.table;
    let pairs = table.inverse_frequencies.len();
    let mut y = x.clone();
    for (row, values) in rows.iter().zip(y.data.chunks_mut(x.width)) {
        for head in values.chunks_mut(rope.head_dim) {
            for pair in 0..pairs {
                let position = row.position[usize::from(table.axes[pair])] as f32;
                let (sin, cos) = (position * table.inverse_frequencies[pair]).sin_cos();
                let (sin, cos) = (sin * table.attention_scale, cos * table.attention_scale);
                let (a, b) = (head[pair], head[pair + pairs]);
                head[pair] = a * cos - b * sin;
                head[pair + pairs] = b * cos + a * sin;
            }
        }
    }
    y
}
