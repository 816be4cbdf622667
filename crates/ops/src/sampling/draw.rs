//! One draw: scores to a token, and scores to log-probabilities.
//!
//! The likeliest few of a vocabulary are found by the maxima of its groups, so that filters work on hundreds of
//! candidates, not on all tokens. What they leave is drawn from by Gumbel noise.

use super::filters::{self, Candidate, by_likelihood};
use super::noise::{NOISE_MAX, RowNoise};
use super::passes::{Passes, PlainPasses, Scale};
use super::running::steer;
use super::scores::{Scores, Workspace};
use super::{History, Running, SampleRow, Sampling};
use crate::math::ln;
use crate::{TokenId, TokenLogprobs};

/// Candidates that top-p looks at first, and by how much more it tries again.
const TOP_P_FIRST: usize = 256;
const TOP_P_GROWTH: usize = 8;
/// Candidates whose noise says how good the drawn one is at least.
const NOISY_FIRST: usize = 64;

/// What a draw found.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Draw {
    /// The token; `None` where none is allowed or a score is not finite.
    pub token: Option<TokenId>,
    /// Whether any score is not a finite number.
    pub not_finite: bool,
    /// The running parameter if the token stands, where a sampler steers.
    pub running: Option<Running>,
}

/// Who draws: the passes over whole rows, and memory for the rest.
pub struct Drawer<'a> {
    /// Makes the passes.
    pub passes: &'a mut dyn Passes,
    /// Kept from draw to draw.
    pub workspace: &'a mut Workspace,
}

/// Draws from one row of scores, `[vocabulary]`, as it is defined.
pub fn draw(logits: &[f32], row: &SampleRow, history: &History) -> Draw {
    let (passes, workspace) = (&mut PlainPasses, &mut Workspace::default());
    Drawer { passes, workspace }.draw(logits, row, history)
}

/// Log-probabilities of one row of scores: of the sampled token, and of the `top` most likely ones; none where a score
/// is not finite.
pub fn logprobs(logits: &[f32], sampled: Option<TokenId>, top: u32) -> TokenLogprobs {
    let (passes, workspace) = (&mut PlainPasses, &mut Workspace::default());
    Drawer { passes, workspace }.logprobs(logits, sampled, top).unwrap_or_default()
}

impl Drawer<'_> {
    /// Draws from one row of scores, `[vocabulary]`.
    pub fn draw(&mut self, logits: &[f32], row: &SampleRow, history: &History) -> Draw {
        let passes = &mut *self.passes;
        let Some((mut scores, candidates)) = self.workspace.row(logits, row, history, passes) else {
            return Draw { token: None, not_finite: true, running: None };
        };
        let temperature = temperature(&scores, &row.sampling, candidates);
        let (token, running) = if temperature == 0.0 {
            (scores.likeliest(), None)
        } else {
            narrow(&mut scores, row, temperature, candidates, passes);
            pick(candidates, row, history.running())
        };
        Draw { token: token.map(TokenId), not_finite: false, running }
    }

    /// Log-probabilities of one row of scores, before any filter: of the sampled token, and of the `top` most likely
    /// ones; `None` where a score is not finite.
    pub fn logprobs(&mut self, logits: &[f32], sampled: Option<TokenId>, top: u32) -> Option<TokenLogprobs> {
        let (mut scores, candidates) = self.workspace.plain(logits, self.passes)?;
        let max = scores.max();
        let sum = scores.denominator(Scale { temperature: 1.0, max }, self.passes);
        if top > 0 {
            scores.top(top as usize, candidates);
        }
        candidates.sort_unstable_by(by_likelihood);
        let sampled = sampled.and_then(|token| logits.get(token.0 as usize)).copied();
        let top = candidates.iter().map(|found| (TokenId(found.token), found.score));
        Some(logprobs_of((max, sum), sampled, top))
    }
}

/// Log-probabilities from the largest score of a row, the sum of the exponentials relative to it, the score of the sampled
/// token, and the most likely tokens with their scores.
pub fn logprobs_of(
    (max, sum): (f32, f32),
    sampled: Option<f32>,
    top: impl Iterator<Item = (TokenId, f32)>,
) -> TokenLogprobs {
    let log_sum = ln(sum);
    let logprob = |score: f32| (score - max) - log_sum;
    TokenLogprobs {
        sampled: sampled.map(logprob),
        top: top.map(|(token, score)| (token, logprob(score))).collect(),
    }
}

