//! `add_rms_norm`: the sum of two values, and the `rms_norm` of each row of it.

use super::{Crew, add, rms_norm};

/// a, b `[rows, width]`, weight `[width]` -> sum and out, as a.
pub(crate) fn add_rms_norm(
    crew: &mut Crew<'_>,
    [a, b]: [&[f32]; 2],
    weight: &[f32],
    epsilon: f32,
    [sum, out]: [&mut [f32]; 2],
) {
    add::add(crew, a, b, sum);
    rms_norm::rms_norm(crew, sum, weight, epsilon, out);
}
