//! One draw: scores to a token, and scores to log-probabilities.

use super::dry::dry;
use super::filters::{self, Candidate, by_likelihood};
use super::noise::RowNoise;
use super::{History, SampleRow, Sampling};
use crate::math::ln;
use crate::{TokenId, TokenLogprobs};
use std::borrow::Cow;

/// What a draw found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Draw {
    /// The token; `None` where none is allowed or a score is not finite.
    pub token: Option<TokenId>,
    /// Whether any score is not a finite number.
    pub not_finite: bool,
}

/// Draws from one row of scores, `[vocabulary]`.
pub fn draw(logits: &[f32], row: &SampleRow, history: &History) -> Draw {
    if logits.iter().any(|score| !score.is_finite()) {
        return Draw { token: None, not_finite: true };
    }
    let scores = adjusted(logits, &row.sampling, history);
    let token = if is_plain(row) { most_likely(&scores) } else { draw_filtered(&scores, row) };
    Draw { token: token.map(TokenId), not_finite: false }
}

/// Whether the largest of all scores is drawn.
fn is_plain(row: &SampleRow) -> bool {
    let Sampling { temperature, dynamic_temperature, banned, only, .. } = &*row.sampling;
    let is_free = row.allowed.is_none() && row.banned.is_none() && banned.is_empty() && only.is_empty();
    *temperature == 0.0 && dynamic_temperature.is_none() && is_free
}

/// The scores after bias and penalties; the row itself where there are none.
fn adjusted<'a>(logits: &'a [f32], sampling: &Sampling, history: &History) -> Cow<'a, [f32]> {
    let mut scores = Cow::Borrowed(logits);
    if !sampling.logit_bias.is_empty() {
        filters::logit_bias(scores.to_mut(), &sampling.logit_bias);
    }
    if sampling.needs_history() {
        filters::penalties(scores.to_mut(), sampling, history);
    }
    if let Some(parameters) = &sampling.dry {
        dry(scores.to_mut(), parameters, history);
    }
    scores
}

fn most_likely(scores: &[f32]) -> Option<u32> {
    let mut best = None;
    for (token, score) in scores.iter().enumerate() {
        if best.is_none_or(|(_, most)| *score > most) {
            best = Some((token as u32, *score));
        }
    }
    best.map(|(token, _)| token)
}

fn draw_filtered(scores: &[f32], row: &SampleRow) -> Option<u32> {
    let sampling = &row.sampling;
    let mut candidates = filters::allowed(scores, row);
    let temperature = match &sampling.dynamic_temperature {
        Some(dynamic) => filters::dynamic_temperature(&candidates, sampling.temperature, dynamic),
        None => sampling.temperature,
    };
    if temperature == 0.0 {
        return candidates.iter().min_by(|a, b| by_likelihood(a, b)).map(|candidate| candidate.token);
    }
    for candidate in &mut candidates {
        candidate.score /= temperature;
    }
    let noise = RowNoise::new(row.seed, row.choice, row.index);
    filters::top_n_sigma(&mut candidates, sampling.top_n_sigma);
    filters::top_k(&mut candidates, sampling.top_k as usize);
    filters::typical_p(&mut candidates, sampling.typical_p);
    filters::top_p(&mut candidates, sampling.top_p);
    filters::min_p(&mut candidates, sampling.min_p);
    if let Some(parameters) = &sampling.xtc {
        filters::xtc(&mut candidates, parameters, noise);
    }
    noisiest(&candidates, noise)
}

/// The candidate with the largest `score + noise`: a draw from the softmax of the scores.
fn noisiest(candidates: &[Candidate], noise: RowNoise) -> Option<u32> {
    // Starting from the most likely token rules out most others without computing their noise.
    let first = candidates.iter().min_by(|a, b| by_likelihood(a, b))?;
    let mut best = *first;
    best.score += noise.above(first.token, f32::NEG_INFINITY).expect("no noise is below minus infinity");
    for candidate in candidates {
        let Some(g) = noise.above(candidate.token, best.score - candidate.score) else { continue };
        let found = Candidate { token: candidate.token, score: candidate.score + g };
        if by_likelihood(&found, &best).is_lt() {
            best = found;
        }
    }
    Some(best.token)
}