fn temperature(scores: &Scores<'_>, sampling: &Sampling, candidates: &mut Vec<Candidate>) -> f32 {
    match &sampling.dynamic_temperature {
        Some(dynamic) => {
            scores.at_least(f32::NEG_INFINITY, candidates);
            filters::dynamic_temperature(candidates, sampling.temperature, dynamic)
        }
        None => sampling.temperature,
    }
}

/// The candidates that the filters leave, their scores divided by the temperature.
fn narrow(
    scores: &mut Scores<'_>,
    row: &SampleRow,
    temperature: f32,
    candidates: &mut Vec<Candidate>,
    passes: &mut dyn Passes,
) {
    let sampling = &*row.sampling;
    let Sampling { top_n_sigma, typical_p, top_p, min_p, .. } = *sampling;
    let top_k = sampling.top_k as usize;
    let is_ranked = top_n_sigma > 0.0 || top_k > 0;
    if top_n_sigma > 0.0 {
        scores.at_least(f32::NEG_INFINITY, candidates);
        filters::top_n_sigma(candidates, top_n_sigma);
        filters::top_k(candidates, top_k);
    } else if top_k > 0 {
        scores.top(top_k, candidates);
    } else if typical_p < 1.0 {
        scores.at_least(f32::NEG_INFINITY, candidates);
    } else if top_p < 1.0 {
        top_p_of_row(scores, top_p, temperature, candidates, passes);
    } else {
        let least = least_score(scores, row, temperature, candidates);
        scores.at_least(least, candidates);
    }
    // What top-p took from the whole row is as it should be.
    let is_taken = !is_ranked && typical_p >= 1.0 && top_p < 1.0;
    if !is_taken {
        divide(candidates, temperature);
        filters::typical_p(candidates, typical_p);
        filters::top_p(candidates, top_p);
    }
    filters::min_p(candidates, min_p);
    if let Some(parameters) = &sampling.xtc {
        filters::xtc(candidates, parameters, noise(row));
    }
}

fn noise(row: &SampleRow) -> RowNoise {
    RowNoise::new(row.seed, row.choice, row.index)
}

fn divide(candidates: &mut [Candidate], temperature: f32) {
    for candidate in candidates {
        candidate.score /= temperature;
    }
}

/// Top-p where no filter was before it: the sum is one pass over the row, and mostly a few hundred tokens reach `p`.
fn top_p_of_row(
    scores: &mut Scores<'_>,
    p: f32,
    temperature: f32,
    candidates: &mut Vec<Candidate>,
    passes: &mut dyn Passes,
) {
    let max = scores.max() / temperature;
    let all = scores.mass(Scale { temperature, max }, passes);
    let mut count = TOP_P_FIRST;
    loop {
        scores.top(count, candidates);
        let are_all = candidates.len() < count;
        divide(candidates, temperature);
        candidates.sort_unstable_by(by_likelihood);
        let kept = filters::reaching(candidates, p, max, all);
        if kept.is_some() || are_all {
            candidates.truncate(kept.unwrap_or(candidates.len()));
            return;
        }
        count = count.saturating_mul(TOP_P_GROWTH);
    }
}

/// A score below which no token can be drawn, where no filter depends on the tokens that are left out.
fn least_score(
    scores: &mut Scores<'_>,
    row: &SampleRow,
    temperature: f32,
    candidates: &mut Vec<Candidate>,
) -> f32 {
    let sampling = &*row.sampling;
    let is_whole = sampling.xtc.is_some() || sampling.mirostat.is_some() || sampling.adaptive.is_some();
    let least = if sampling.min_p > 0.0 {
        scores.max() / temperature + sampling.min_p.ln()
    } else if is_whole {
        return f32::NEG_INFINITY;
    } else {
        scores.top(NOISY_FIRST, candidates);
        divide(candidates, temperature);
        let Some((_, best)) = noisiest(candidates, noise(row)) else { return f32::NEG_INFINITY };
        best - NOISE_MAX
    };
    // What rounding may have moved.
    (least - 0.01 - least.abs() * 1e-5) * temperature
}

