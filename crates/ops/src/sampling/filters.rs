//! The filters of one row of scores, each a function from scores to scores or from candidates to fewer.

use super::noise::RowNoise;
use super::{DynamicTemperature, History, SampleRow, Sampling, Xtc};
use crate::TokenId;
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

/// Adds the request's bias. Ids outside of the vocabulary were refused with the request.
pub(crate) fn logit_bias(scores: &mut [f32], bias: &[(TokenId, f32)]) {
    for (token, added) in bias {
        if let Some(score) = scores.get_mut(token.0 as usize) {
            *score += added;
        }
    }
}

/// Repetition, presence and frequency penalties over the tokens seen.
pub(crate) fn penalties(scores: &mut [f32], sampling: &Sampling, history: &History) {
    for (token, generated) in history.counts() {
        let Some(score) = scores.get_mut(token.0 as usize) else { continue };
        if *score > 0.0 {
            *score /= sampling.repetition_penalty;
        } else {
            *score *= sampling.repetition_penalty;
        }
        if generated > 0 {
            *score -= sampling.presence_penalty + generated as f32 * sampling.frequency_penalty;
        }
    }
}

/// The tokens that the row may draw, ascending.
pub(crate) fn allowed(scores: &[f32], row: &SampleRow) -> Vec<Candidate> {
    let Sampling { banned, only, .. } = &*row.sampling;
    let is_set = |token: u32| {
        let word = |words: &std::sync::Arc<[u32]>| words.get(token as usize / 32).copied().unwrap_or(0);
        row.allowed.as_ref().is_none_or(|words| word(words) >> (token % 32) & 1 == 1)
    };
    let is_banned = |token: u32| {
        let ends = row.banned.as_deref().unwrap_or_default();
        banned.iter().chain(ends).any(|banned| banned.0 == token)
    };
    let may_be_drawn = |token: u32| {
        is_set(token) && !is_banned(token) && (only.is_empty() || only.contains(&TokenId(token)))
    };
    all(scores).filter(|candidate| may_be_drawn(candidate.token)).collect()
}

/// All tokens, ascending.
pub(crate) fn all(scores: &[f32]) -> impl Iterator<Item = Candidate> + '_ {
    scores.iter().enumerate().map(|(token, score)| Candidate { token: token as u32, score: *score })
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
fn probabilities(candidates: &[Candidate]) -> Vec<f32> {
    let scores: Vec<f32> = candidates.iter().map(|candidate| candidate.score).collect();
    let (max, sum) = softmax_denominator(&scores);
    scores.iter().map(|score| exp(score - max) / sum).collect()
}

/// Keeps tokens whose score is within `n` standard deviations of the largest.
pub(crate) fn top_n_sigma(candidates: &mut Vec<Candidate>, n: f32) {
    if n > 0.0 && !candidates.is_empty() {
        let count = candidates.len() as f64;
        let mean = candidates.iter().map(|candidate| f64::from(candidate.score)).sum::<f64>() / count;
        let square = |candidate: &Candidate| (f64::from(candidate.score) - mean).powi(2);
        let sigma = (candidates.iter().map(square).sum::<f64>() / count).sqrt();
        let max = candidates.iter().map(|candidate| candidate.score).fold(f32::NEG_INFINITY, f32::max);
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
    candidates.sort_unstable_by_key(|candidate| candidate.token);
    let scores: Vec<f32> = candidates.iter().map(|candidate| candidate.score).collect();
    let (max, sum) = softmax_denominator(&scores);
    let mut sorted = 0;
    let mut reached = 0.0;
    let mut kept = 0;
    while kept < candidates.len() && reached < p {
        if kept == sorted {
            sorted = sort_front(candidates, sorted);
        }
        reached += exp(candidates[kept].score - max) / sum;
        kept += 1;
    }
    candidates.truncate(kept.max(1));
}

/// Sorts more of the candidates, of which `sorted` are in place already; returns how many are then.
///
/// Most rows need a few hundred of a vocabulary's hundred thousand, so the rest is only partitioned.
fn sort_front(candidates: &mut [Candidate], sorted: usize) -> usize {
    let rest = &mut candidates[sorted..];
    let more = rest.len().min((sorted * 7).max(256));
    if more < rest.len() {
        rest.select_nth_unstable_by(more - 1, by_likelihood);
    }
    rest[..more].sort_unstable_by(by_likelihood);
    sorted + more
}

/// Keeps tokens at least `share` as likely as the most likely one.
pub(crate) fn min_p(candidates: &mut Vec<Candidate>, share: f32) {
    if share > 0.0 {
        let max = candidates.iter().map(|candidate| candidate.score).fold(f32::NEG_INFINITY, f32::max);
        candidates.retain(|candidate| exp(candidate.score - max) >= share);
    }
}

/// The largest score and the sum of exponentials relative to it, in the named order.
pub(crate) fn softmax_denominator(scores: &[f32]) -> (f32, f32) {
    let max = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let partition = |part: &[f32]| {
        let mut lanes = [0.0f32; LANES];
        for group in part.chunks(LANES) {
            for (lane, score) in lanes.iter_mut().zip(group) {
                *lane += exp(score - max);
            }
        }
        fold(lanes)
    };
    (max, scores.chunks(VOCABULARY_PARTITION).map(partition).fold(0.0, |sum, part| sum + part))
}
