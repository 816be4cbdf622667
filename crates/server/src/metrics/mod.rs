//! Numbers about each model's requests, in Prometheus's text form.
//!
//! The names, labels and buckets are vLLM's where dashboards, autoscalers and routers read them; what only this engine
//! has is called `gannet_*`. Counting is a few atomic additions, so a token costs next to nothing here.
//!
//! Form: <https://prometheus.io/docs/instrumenting/exposition_formats/>

mod histogram;
mod text;

use gannet_engine::Usage;
use histogram::Histogram;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

pub(crate) use text::of_models;

/// Seconds to a first token.
const FIRST_TOKEN: &[f64] = &[
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0,
    80.0, 160.0, 640.0, 2560.0,
];
/// Seconds between two tokens.
const BETWEEN_TOKENS: &[f64] = &[
    0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0,
];
/// Seconds of a request or of a part of it.
const REQUEST: &[f64] = &[
    0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0, 480.0,
    960.0, 1920.0, 7680.0,
];
/// Tokens of a prompt or an answer.
const TOKENS: &[f64] = &[
    1.0,
    2.0,
    5.0,
    10.0,
    20.0,
    50.0,
    100.0,
    200.0,
    500.0,
    1000.0,
    2000.0,
    5000.0,
    10_000.0,
    20_000.0,
    50_000.0,
    100_000.0,
    200_000.0,
    500_000.0,
    1_000_000.0,
];

/// Answers to one prompt.
const ANSWERS: &[f64] = &[1.0, 2.0, 5.0, 10.0, 20.0];

/// How requests end, by the words of the metric's label.
pub(crate) const REASONS: [&str; 5] = ["stop", "length", "abort", "timeout", "error"];

/// What is counted of one model's requests.
#[derive(Debug)]
pub(crate) struct ModelMetrics {
    first_token: Histogram,
    between_tokens: Histogram,
    per_token: Histogram,
    request: Histogram,
    queue: Histogram,
    prefill: Histogram,
    decode: Histogram,
    inference: Histogram,
    prompt: Histogram,
    answer: Histogram,
    longest_answer: Histogram,
    asked_tokens: Histogram,
    asked_answers: Histogram,
    prompt_tokens: AtomicU64,
    answer_tokens: AtomicU64,
    ended: [AtomicU64; REASONS.len()],
    refused: AtomicU64,
    reused_tokens: AtomicU64,
    common_tokens: AtomicU64,
    cut_tokens: AtomicU64,
}

impl Default for ModelMetrics {
    fn default() -> Self {
        Self {
            first_token: Histogram::new(FIRST_TOKEN),
            between_tokens: Histogram::new(BETWEEN_TOKENS),
            per_token: Histogram::new(BETWEEN_TOKENS),
            request: Histogram::new(REQUEST),
            queue: Histogram::new(REQUEST),
            prefill: Histogram::new(REQUEST),
            decode: Histogram::new(REQUEST),
            inference: Histogram::new(REQUEST),
            prompt: Histogram::new(TOKENS),
            answer: Histogram::new(TOKENS),
            longest_answer: Histogram::new(TOKENS),
            asked_tokens: Histogram::new(TOKENS),
            asked_answers: Histogram::new(ANSWERS),
            prompt_tokens: AtomicU64::new(0),
            answer_tokens: AtomicU64::new(0),
            ended: Default::default(),
            refused: AtomicU64::new(0),
            reused_tokens: AtomicU64::new(0),
            common_tokens: AtomicU64::new(0),
            cut_tokens: AtomicU64::new(0),
        }
    }
}

impl ModelMetrics {
    /// So many answers of so many tokens at most were asked for.
    pub(crate) fn asked(&self, answers: usize, tokens: u32) {
        self.asked_answers.observe(answers as f64);
        self.asked_tokens.observe(f64::from(tokens));
    }

    /// All answers to a prompt have ended; the longest of them has so many tokens.
    pub(crate) fn all_ended(&self, longest: u32) {
        self.longest_answer.observe(f64::from(longest));
    }

    /// A first token has come.
    pub(crate) fn first_token(&self, after: Duration) {
        self.first_token.observe(after.as_secs_f64());
    }

    /// A further token has come.
    pub(crate) fn inter_token(&self, after: Duration) {
        self.between_tokens.observe(after.as_secs_f64());
    }

    /// A request has left the queue: tokens of its prompt that needn't be computed, and those that the prefix cache had in
    /// common with it.
    pub(crate) fn started(&self, reused: u32, common: u32) {
        self.reused_tokens.fetch_add(u64::from(reused), Ordering::Relaxed);
        self.common_tokens.fetch_add(u64::from(common), Ordering::Relaxed);
    }

    /// A prompt was cut, as its request asked for.
    pub(crate) fn cut(&self, tokens: usize) {
        self.cut_tokens.fetch_add(tokens as u64, Ordering::Relaxed);
    }

    /// There was no room for a request.
    pub(crate) fn refused(&self) {
        self.refused.fetch_add(1, Ordering::Relaxed);
    }

    /// An answer has ended.
    pub(crate) fn ended(&self, usage: &Usage, reason: &str, took: Duration) {
        let timings = usage.timings;
        self.request.observe(took.as_secs_f64());
        self.queue.observe(timings.queued.as_secs_f64());
        self.prefill.observe(timings.prefill.as_secs_f64());
        self.decode.observe(timings.decode.as_secs_f64());
        self.inference.observe((timings.prefill + timings.decode).as_secs_f64());
        self.prompt.observe(f64::from(usage.prompt_tokens));
        self.answer.observe(f64::from(usage.generated_tokens));
        if usage.generated_tokens > 1 {
            self.per_token.observe(timings.decode.as_secs_f64() / f64::from(usage.generated_tokens - 1));
        }
        self.prompt_tokens.fetch_add(u64::from(usage.prompt_tokens), Ordering::Relaxed);
        self.answer_tokens.fetch_add(u64::from(usage.generated_tokens), Ordering::Relaxed);
        self.count(reason);
    }

    /// An answer was given up because nobody wants it any more.
    pub(crate) fn aborted(&self) {
        self.count("abort");
    }

    fn count(&self, reason: &str) {
        let word = if reason == "cancelled" { "abort" } else { reason };
        let place = REASONS.iter().position(|known| *known == word);
        if let Some(place) = place {
            self.ended[place].fetch_add(1, Ordering::Relaxed);
        }
    }
}
