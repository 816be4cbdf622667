//! `route_experts`: softmax over all experts, and the most likely ones by ascending id.

use gannet_ops::Router;
use gannet_ops::math::exp;
use gannet_ops::numerics::{LANES, fold};

/// Memory that later tokens use again.
#[derive(Default)]
pub(crate) struct Routing {
    /// How likely each expert is.
    likely: Vec<f32>,
    /// The experts, the most likely one first.
    order: Vec<u32>,
}

/// logits `[tokens, experts]` -> ids and weights `[tokens * top_k]`. A token's experts are few, so the
/// caller's thread does all.
pub(crate) fn route_experts(
    (router, space): (&Router, &mut Routing),
    logits: &[f32],
    ids: &mut Vec<Option<u32>>,
    weights: &mut [f32],
) {
    let top_k = router.top_k as usize;
    let Routing { likely, order } = space;
    likely.resize(router.experts, 0.0);
    ids.clear();
    for (logits, weights) in logits.chunks_exact(router.experts).zip(weights.chunks_exact_mut(top_k)) {
        softmax(logits, likely);
        order.clear();
        order.extend(0..router.experts as u32);
        let by_likelihood =
            |a: &u32, b: &u32| likely[*b as usize].total_cmp(&likely[*a as usize]).then(a.cmp(b));
        order.sort_unstable_by(by_likelihood);
        order.truncate(top_k);
        order.sort_unstable();
        for (weight, expert) in weights.iter_mut().zip(&*order) {
            *weight = likely[*expert as usize];
        }
        if router.renormalise {
            let sum: f32 = weights.iter().sum();
            weights.iter_mut().for_each(|weight| *weight /= sum);
        }
        ids.extend(order.iter().copied().map(Some));
    }
}

/// `exp(x) / sum(exp(x))`, by way of the largest element.
fn softmax(x: &[f32], out: &mut [f32]) {
    let max = x.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let mut lanes = [0.0f32; LANES];
    for (place, (out, x)) in out.iter_mut().zip(x).enumerate() {
        *out = exp(x - max);
        lanes[place % LANES] += *out;
    }
    let sum = fold(lanes);
    out.iter_mut().for_each(|out| *out /= sum);
}
