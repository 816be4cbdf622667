//! `gannet bench --engine`: decoding through the whole engine beside the bare plan, and what each part of a step takes.
//!
//! Both run over one loaded model, in turns: the same number of sequences, each from a prompt of one token, draws the same
//! number of tokens. What the engine takes longer is scheduling, pages, prefix cache and events.

use super::BenchArguments;
use super::rows::Spread;
use super::streams::Streams;
use crate::failure::Failure;
use crate::output;
use crate::progress;
use crossbeam_channel::unbounded;
use gannet_engine::{EngineHandle, EngineOptions, Phases, Request};
use gannet_loader::{LoadOptions, Loaded, Running};
use serde::Serialize;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// What `--json` prints, a row for each number of streams.
#[derive(Debug, Serialize)]
struct Compared {
    streams: usize,
    bare_tokens_per_second: f64,
    engine_tokens_per_second: f64,
    /// Of the engine's rate in the bare plan's: the median of the pairs.
    ratio: f64,
    /// Microseconds of a step on the engine's thread.
    schedule_us: f64,
    assemble_us: f64,
    run_us: f64,
    sample_us: f64,
    commit_us: f64,
}

/// One model in two bodies: the bare plan, and an engine.
struct Pair {
    streams: Streams,
    handle: EngineHandle,
}

/// Measures and prints.
pub(super) fn run(arguments: &BenchArguments) -> Result<(), Failure> {
    let tokens = arguments.decode.iter().copied().max().unwrap_or(1).max(2);
    let most = arguments.streams_max();
    let path = arguments.model.reference.locate()?;
    let backend = arguments.model.device.open()?;
    let options = LoadOptions {
        context: Some((tokens + 2).max(most)),
        sequences: Some(most),
        kv_format: arguments.kv.format,
        random_weights: arguments.weights.random(),
        ..LoadOptions::default()
    };
    let load = || progress::load(&path, backend.as_ref(), &options);
    let (Loaded { runner: bare, .. }, Loaded { runner, .. }) = (load()?, load()?);
    let options = EngineOptions { sequences: most, waiting: most, ..EngineOptions::default() };
    let Running { handle, thread } = gannet_loader::start(runner, options)?;
    let mut pair = Pair { streams: Streams::new(bare, most), handle };
    let rows = arguments.streams.iter().map(|streams| pair.compare(*streams, tokens, arguments.repeat));
    let rows = rows.collect::<Result<Vec<_>, _>>()?;
    drop(pair);
    if let Err(panic) = thread.join() {
        std::panic::resume_unwind(panic);
    }
    if arguments.json { output::show_json(&rows) } else { output::show(&table(&rows)) }
}

impl Pair {
    fn compare(&mut self, streams: usize, tokens: usize, repeat: usize) -> Result<Compared, Failure> {
        let mut times: Vec<(Duration, Duration)> = Vec::new();
        let (phases, steps) = (self.handle.stats().phases, self.handle.stats().steps);
        // The first pair warms both up.
        for _ in 0..=repeat {
            times.push((self.bare(streams, tokens)?, self.engine(streams, tokens)?));
        }
        let stats = self.handle.stats();
        let each = |part: fn(&Phases) -> Duration| {
            (part(&stats.phases) - part(&phases)).as_secs_f64() * 1e6 / (stats.steps - steps) as f64
        };
        let drawn = (streams * tokens) as f64;
        let median = |number: fn(&(Duration, Duration)) -> f64| {
            Spread::of(times[1..].iter().map(number).collect()).median
        };
        Ok(Compared {
            streams,
            bare_tokens_per_second: drawn / median(|(bare, _)| bare.as_secs_f64()),
            engine_tokens_per_second: drawn / median(|(_, engine)| engine.as_secs_f64()),
            ratio: median(|(bare, engine)| bare.as_secs_f64() / engine.as_secs_f64()),
            schedule_us: each(|phases| phases.schedule),
            assemble_us: each(|phases| phases.assemble),
            run_us: each(|phases| phases.run),
            sample_us: each(|phases| phases.sample),
            commit_us: each(|phases| phases.commit),
        })
    }

    fn bare(&mut self, streams: usize, tokens: usize) -> Result<Duration, Failure> {
        self.streams.prepare(streams, 0)?;
        let started = Instant::now();
        self.streams.decode(streams, tokens)?;
        Ok(started.elapsed())
    }

    /// The same tokens by requests, from the first submission to the last end.
    fn engine(&self, streams: usize, tokens: usize) -> Result<Duration, Failure> {
        let (sender, ends) = unbounded();
        let sink = Arc::new(super::idle::Ends(sender));
        let started = Instant::now();
        for stream in 0..streams {
            let prompt = vec![self.streams.token(stream, 0)];
            self.handle.submit(Request::greedy(prompt, tokens as u32, sink.clone()))?;
        }
        for _ in 0..streams {
            ends.recv()
                .map_err(|_| anyhow::anyhow!("the engine stopped in the middle of the measurement"))?;
        }
        Ok(started.elapsed())
    }
}

fn table(rows: &[Compared]) -> String {
    let mut text = format!(
        "{:>7} {:>10} {:>10} {:>7} {:>11} {:>11} {:>11} {:>11} {:>11}\n",
        "streams",
        "bare",
        "engine",
        "ratio",
        "schedule us",
        "assemble us",
        "run us",
        "sample us",
        "commit us"
    );
    for row in rows {
        text += &format!(
            "{:>7} {:>10.1} {:>10.1} {:>7.3} {:>11.1} {:>11.1} {:>11.1} {:>11.1} {:>11.1}\n",
            row.streams,
            row.bare_tokens_per_second,
            row.engine_tokens_per_second,
            row.ratio,
            row.schedule_us,
            row.assemble_us,
            row.run_us,
            row.sample_us,
            row.commit_us
        );
    }
    text
}