/// Draws from what the filters left.
fn pick(
    candidates: &mut Vec<Candidate>,
    row: &SampleRow,
    running: Option<Running>,
) -> (Option<u32>, Option<Running>) {
    let steered = steer(candidates, &row.sampling, running);
    let Some((token, _)) = noisiest(candidates, noise(row)) else { return (None, None) };
    let place = || candidates.iter().position(|candidate| candidate.token == token);
    let running = steered.drawn(|| place().expect("the drawn token is a candidate"));
    (Some(token), running)
}

/// The candidate with the largest `score + noise`, and this sum: a draw from the softmax of the scores.
fn noisiest(candidates: &[Candidate], noise: RowNoise) -> Option<(u32, f32)> {
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
    Some((best.token, best.score))
}

#[cfg(test)]
mod tests {
    use super::super::{Adaptive, Dry, DynamicTemperature, Mirostat, Xtc};
    use super::*;
    use std::sync::Arc;

    fn row(sampling: Sampling, index: u32) -> SampleRow {
        SampleRow { sampling: Arc::new(sampling), seed: 42, choice: 0, index, allowed: None, banned: None }
    }

    const LOGITS: [f32; 8] = [1.0, 2.0, 0.5, -1.0, 3.0, 2.0, -4.0, 0.0];

    fn warm(change: impl FnOnce(&mut Sampling)) -> Sampling {
        let mut sampling = Sampling { temperature: 1.0, ..Sampling::greedy() };
        change(&mut sampling);
        sampling
    }

