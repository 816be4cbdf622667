//! What a trace came to: throughput, waiting times by percentile, and what the prefix cache gave.

use super::recorder::Record;
use crate::commands::bench::ranks::nearest_rank;
use crate::quantity::{bytes, entry};
use gannet_engine::EngineStats;
use gannet_loader::machine::Process;
use gannet_loader::{MemoryClass, MemoryUse};
use serde::Serialize;
use std::time::Duration;

/// All of it.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    requests: usize,
    failed: usize,
    /// Why the first one failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    failure: Option<String>,
    seconds: f64,
    prompt_tokens: u64,
    /// Of these, those that the prefix cache had.
    reused_tokens: u64,
    generated_tokens: u64,
    generated_tokens_per_second: f64,
    prompt_tokens_per_second: f64,
    first_token_ms: Percentiles,
    /// Of the long prompt, where there is one, from the moment at which it left the queue.
    #[serde(skip_serializing_if = "Option::is_none")]
    long_first_token_ms: Option<f64>,
    /// The same of such a prompt alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    long_alone_first_token_ms: Option<f64>,
    between_tokens_ms: Percentiles,
    queued_ms: Percentiles,
    preemptions: u64,
    evicted_pages: u64,
    steps: u64,
    /// Steps that held rows of prompts.
    prompt_steps: u64,
    rows: u64,
    /// Bytes that the model's memory was planned to take.
    planned_bytes: u64,
    /// Bytes of memory that are the process's own at the end; null where the system doesn't say.
    measured_bytes: Option<u64>,
    /// Both by class.
    memory: Vec<ClassBytes>,
    /// Page faults while requests were served that had to read a file.
    major_faults: Option<u64>,
}

/// Bytes of a class of memory.
#[derive(Debug, Serialize)]
struct ClassBytes {
    class: &'static str,
    planned: u64,
    measured: u64,
}

/// What memory was planned, and what the requests left.
pub(super) struct MemoryFigures {
    pub(super) planned: MemoryUse,
    /// What lay in memory at the end, by class.
    pub(super) measured: MemoryUse,
    /// The process before the requests and after.
    pub(super) before: Option<Process>,
    pub(super) after: Option<Process>,
}

/// Milliseconds that a share of all is not above.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
struct Percentiles {
    p50: f64,
    p95: f64,
    p99: f64,
    max: f64,
}

impl Report {
    pub(super) fn new(records: &[Record], long: Option<&Record>, stats: EngineStats, time: Duration) -> Self {
        let sum =
            |count: fn(&Record) -> u32| records.iter().map(|record| u64::from(count(record))).sum::<u64>();
        let (prompt_tokens, generated_tokens) =
            (sum(|record| record.usage.prompt_tokens), sum(|record| record.usage.generated_tokens));
        let seconds = time.as_secs_f64();
        Self {
            requests: records.len(),
            failed: records.iter().filter(|record| record.failure.is_some()).count(),
            failure: records.iter().find_map(|record| record.failure.clone()),
            seconds,
            prompt_tokens,
            reused_tokens: sum(|record| record.usage.reused_tokens),
            generated_tokens,
            generated_tokens_per_second: generated_tokens as f64 / seconds,
            prompt_tokens_per_second: prompt_tokens as f64 / seconds,
            first_token_ms: Percentiles::of(records.iter().filter_map(|record| record.first_token)),
            long_first_token_ms: long.and_then(Record::first_token_once_begun).map(milliseconds),
            long_alone_first_token_ms: None,
            between_tokens_ms: Percentiles::of(
                records.iter().flat_map(|record| record.between.iter().copied()),
            ),
            queued_ms: Percentiles::of(records.iter().map(|record| record.usage.timings.queued)),
            preemptions: stats.preemptions,
            evicted_pages: stats.prefix.evicted_pages,
            steps: stats.steps,
            prompt_steps: stats.prompt_steps,
            rows: stats.rows,
            planned_bytes: 0,
            measured_bytes: None,
            memory: Vec::new(),
            major_faults: None,
        }
    }

    /// With what the long prompt's first token takes alone.
    pub(super) fn with_long_alone(self, time: Option<Duration>) -> Self {
        Self { long_alone_first_token_ms: time.map(milliseconds), ..self }
    }

