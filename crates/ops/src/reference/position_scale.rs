//! A factor that grows with the logarithm of the position.

use super::values::Numbers;
use crate::Row;

/// `x * (1 + slope * ln(1 + floor(position / period)))`, position on the first axis.
pub fn position_scale(x: &Numbers, slope: f32, period: u32, rows: &[Row]) -> Numbers {
    let mut y = x.clone();
    for (row, values) in rows.iter().zip(y.data.chunks_mut(x.width)) {
        let periods = row.position[0] / period;
        let factor = 1.0 + slope * (1.0 + periods as f32).ln();
        values.iter_mut().for_each(|x| *x *= factor);
    }
    y
}
