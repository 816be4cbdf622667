//! How long the parts of an answer took, as a line for people and as an object for programs.

use gannet_engine::Usage;
use serde::Serialize;
use std::time::Duration;

/// What an answer took, with the time before it.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Timings {
    /// From the start to a model that is ready.
    load_ms: f64,
    /// From the request to its first step.
    queued_ms: f64,
    /// From the first step to the first token.
    prefill_ms: f64,
    /// From the first token to the end.
    decode_ms: f64,
    prompt_tokens: u32,
    /// Tokens of the prompt that an earlier one had computed.
    reused_tokens: u32,
    /// The end token included.
    generated_tokens: u32,
    /// Of the tokens that were computed.
    prompt_tokens_per_second: Option<f64>,
    /// Of the tokens after the first.
    tokens_per_second: Option<f64>,
}

impl Timings {
    pub(crate) fn new(load: Duration, usage: &Usage) -> Self {
        let parts = usage.timings;
        Self {
            load_ms: milliseconds(load),
            queued_ms: milliseconds(parts.queued),
            prefill_ms: milliseconds(parts.prefill),
            decode_ms: milliseconds(parts.decode),
            prompt_tokens: usage.prompt_tokens,
            reused_tokens: usage.reused_tokens,
            generated_tokens: usage.generated_tokens,
            prompt_tokens_per_second: rate(
                usage.prompt_tokens.saturating_sub(usage.reused_tokens),
                parts.prefill,
            ),
            tokens_per_second: rate(usage.generated_tokens.saturating_sub(1), parts.decode),
        }
    }

    /// One line for people.
    pub(crate) fn line(&self) -> String {
        let reused = match self.reused_tokens {
            0 => String::new(),
            tokens => format!(" ({tokens} of them reused)"),
        };
        let unit = Unit { name: "prompt token", remark: &reused };
        let prompt = part(self.prompt_tokens, &unit, self.prefill_ms, self.prompt_tokens_per_second);
        let answer = part(
            self.generated_tokens,
            &Unit { name: "token", remark: "" },
            self.decode_ms,
            self.tokens_per_second,
        );
        format!("loaded in {:.2} s; {prompt}; {answer}", self.load_ms / 1e3)
    }
}

/// What is counted, and what is to be said of it.
struct Unit<'a> {
    name: &'a str,
    remark: &'a str,
}

fn part(tokens: u32, unit: &Unit<'_>, milliseconds: f64, per_second: Option<f64>) -> String {
    let plural = if tokens == 1 { "" } else { "s" };
    let rate = per_second.map_or(String::new(), |rate| format!(" ({rate:.1}/s)"));
    format!("{tokens} {}{plural}{} in {:.2} s{rate}", unit.name, unit.remark, milliseconds / 1e3)
}

fn milliseconds(time: Duration) -> f64 {
    (time.as_secs_f64() * 1e6).round() / 1e3
}

/// Tokens a second; none where there is nothing to divide.
pub(crate) fn rate(tokens: u32, time: Duration) -> Option<f64> {
    let seconds = time.as_secs_f64();
    (tokens > 0 && seconds > 0.0).then(|| f64::from(tokens) / seconds)
}

#[cfg(test)]
mod tests {
    use super::*;
    use gannet_engine::Timings as EngineTimings;

    fn usage(prompt_tokens: u32, generated_tokens: u32, decode: Duration) -> Usage {
        let timings = EngineTimings { queued: Duration::ZERO, prefill: Duration::from_millis(500), decode };
        Usage { prompt_tokens, generated_tokens, timings, ..Usage::default() }
    }

    #[test]
    fn the_first_token_belongs_to_the_prompt_and_the_others_to_the_rate() {
        let timings = Timings::new(Duration::from_secs(1), &usage(10, 21, Duration::from_secs(2)));
        assert_eq!(
            timings.line(),
            "loaded in 1.00 s; 10 prompt tokens in 0.50 s (20.0/s); 21 tokens in 2.00 s (10.0/s)"
        );
    }

    #[test]
    fn reused_tokens_are_told_and_not_counted_as_computed() {
        let usage = Usage { reused_tokens: 8, ..usage(10, 1, Duration::ZERO) };
        let line = Timings::new(Duration::ZERO, &usage).line();
        assert!(line.contains("10 prompt tokens (8 of them reused) in 0.50 s (4.0/s)"), "{line}");
    }

    #[test]
    fn a_single_token_has_no_rate() {
        let timings = Timings::new(Duration::ZERO, &usage(1, 1, Duration::ZERO));
        assert_eq!(timings.line(), "loaded in 0.00 s; 1 prompt token in 0.50 s (2.0/s); 1 token in 0.00 s");
        assert_eq!(timings.tokens_per_second, None);
    }
}
