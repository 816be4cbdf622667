//! `rms_norm`: `x / sqrt(mean(x^2) + epsilon) * weight`.

use super::{Crew, norm};

/// x `[rows, width]`, weight `[width]` -> out as x.
pub(crate) fn rms_norm(crew: &mut Crew<'_>, x: &[f32], weight: &[f32], epsilon: f32, out: &mut [f32]) {
    norm::heads(crew, x, weight, epsilon, out);
}
