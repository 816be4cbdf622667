//! What came of a case: percentiles of what the clients saw.

use super::client::Sample;
use super::processor::{Share, seconds_of};
use crate::commands::bench::ranks::nearest_rank;
use serde::Serialize;

/// All cases.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    pub(super) address: String,
    pub(super) model: String,
    /// Processor time of this process, which the server didn't have where both share a machine; none where it can't be told.
    pub(super) own_cpu_seconds: Option<f64>,
    pub(super) cases: Vec<Case>,
}

/// One case.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Case {
    pub(super) prompt_tokens: usize,
    pub(super) answer_tokens: usize,
    pub(super) clients: usize,
    requests: usize,
    seconds: f64,
    /// Tokens of answers a second, of all clients together.
    pub(super) tokens_per_second: f64,
    pub(super) first_token_ms: Percentiles,
    pub(super) between_tokens_ms: Percentiles,
    /// Requests a second that were as fast as asked for.
    good_per_second: f64,
    /// Where the server's processor time went, where its process is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) server: Option<Share>,
}

/// Three percentiles, by nearest rank.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct Percentiles {
    pub(super) p50: f64,
    pub(super) p95: f64,
    pub(super) p99: f64,
}

impl Percentiles {
    /// Of times in seconds, as milliseconds; zeros where there are none.
    fn of(mut seconds: Vec<f64>) -> Self {
        seconds.sort_by(f64::total_cmp);
        let at = |percent| nearest_rank(&seconds, percent).map_or(0.0, |time| 1000.0 * time);
        Self { p50: at(50), p95: at(95), p99: at(99) }
    }
}

impl Case {
    pub(super) fn new(
        (prompt_tokens, answer_tokens): (usize, usize),
        clients: usize,
        samples: &[Sample],
        good: usize,
        seconds: f64,
    ) -> Self {
        let tokens: usize = samples.iter().map(Sample::tokens).sum();
        Self {
            prompt_tokens,
            answer_tokens,
            clients,
            requests: samples.len(),
            seconds,
            tokens_per_second: tokens as f64 / seconds,
            first_token_ms: Percentiles::of(samples.iter().map(|sample| sample.first).collect()),
            between_tokens_ms: Percentiles::of(
                samples.iter().flat_map(|sample| sample.gaps.clone()).collect(),
            ),
            good_per_second: good as f64 / seconds,
            server: None,
        }
    }

    pub(super) fn head() -> String {
        format!(
            "{:>12} {:>8} {:>9} {:>10} {:>30} {:>30} {:>8}",
            "shape",
            "clients",
            "requests",
            "tokens/s",
            "first token ms p50/p95/p99",
            "between ms p50/p95/p99",
            "good/s"
        )
    }

    pub(super) fn line(&self) -> String {
        let three = |of: &Percentiles| format!("{:.1} / {:.1} / {:.1}", of.p50, of.p95, of.p99);
        let shape = format!("{}/{}", self.prompt_tokens, self.answer_tokens);
        let Self { clients, requests, tokens_per_second, good_per_second, .. } = self;
        let (first, between) = (three(&self.first_token_ms), three(&self.between_tokens_ms));
        format!(
            "{shape:>12} {clients:>8} {requests:>9} {tokens_per_second:>10.1} {first:>30} {between:>30} \
             {good_per_second:>8.2}"
        )
    }
}

/// Processor time of this process so far.
pub(super) fn own_cpu_seconds() -> Option<f64> {
    seconds_of(&std::fs::read_to_string("/proc/self/stat").ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_the_nearest_ranks() {
        let hundred = (1..=100).map(|number| f64::from(number) / 1000.0).collect();
        let Percentiles { p50, p95, p99 } = Percentiles::of(hundred);
        assert_eq!((p50.round(), p95.round(), p99.round()), (50.0, 95.0, 99.0));
        assert_eq!(Percentiles::of(vec![0.5]), Percentiles { p50: 500.0, p95: 500.0, p99: 500.0 });
        assert_eq!(Percentiles::of(Vec::new()), Percentiles { p50: 0.0, p95: 0.0, p99: 0.0 });
    }

    #[test]
    fn a_case_counts_tokens_of_all_requests() {
        let sample = Sample { first: 0.1, gaps: vec![0.01; 9] };
        let case = Case::new((5, 10), 2, &[sample.clone(), sample], 1, 2.0);
        assert_eq!((case.tokens_per_second, case.good_per_second, case.requests), (10.0, 0.5, 2));
        assert_eq!(case.first_token_ms.p99, 100.0);
        assert!(case.line().contains("5/10"));
    }
}
