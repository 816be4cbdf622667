//! `head_norm`: `rms_norm` over each head, with one weight for all.

use super::{Crew, norm};

/// x `[rows, heads * dim]`, weight `[dim]` -> out as x.
pub(crate) fn head_norm(crew: &mut Crew<'_>, x: &[f32], weight: &[f32], epsilon: f32, out: &mut [f32]) {
    norm::heads(crew, x, weight, epsilon, out);
}