/// Log-probabilities of one row of scores: of the sampled token, and of the `top` most likely ones.
pub fn logprobs(logits: &[f32], sampled: Option<TokenId>, top: u32) -> TokenLogprobs {
    let (max, sum) = filters::softmax_denominator(logits);
    let logprob = |score: f32| (score - max) - ln(sum);
    let mut candidates: Vec<Candidate> = filters::all(logits).collect();
    filters::top_k(&mut candidates, top as usize);
    candidates.sort_unstable_by(by_likelihood);
    candidates.truncate(top as usize);
    TokenLogprobs {
        sampled: sampled.and_then(|token| logits.get(token.0 as usize)).map(|score| logprob(*score)),
        top: candidates.iter().map(|found| (TokenId(found.token), logprob(found.score))).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::{DynamicTemperature, Xtc};
    use super::*;
    use std::sync::Arc;

    fn row(sampling: Sampling, index: u32) -> SampleRow {
        SampleRow { sampling: Arc::new(sampling), seed: 42, choice: 0, index, allowed: None, banned: None }
    }

    fn warm(change: impl FnOnce(&mut Sampling)) -> Sampling {
        let mut sampling = Sampling { temperature: 1.0, ..Sampling::greedy() };
        change(&mut sampling);
        sampling
    }

    /// Chi-square of 100,000 seeded draws against the probabilities that the filter's formula gives.
    fn check(name: &str, sampling: Sampling, history: &History, expected: &[f64]) {
        let logits = [1.0f32, 2.0, 0.5, -1.0, 3.0, 2.0, -4.0, 0.0];
        let draws = 100_000u32;
        let mut counts = [0u32; 8];
        for index in 0..draws {
            let token =
                draw(&logits, &row(sampling.clone(), index), history).token.expect("a token is allowed");
            counts[token.0 as usize] += 1;
        }
        let mut chi_square = 0.0;
        for (count, p) in counts.iter().zip(expected) {
            assert!(*p > 0.0 || *count == 0, "{name}: a token of no probability was drawn {count} times");
            if *p > 0.0 {
                let mean = p * f64::from(draws);
                chi_square += (f64::from(*count) - mean).powi(2) / mean;
            }
        }
        // The 99.9 % quantile for 7 degrees of freedom; fewer remain where tokens are filtered.
        assert!(chi_square < 24.3, "{name}: chi-square {chi_square}, counts {counts:?}");
    }

    fn softmax(scores: &[f64]) -> Vec<f64> {
        let sum: f64 = scores.iter().map(|s| s.exp()).sum();
        scores.iter().map(|s| s.exp() / sum).collect()
    }

    const NONE: f64 = f64::NEG_INFINITY;

    #[test]
    fn draws_follow_each_filters_formula() {
        let empty = History::default();
        let plain = [1.0, 2.0, 0.5, -1.0, 3.0, 2.0, -4.0, 0.0];
        check("temperature 1", warm(|_| ()), &empty, &softmax(&plain));
        let halved: Vec<f64> = plain.iter().map(|s| s / 0.5).collect();
        check("temperature 0.5", warm(|s| s.temperature = 0.5), &empty, &softmax(&halved));
        let three = [NONE, 2.0, NONE, NONE, 3.0, 2.0, NONE, NONE];
        check("top-k 3", warm(|s| s.top_k = 3), &empty, &softmax(&three));
        let two = [NONE, 2.0, NONE, NONE, 3.0, NONE, NONE, NONE];
        check("top-k 2 keeps the lower of two equal ids", warm(|s| s.top_k = 2), &empty, &softmax(&two));
        check("top-p 0.6", warm(|s| s.top_p = 0.6), &empty, &softmax(&two));
        check("min-p 0.3", warm(|s| s.min_p = 0.3), &empty, &softmax(&three));
        let sigma = [NONE, 2.0, NONE, NONE, 3.0, 2.0, NONE, NONE];
        // The standard deviation of the scores is 2.05.
        check("top-n-sigma 0.5", warm(|s| s.top_n_sigma = 0.5), &empty, &softmax(&sigma));
        let biased = [1.0, 2.0, 0.5, 4.0, 3.0, 2.0, -4.0, 0.0];
        check("bias", warm(|s| s.logit_bias = vec![(TokenId(3), 5.0)]), &empty, &softmax(&biased));
    }

    #[test]
    fn penalties_follow_their_formulas() {
        let history = History::new(&[TokenId(4), TokenId(6)], &[TokenId(1), TokenId(1), TokenId(5)]);
        let repeated = [1.0, 1.0, 0.5, -1.0, 1.5, 1.0, -8.0, 0.0];
        check("repetition 2", warm(|s| s.repetition_penalty = 2.0), &history, &softmax(&repeated));
        let present = [1.0, 1.5, 0.5, -1.0, 3.0, 1.5, -4.0, 0.0];
        check("presence 0.5", warm(|s| s.presence_penalty = 0.5), &history, &softmax(&present));
        let frequent = [1.0, 1.0, 0.5, -1.0, 3.0, 1.5, -4.0, 0.0];
        check("frequency 0.5", warm(|s| s.frequency_penalty = 0.5), &history, &softmax(&frequent));
    }

    #[test]
    fn newer_filters_follow_their_formulas() {
        let empty = History::default();
        let plain = [1.0f64, 2.0, 0.5, -1.0, 3.0, 2.0, -4.0, 0.0];
        let shares = softmax(&plain);
        let entropy: f64 = -shares.iter().map(|p| p * p.ln()).sum::<f64>();
        let surprise = |token: usize| (-shares[token].ln() - entropy).abs();
        let mut ranked: Vec<usize> = (0..8).collect();
        ranked.sort_by(|a, b| surprise(*a).total_cmp(&surprise(*b)).then(a.cmp(b)));
        let mut typical = [NONE; 8];
        let mut reached = 0.0;
        for token in ranked {
            if reached < 0.7 {
                typical[token] = plain[token];
                reached += shares[token];
            }
        }
        check("typical-p 0.7", warm(|s| s.typical_p = 0.7), &empty, &softmax(&typical));
        let hot = (entropy / 8f64.ln()).powf(0.5) * 1.0 + 0.5;
        let scaled: Vec<f64> = plain.iter().map(|s| s / hot).collect();
        let dynamic = DynamicTemperature { range: 0.5, exponent: 0.5 };
        check(
            "dynamic temperature",
            warm(|s| s.dynamic_temperature = Some(dynamic)),
            &empty,
            &softmax(&scaled),
        );
        // Tokens 4, 1 and 5 are at least a tenth each; 5 is the last of them.
        let without = softmax(&[1.0, NONE, 0.5, -1.0, NONE, 2.0, -4.0, 0.0]);
        let xtc = |probability| warm(|s| s.xtc = Some(Xtc { probability, threshold: 0.1 }));
        check("xtc always", xtc(1.0), &empty, &without);
        let mixed: Vec<f64> = without.iter().zip(&shares).map(|(a, b)| 0.25 * a + 0.75 * b).collect();
        check("xtc a quarter of the time", xtc(0.25), &empty, &mixed);
        let banned = [1.0, 2.0, 0.5, -1.0, NONE, 2.0, -4.0, 0.0];
        check("banned", warm(|s| s.banned = vec![TokenId(4)]), &empty, &softmax(&banned));
        let only = [NONE, 2.0, NONE, -1.0, NONE, NONE, NONE, NONE];
        check("only", warm(|s| s.only = vec![TokenId(1), TokenId(3)]), &empty, &softmax(&only));
    }

    #[test]
    fn a_mask_allows_only_its_tokens() {
        let mut masked = row(warm(|_| ()), 0);
        masked.allowed = Some(Arc::from([0b1000_1000u32]));
        let logits = [9.0, 9.0, 9.0, 1.0, 9.0, 9.0, 9.0, 0.5];
        for index in 0..100 {
            masked.index = index;
            let token = draw(&logits, &masked, &History::default()).token.expect("two tokens are allowed");
            assert!(token.0 == 3 || token.0 == 7);
        }
        masked.allowed = Some(Arc::from([0u32]));
        assert_eq!(draw(&logits, &masked, &History::default()), Draw { token: None, not_finite: false });
    }

    #[test]
    fn greedy_takes_the_lowest_of_equal_ids() {
        let found = draw(&[0.0, 3.0, 3.0], &row(Sampling::greedy(), 0), &History::default());
        assert_eq!(found.token, Some(TokenId(1)));
    }

    #[test]
    fn a_score_that_is_not_finite_is_reported() {
        for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            let found = draw(&[0.0, bad], &row(Sampling::greedy(), 0), &History::default());
            assert_eq!(found, Draw { token: None, not_finite: true });
        }
    }

    #[test]
    fn logprobs_are_the_log_softmax() {
        let found = logprobs(&[1.0, 3.0, 2.0], Some(TokenId(0)), 2);
        let expected = softmax(&[1.0, 3.0, 2.0]);
        assert!((f64::from(found.sampled.expect("a token was sampled")) - expected[0].ln()).abs() < 1e-6);
        assert_eq!(found.top.iter().map(|(token, _)| token.0).collect::<Vec<_>>(), [1, 2]);
        assert!((f64::from(found.top[0].1) - expected[1].ln()).abs() < 1e-6);
    }
}
