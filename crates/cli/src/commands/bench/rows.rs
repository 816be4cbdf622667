//! What was measured, as rows for people and for programs.

use super::limits::Limits;
use super::profile::{PhaseFacts, Profile};
use super::streams::Draws;
use crate::quantity::{bytes, count};
use serde::Serialize;
use std::time::Duration;

/// A row; `--json` prints a list of them.
#[derive(Debug, Serialize)]
pub(super) struct Measured {
    pub(super) case: Case,
    /// Of the prompt, or drawn in each stream, or in all of a check's steps.
    pub(super) tokens: usize,
    /// Tokens that were there before.
    pub(super) depth: usize,
    pub(super) streams: usize,
    /// Of one sequence in a step of a check; absent in other rows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) rows: Option<usize>,
    /// How tokens were drawn.
    pub(super) draws: Draws,
    /// Of all streams together.
    pub(super) tokens_per_second: Spread,
    /// What was reached of the machine's bound, by the median.
    pub(super) bound_fraction: f64,
    /// From the first step's beginning to the first token of each stream, the median.
    pub(super) first_token_ms: f64,
    pub(super) bytes_per_token: u64,
    pub(super) operations_per_token: u64,
    /// Where the time goes; absent where it was not asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) profile: Option<Profile>,
    /// The start before the first request; absent in other rows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) start: Option<Start>,
}

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Case {
    /// The first request after the start: a prompt.
    Load,
    /// A prompt.
    Prefill,
    /// A token a step.
    Decode,
    /// Some rows of one sequence a step, as drafts are checked.
    Check,
}

impl Case {
    /// As the table calls it.
    fn name(self, draws: Draws) -> &'static str {
        match (self, draws) {
            (Case::Load, _) => "first",
            (Case::Prefill, _) => "prefill",
            (Case::Decode, Draws::Greedy) => "decode",
            (Case::Decode, Draws::Sampled) => "sampled",
            (Case::Decode, Draws::Masked) => "masked",
            (Case::Check, _) => "check",
        }
    }
}

/// What the first request waited for.
#[derive(Debug, Serialize)]
pub(super) struct Start {
    /// From the command to a model that is ready.
    pub(super) load_ms: f64,
    /// From the command to the first token.
    pub(super) first_token_ms: f64,
    pub(super) machine: Limits,
    /// The engine's phases; absent where they were not asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) phases: Option<PhaseFacts>,
}

/// Repeated measurements.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct Spread {
    pub(super) median: f64,
    pub(super) min: f64,
    pub(super) max: f64,
}

impl Spread {
    /// Rates of so many tokens in each of these times; there is at least one.
    pub(super) fn of_times(tokens: usize, times: &[Duration]) -> Self {
        let rate = |time: &Duration| tokens as f64 / time.as_secs_f64().max(f64::MIN_POSITIVE);
        Self::of(times.iter().map(rate).collect())
    }

    /// Of numbers; there is at least one.
    pub(super) fn of(mut numbers: Vec<f64>) -> Self {
        numbers.sort_by(f64::total_cmp);
        let middle = numbers.len() / 2;
        let median = if numbers.len().is_multiple_of(2) {
            numbers[middle - 1].midpoint(numbers[middle])
        } else {
            numbers[middle]
        };
        Self { median, min: numbers[0], max: numbers[numbers.len() - 1] }
    }
}

/// The title of the columns.
pub(super) fn title() -> String {
    cells([
        "case",
        "tokens",
        "depth",
        "streams",
        "tokens/s",
        "min",
        "max",
        "first token",
        "bytes/token",
        "op/token",
        "of the bound",
    ])
}

impl Measured {
    /// The case in words.
    pub(super) fn name(&self) -> String {
        let Self { case, tokens, depth, streams, .. } = self;
        let many = match self.rows {
            Some(rows) => format!(" by {rows} a step"),
            None if *streams > 1 => format!(" in each of {streams} streams"),
            None => String::new(),
        };
        format!("{} {tokens} at depth {depth}{many}", case.name(self.draws))
    }

    /// The row under the title.
    pub(super) fn line(&self) -> String {
        let Self { case, depth, streams, tokens_per_second, .. } = self;
        let tokens = self.rows.unwrap_or(self.tokens);
        let rate = |rate: f64| format!("{rate:.1}");
        cells([
            case.name(self.draws),
            &tokens.to_string(),
            &depth.to_string(),
            &streams.to_string(),
            &rate(tokens_per_second.median),
            &rate(tokens_per_second.min),
            &rate(tokens_per_second.max),
            &format!("{:.1} ms", self.first_token_ms),
            &bytes(self.bytes_per_token),
            &count(self.operations_per_token),
            &format!("{:.0} %", 100.0 * self.bound_fraction),
        ])
    }
}

fn cells(cells: [&str; 11]) -> String {
    let [case, tokens, depth, streams, median, min, max, first, bytes, operations, bound] = cells;
    format!(
        "{case:<8}{tokens:>7}{depth:>8}{streams:>8}{median:>11}{min:>11}{max:>11}{first:>14}{bytes:>13}{operations:>12}{bound:>14}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_the_middle_rate() {
        let check = |milliseconds: &[u64], [median, min, max]: [f64; 3]| {
            let times: Vec<Duration> = milliseconds.iter().copied().map(Duration::from_millis).collect();
            assert_eq!(Spread::of_times(10, &times), Spread { median, min, max });
        };
        check(&[1000], [10.0, 10.0, 10.0]);
        check(&[1000, 500, 2000], [10.0, 5.0, 20.0]);
        check(&[1000, 500], [15.0, 10.0, 20.0]);
    }
}
