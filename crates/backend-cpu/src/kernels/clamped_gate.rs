//! `clamped_gate`: `g * sigmoid(alpha * g) * (u + 1)` of a gate bounded above and an up bounded on both sides.

use super::Crew;
use super::elementwise::{OfTwo, of_two};
use gannet_ops::math::sigmoid;

#[derive(Clone, Copy)]
struct ClampedGate {
    alpha: f32,
    limit: f32,
}

impl OfTwo for ClampedGate {
    #[inline(always)]
    fn of(self, gate: f32, up: f32) -> f32 {
        let gate = gate.min(self.limit);
        gate * sigmoid(self.alpha * gate) * (up.clamp(-self.limit, self.limit) + 1.0)
    }
}

/// gate, up -> out, all of one shape; `alpha` and `limit` as the operation has them.
pub(crate) fn clamped_gate(
    crew: &mut Crew<'_>,
    (alpha, limit): (f32, f32),
    gate: &[f32],
    up: &[f32],
    out: &mut [f32],
) {
    of_two(crew, ClampedGate { alpha, limit }, gate, up, out);
}
