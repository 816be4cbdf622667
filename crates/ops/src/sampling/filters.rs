//! The filters, each a function from candidates to fewer.

use super::noise::RowNoise;
use super::passes::mass;
use super::{DynamicTemperature, Xtc};
use crate::math::exp;
use crate::numerics::{LANES, VOCABULARY_PARTITION, fold};

/// A token that may be drawn, and its score.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Candidate {
    pub(crate) token: u32,
    pub(crate) score: f32,
}

/// More likely first, ties to the lower id.
pub(crate) fn by_likelihood(a: &Candidate, b: &Candidate) -> std::cmp::Ordering {
    b.score.total_cmp(&a.score).then(a.token.cmp(&b.token))
}

/// The temperature of a row, by its entropy.
pub(crate) fn dynamic_temperature(
    candidates: &[Candidate],
    middle: f32,
    dynamic: &DynamicTemperature,
) -> f32 {
    let largest = (candidates.len() as f32).ln();
    let share = if largest > 0.0 { (entropy(candidates) / largest).clamp(0.0, 1.0) } else { 0.0 };
    let (low, high) = ((middle - dynamic.range).max(0.0), middle + dynamic.range);
    (high - low).mul_add(share.powf(dynamic.exponent), low)
}

/// In nats.
fn entropy(candidates: &[Candidate]) -> f32 {
    -probabilities(candidates).iter().filter(|p| **p > 0.0).map(|p| p * p.ln()).sum::<f32>()
}

/// The softmax of the candidates' scores; they are in ascending order of ids.
pub(crate) fn probabilities(candidates: &[Candidate]) -> Vec<f32> {
    let max = largest(candidates);
    let sum = denominator(candidates, max);
    candidates.iter().map(|candidate| exp(candidate.score - max) / sum).collect()
}

/// Minus infinity where there is none.
pub(crate) fn largest(candidates: &[Candidate]) -> f32 {
    candidates.iter().map(|candidate| candidate.score).fold(f32::NEG_INFINITY, f32::max)
}

/// The sum of the candidates' exponentials relative to `max`, in the named order of the whole vocabulary, in which
/// those that are no candidates are zeros; they are in ascending order of ids.
pub(crate) fn denominator(candidates: &[Candidate], max: f32) -> f32 {
    let partition = |candidate: &Candidate| candidate.token as usize / VOCABULARY_PARTITION;
    let parts = candidates.chunk_by(|a, b| partition(a) == partition(b));
    let sum_of = |part: &[Candidate]| {
        let mut lanes = [0.0f32; LANES];
        for candidate in part {
            lanes[candidate.token as usize % LANES] += exp(candidate.score - max);
        }
        fold(lanes)
    };
    parts.map(sum_of).fold(0.0, |sum, part| sum + part)
}

/// Keeps tokens whose score is within `n` standard deviations of the largest.
pub(crate) fn top_n_sigma(candidates: &mut Vec<Candidate>, n: f32) {
    if n > 0.0 && !candidates.is_empty() {
        let count = candidates.len() as f64;
        let mean = candidates.iter().map(|candidate| f64::from(candidate.score)).sum::<f64>() / count;
        let square = |candidate: &Candidate| (f64::from(candidate.score) - mean).powi(2);
        let sigma = (candidates.iter().map(square).sum::<f64>() / count).sqrt();
        let max = largest(candidates);
        candidates.retain(|candidate| f64::from(candidate.score) >= f64::from(max) - f64::from(n) * sigma);
    }
}

/// Keeps the tokens whose surprise is nearest to the entropy until they reach probability `p`; at least one.
pub(crate) fn typical_p(candidates: &mut Vec<Candidate>, p: f32) {
    if p >= 1.0 || candidates.len() <= 1 {
        return;
    }
    candidates.sort_unstable_by_key(|candidate| candidate.token);
    let entropy = entropy(candidates);
    let shares = probabilities(candidates);
    let mut ranked: Vec<(f32, f32, Candidate)> = candidates
        .iter()
        .zip(shares)
        .map(|(candidate, p)| ((-p.ln() - entropy).abs(), p, *candidate))
        .collect();
    ranked.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.2.token.cmp(&b.2.token)));
    let mut reached = 0.0;
    let is_needed = |(_, share, _): &&(f32, f32, Candidate)| {
        let needed = reached < p;
        reached += share;
        needed
    };
    *candidates = ranked.iter().take_while(is_needed).map(|(_, _, candidate)| *candidate).collect();
}

/// Leaves out the top choices but the least likely of them, where the row's luck says so.
pub(crate) fn xtc(candidates: &mut Vec<Candidate>, xtc: &Xtc, noise: RowNoise) {
    if noise.uniform() >= xtc.probability {
        return;
    }
    candidates.sort_unstable_by_key(|candidate| candidate.token);
    let shares = probabilities(candidates);
    let top = candidates.iter().zip(&shares).filter(|(_, share)| **share >= xtc.threshold);
    let Some((least, _)) = top.max_by(|(a, _), (b, _)| by_likelihood(a, b)) else { return };
    let least = *least;
    candidates.retain(|candidate| by_likelihood(candidate, &least).is_ge());
}

/// Keeps the `k` most likely.
pub(crate) fn top_k(candidates: &mut Vec<Candidate>, k: usize) {
    if k > 0 && k < candidates.len() {
        candidates.select_nth_unstable_by(k - 1, by_likelihood);
        candidates.truncate(k);
    }
}

/// Keeps the most likely tokens that together reach probability `p`; always at least one.
pub(crate) fn top_p(candidates: &mut Vec<Candidate>, p: f32) {
    if p >= 1.0 || candidates.len() <= 1 {
        return;
    }
    let max = largest(candidates);
    let all = candidates.iter().map(|candidate| mass(exp(candidate.score - max))).sum();
    candidates.sort_unstable_by(by_likelihood);
    let kept = reaching(candidates, p, max, all).unwrap_or(candidates.len());
    candidates.truncate(kept);
}

/// How many candidates, most likely first, together reach the share `p` of the mass of all, where they do.
pub(crate) fn reaching(candidates: &[Candidate], p: f32, max: f32, all: f64) -> Option<usize> {
    let (mut reached, needed) = (0.0, f64::from(p) * all);
    let place = candidates.iter().position(|candidate| {
        reached += mass(exp(candidate.score - max));
        reached >= needed
    });
    place.map(|place| place + 1)
}

/// Keeps tokens at least `share` as likely as the most likely one.
pub(crate) fn min_p(candidates: &mut Vec<Candidate>, share: f32) {
    if share > 0.0 {
        let max = largest(candidates);
        candidates.retain(|candidate| exp(candidate.score - max) >= share);
    }
}