    /// With what memory was planned and what was taken.
    pub(super) fn with_memory(self, figures: &MemoryFigures) -> Self {
        let MemoryFigures { planned, measured, before, after } = figures;
        let major_faults = before.zip(*after).map(|(before, after)| after.major_faults - before.major_faults);
        let measured_bytes = after.map(|now| now.own_bytes);
        let measured = measured_bytes.map_or(*measured, |bytes| measured.with_rest_of(bytes));
        let class = |class: MemoryClass| ClassBytes {
            class: class.name(),
            planned: planned.of(class),
            measured: measured.of(class),
        };
        let has_any = |bytes: &ClassBytes| bytes.planned > 0 || bytes.measured > 0;
        let memory = MemoryClass::ALL.into_iter().map(class).filter(has_any).collect();
        Self { planned_bytes: planned.total(), measured_bytes, memory, major_faults, ..self }
    }

    pub(super) fn lines(&self) -> Vec<String> {
        let share = |part: u64, all: u64| 100.0 * part as f64 / all.max(1) as f64;
        let mut lines = vec![
            entry(
                "requests",
                &format!("{} in {:.2} s, {} of them failed", self.requests, self.seconds, self.failed),
            ),
            entry(
                "throughput",
                &format!(
                    "{:.1} tokens/s generated, {:.1} tokens/s of prompts",
                    self.generated_tokens_per_second, self.prompt_tokens_per_second
                ),
            ),
            entry("first token", &self.first_token_ms.text()),
            entry(
                "between tokens",
                &format!(
                    "{}, p99 / p50 {:.2}",
                    self.between_tokens_ms.text(),
                    self.between_tokens_ms.spread()
                ),
            ),
            entry("queued", &self.queued_ms.text()),
            entry(
                "prefix cache",
                &format!(
                    "{} of {} prompt tokens reused ({:.1} %), {} pages evicted",
                    self.reused_tokens,
                    self.prompt_tokens,
                    share(self.reused_tokens, self.prompt_tokens),
                    self.evicted_pages
                ),
            ),
            entry(
                "steps",
                &format!(
                    "{} of {:.1} rows on average, {:.1} % of them with rows of prompts, {} preemptions",
                    self.steps,
                    self.rows as f64 / self.steps.max(1) as f64,
                    share(self.prompt_steps, self.steps),
                    self.preemptions
                ),
            ),
        ];
        let known = |count: Option<u64>| count.map_or("unknown".to_owned(), bytes);
        let (planned, measured) = (bytes(self.planned_bytes), known(self.measured_bytes));
        lines.push(entry("memory", &format!("planned {planned}, measured {measured}")));
        lines.extend(self.memory.iter().map(|ClassBytes { class, planned, measured }| {
            entry(
                &format!("  {class}"),
                &format!("planned {}, measured {}", bytes(*planned), bytes(*measured)),
            )
        }));
        if let Some(faults) = self.major_faults.filter(|faults| *faults > 0) {
            lines.push(entry(
                "warning",
                &format!("{faults} page faults had to read a file or swapped memory"),
            ));
        }
        if let Some((among, alone)) = self.long_first_token_ms.zip(self.long_alone_first_token_ms) {
            let text = format!(
                "first token {among:.1} ms after it left the queue, {alone:.1} ms alone: {:.2} times",
                among / alone
            );
            lines.push(entry("long prompt", &text));
        }
        lines.extend(self.failure.iter().map(|why| entry("failure", why)));
        lines
    }
}

impl Percentiles {
    /// By the nearest rank; zeros where there is nothing.
    fn of(times: impl Iterator<Item = Duration>) -> Self {
        let mut milliseconds: Vec<f64> = times.map(|time| time.as_secs_f64() * 1e3).collect();
        milliseconds.sort_by(f64::total_cmp);
        let Some(&max) = milliseconds.last() else { return Self::default() };
        let at = |percent| nearest_rank(&milliseconds, percent).unwrap_or_default();
        Self { p50: at(50), p95: at(95), p99: at(99), max }
    }

    fn text(&self) -> String {
        let Self { p50, p95, p99, max } = self;
        format!("p50 {p50:.1} ms, p95 {p95:.1} ms, p99 {p99:.1} ms, longest {max:.1} ms")
    }

    /// How many times as long as the usual one the slowest of a hundred takes.
    fn spread(&self) -> f64 {
        if self.p50 > 0.0 { self.p99 / self.p50 } else { 0.0 }
    }
}

fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_of_the_nearest_rank() {
        let of = |times: &[u64]| Percentiles::of(times.iter().copied().map(Duration::from_millis));
        let hundred: Vec<u64> = (1..=100).rev().collect();
        assert_eq!(of(&hundred), Percentiles { p50: 50.0, p95: 95.0, p99: 99.0, max: 100.0 });
        assert_eq!(of(&[7]), Percentiles { p50: 7.0, p95: 7.0, p99: 7.0, max: 7.0 });
        assert_eq!(of(&[]), Percentiles::default());
    }
}