    /// Chi-square of seeded draws, 100,000 in a long run, against the probabilities that the filter's formula gives.
    fn check(name: &str, sampling: Sampling, history: &History, expected: &[f64]) {
        let draws = if std::env::var_os("GANNET_LONG_RUN").is_some() { 100_000u32 } else { 20_000 };
        let mut counts = [0u32; 8];
        for index in 0..draws {
            let token =
                draw(&LOGITS, &row(sampling.clone(), index), history).token.expect("a token is allowed");
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
    fn a_repeated_passage_is_punished_by_its_formula() {
        let history = History::new(&[5, 1, 2, 7, 4, 1, 2, 6, 5, 1, 2].map(TokenId), &[]);
        let dry = Dry { multiplier: 0.5, base: 2.0, allowed_length: 2, last_tokens: 0, breakers: Vec::new() };
        // `1 2` was followed by 6, and `5 1 2` by 7.
        let punished = [1.0, 2.0, 0.5, -1.0, 3.0, 2.0, -4.5, -1.0];
        check("dry", warm(|s| s.dry = Some(dry)), &history, &softmax(&punished));
    }

    #[test]
    fn mirostat_follows_its_formula_from_token_to_token() {
        let plain = [1.0f64, 2.0, 0.5, -1.0, 3.0, 2.0, -4.0, 0.0];
        let shares = softmax(&plain);
        let mirostat = Mirostat { target: 1.2, rate: 0.1 };
        let sampling = warm(|s| s.mirostat = Some(mirostat));
        let mut limit = 2.0 * f64::from(mirostat.target);
        let mut history = History::default();
        for index in 0..50 {
            let lets_through = |share: &f64| -share.log2() <= limit;
            let kept: Vec<f64> = plain
                .iter()
                .zip(&shares)
                .map(|(s, share)| if lets_through(share) { *s } else { NONE })
                .collect();
            let kept = if kept.iter().all(|s| *s == NONE) {
                vec![NONE, NONE, NONE, NONE, 3.0, NONE, NONE, NONE]
            } else {
                kept
            };
            if index % 10 == 0 {
                check(&format!("mirostat after {index}"), sampling.clone(), &history, &softmax(&kept));
            }
            let found = draw(&LOGITS, &row(sampling.clone(), index), &history);
            let token = found.token.expect("a token is allowed").0 as usize;
            limit -= f64::from(mirostat.rate) * (-softmax(&kept)[token].log2() - f64::from(mirostat.target));
            history.stands(found);
            let Some(Running::Mirostat { surprise_max }) = history.running() else { panic!("{found:?}") };
            assert!((f64::from(surprise_max) - limit).abs() < 1e-4, "{surprise_max}, expected {limit}");
        }
    }

    #[test]
    fn adaptive_p_follows_its_formula_from_token_to_token() {
        let plain = [1.0f64, 2.0, 0.5, -1.0, 3.0, 2.0, -4.0, 0.0];
        let shares = softmax(&plain);
        let (target, decay) = (0.3f64, 0.8f64);
        let sampling = warm(|s| s.adaptive = Some(Adaptive { target: 0.3, decay: 0.8 }));
        let (mut sum, mut weight) = (target / (1.0 - decay), 1.0 / (1.0 - decay));
        let mut history = History::default();
        for index in 0..40 {
            let moved = (2.0 * target - sum / weight).clamp(0.0, 1.0);
            let scored: Vec<f64> = shares
                .iter()
                .map(|share| {
                    let distance = (share - moved).abs() / 0.3;
                    5.0 - 10.0 * distance * distance / (1.0 + distance)
                })
                .collect();
            if index % 10 == 0 {
                check(&format!("adaptive-p after {index}"), sampling.clone(), &history, &softmax(&scored));
            }
            let found = draw(&LOGITS, &row(sampling.clone(), index), &history);
            let token = found.token.expect("a token is allowed").0 as usize;
            (sum, weight) = (shares[token] + decay * sum, 1.0 + decay * weight);
            history.stands(found);
            let Some(Running::Adaptive { sum: found, .. }) = history.running() else { panic!("{found:?}") };
            assert!((f64::from(found) - sum).abs() < 1e-4, "{found}, expected {sum}");
        }
    }

    /// A draw by sorting all tokens of a wide row, for what groups and thresholds must not change.
    fn by_sorting(logits: &[f32], row: &SampleRow, history: &History) -> Option<u32> {
        let mut all = Workspace::default();
        let (scores, _) = all.row(logits, row, history, &mut PlainPasses)?;
        let mut candidates = Vec::new();
        scores.at_least(f32::NEG_INFINITY, &mut candidates);
        let sampling = &row.sampling;
        candidates.sort_by(by_likelihood);
        if sampling.top_k > 0 {
            candidates.truncate(sampling.top_k as usize);
        }
        divide(&mut candidates, sampling.temperature);
        filters::top_p(&mut candidates, sampling.top_p);
        filters::min_p(&mut candidates, sampling.min_p);
        pick(&mut candidates, row, None).0
    }

    #[test]
    fn thresholds_dont_change_what_is_drawn_from_a_wide_row() {
        let logits: Vec<f32> = (0..9_000u32)
            .map(|id| ((id * 7919 % 10_007) as f32 * 0.37).sin() * 6.0 - (id % 5) as f32)
            .collect();
        let tokens: Vec<TokenId> = (0..300).map(|n| TokenId(n * 31 % 9_000)).collect();
        let history = History::new(&tokens, &tokens[..40]);
        let mask: Arc<[u32]> = (0..282u32).map(|word| word.wrapping_mul(0x9e37_79b9)).collect();
        type Change = fn(&mut Sampling);
        let changes: [Change; 7] = [
            |_| (),
            |s| s.top_k = 40,
            |s| s.top_k = 2000,
            |s| s.top_p = 0.9,
            |s| s.min_p = 0.02,
            |s| (s.top_p, s.min_p) = (0.999, 0.001),
            |s| (s.top_k, s.top_p, s.min_p) = (50, 0.95, 0.05),
        ];
        for (case, change) in changes.into_iter().enumerate() {
            for variant in 0..8 {
                let sampling = warm(|s| {
                    change(s);
                    s.temperature = if variant & 1 == 0 { 0.8 } else { 1.7 };
                    if variant & 2 == 2 {
                        (s.repetition_penalty, s.presence_penalty, s.frequency_penalty) = (1.2, 0.3, 0.2);
                        s.logit_bias = vec![(TokenId(8_999), 9.0), (TokenId(5), -3.0)];
                        s.banned = vec![TokenId(8_998), TokenId(64)];
                    }
                });
                for index in 0..20 {
                    let mut row = row(sampling.clone(), index);
                    row.allowed = (variant & 4 == 4).then(|| mask.clone());
                    let expected = by_sorting(&logits, &row, &history);
                    let found = draw(&logits, &row, &history).token.map(|token| token.0);
                    assert_eq!(found, expected, "case {case}, variant {variant}, index {index}");
                }
            }
        }
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
        assert_eq!(
            draw(&logits, &masked, &History::default()),
            Draw { token: None, not_finite: false, running: None }
        );
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
            assert_eq!(found, Draw { token: None, not_finite: true, running: None });
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
