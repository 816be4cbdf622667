//! The filters of one row of scores, each a function from scores to scores or from candidates to fewer.

use super::{History, Sampling};
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
    for (token, generated) in history.tokens() {
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

/// The tokens whose bit is set; all where there is no mask.
pub(crate) fn allowed(scores: &[f32], mask: Option<&[u32]>) -> Vec<Candidate> {
    let is_allowed = |token: usize| {
        mask.is_none_or(|words| words.get(token / 32).is_some_and(|word| word >> (token % 32) & 1 == 1))
    };
    let candidate = |(token, score): (usize, &f32)| Candidate { token: token as u32, score: *score };
    scores.iter().enumerate().filter(|(token, _)| is_allowed(*token)).map(candidate).collect()
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
