//! `gannet bench --serve-sim`: a made-up trace of requests through the whole engine, as a server would send them.
//!
//! Requests are sent when the trace says so, whether or not earlier ones are done, and every time counts from that
//! moment: an engine that can't keep up shows it as waiting.

mod recorder;
mod report;
mod trace;

use super::BenchArguments;
use crate::arguments::{check_step_tokens, values};
use crate::failure::Failure;
use crate::output;
use crate::progress;
use clap::Args;
use gannet_engine::{EngineHandle, EngineOptions, EngineStats, Request, Runner};
use gannet_loader::machine::Process;
use gannet_loader::{DEFAULT_STEP_ROWS, LoadOptions, Loaded, MemoryUse, Running};
use gannet_ops::Readiness;
use recorder::{Record, Recorder};
use report::{MemoryFigures, Report};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};
use trace::{Arrival, Shape, trace};

/// How long an idle engine may take to say what lies in memory.
const PATIENCE: Duration = Duration::from_secs(10);

/// What a trace looks like.
#[derive(Debug, Args)]
#[command(next_help_heading = "Trace (with --serve-sim)")]
pub(crate) struct TraceArguments {
    /// Requests of the trace
    #[arg(long, value_name = "N", default_value = "64", value_parser = values::times, requires = "serve_sim")]
    requests: usize,
    /// Requests that arrive a second, at random moments; 0 is all at once
    #[arg(long, value_name = "X", default_value = "2", value_parser = values::rate, requires = "serve_sim")]
    rate: f64,
    /// Tokens of a prompt: from half to one and a half of this
    #[arg(long, value_name = "TOKENS", default_value = "256", value_parser = values::token_count, requires = "serve_sim")]
    prompt_tokens: usize,
    /// Tokens of an answer: from half to one and a half of this
    #[arg(long, value_name = "TOKENS", default_value = "64", value_parser = values::token_count, requires = "serve_sim")]
    answer_tokens: usize,
    /// Share of --prompt-tokens that all prompts begin with
    #[arg(long, value_name = "SHARE", default_value = "0.5", value_parser = values::share, requires = "serve_sim")]
    shared: f64,
    /// Tokens of a step [default: as many as fit into its time]
    #[arg(long, value_name = "N", value_parser = values::token_count, requires = "serve_sim")]
    step_tokens: Option<usize>,
    /// One more request in the middle of the trace, with a prompt of so many tokens and an answer of one; such a prompt is
    /// computed once more when all others are done, for what it takes alone
    #[arg(long, value_name = "TOKENS", value_parser = values::token_count, requires = "serve_sim")]
    long_prompt: Option<usize>,
    /// The seed of lengths and moments
    #[arg(long, value_name = "N", default_value = "1", requires = "serve_sim")]
    trace_seed: u64,
}

/// Sends the trace and prints what came of it.
pub(super) fn run(arguments: &BenchArguments) -> Result<(), Failure> {
    let given = &arguments.trace;
    let arrivals = trace(&Shape {
        requests: given.requests,
        rate: given.rate,
        prompt_tokens: given.prompt_tokens,
        answer_tokens: given.answer_tokens,
        shared: given.shared,
        seed: given.trace_seed,
        long_prompt: given.long_prompt,
    });
    let sequences = arguments.streams_max();
    if let Some(tokens) = given.step_tokens {
        check_step_tokens(tokens, ("--streams", sequences))?;
    }
    let backend = arguments.model.device.open()?;
    let path = arguments.model.reference.locate()?;
    let longest = arrivals.iter().map(|arrival| arrival.prompt_tokens + arrival.answer_tokens).max();
    let options = LoadOptions {
        context: longest.map(|tokens| tokens.max(sequences)),
        sequences: Some(sequences),
        kv_format: arguments.kv.format,
        random_weights: arguments.weights.random(),
        // Without chunks a whole prompt is one step.
        step_rows: given.step_tokens.map(|tokens| tokens.max(DEFAULT_STEP_ROWS)),
        ..LoadOptions::default()
    };
    let Loaded { mut runner, memory, weight_bytes, .. } = progress::load(&path, backend.as_ref(), &options)?;
    // As after some idle moments; the replay has none.
    while runner.make_ready()? != Readiness::Done {}
    let vocabulary = runner.vocabulary;
    let options = EngineOptions {
        sequences,
        waiting: arrivals.len(),
        step_rows: given.step_tokens,
        ..EngineOptions::default()
    };
    let Running { handle, thread } = gannet_loader::start(runner, options)?;
    let before = Process::measure();
    let report = replay(&handle, &arrivals, vocabulary)?;
    let long = arrivals.iter().find(|arrival| arrival.is_long);
    let alone = long.map(|long| first_token_alone(&handle, &long.anew(), vocabulary)).transpose()?;
    let report = report.with_long_alone(alone.flatten()).with_memory(&MemoryFigures {
        planned: memory.memory,
        measured: MemoryUse::of_runner(weight_bytes, &handle.measure(PATIENCE).unwrap_or_default()),
        before,
        after: Process::measure(),
    });
    drop(handle);
    if let Err(panic) = thread.join() {
        std::panic::resume_unwind(panic);
    }
    if arguments.json {
        output::show_json(&report)
    } else {
        output::show(&(report.lines().join("\n") + "\n"))
    }
}

/// Runs one request of a short prompt through an engine of its own; what the engine counted.
pub(super) fn one_request(runner: Runner, answer_tokens: usize) -> Result<EngineStats, Failure> {
    let (context, vocabulary) = (runner.context, runner.vocabulary);
    let arrival = Arrival::alone(1, answer_tokens.min(context - 1).max(1));
    let Running { handle, thread } = gannet_loader::start(runner, EngineOptions::default())?;
    replay(&handle, &[arrival], vocabulary)?;
    let stats = handle.stats();
    drop(handle);
    if let Err(panic) = thread.join() {
        std::panic::resume_unwind(panic);
    }
    Ok(stats)
}

/// How long the first token of a request takes on an engine that has nothing else to do.
fn first_token_alone(
    handle: &EngineHandle,
    arrival: &Arrival,
    vocabulary: usize,
) -> Result<Option<Duration>, Failure> {
    let (recorder, records) = Recorder::new();
    let request =
        Request::greedy(arrival.prompt(vocabulary), arrival.answer_tokens as u32, Arc::new(recorder));
    let sent = [(handle.submit(request)?, Instant::now())];
    Ok(records.follow(&sent)?.first().and_then(|(_, record)| record.first_token_once_begun()))
}

/// Sends each request at its moment and follows all to their ends.
fn replay(handle: &EngineHandle, arrivals: &[Arrival], vocabulary: usize) -> Result<Report, Failure> {
    let (recorder, records) = Recorder::new();
    let recorder = Arc::new(recorder);
    let started = Instant::now();
    let mut requests = Vec::new();
    for arrival in arrivals {
        let due = started + arrival.after;
        thread::sleep(due.saturating_duration_since(Instant::now()));
        let request =
            Request::greedy(arrival.prompt(vocabulary), arrival.answer_tokens as u32, recorder.clone());
        requests.push((handle.submit(request)?, due));
    }
    drop(recorder);
    let records = records.follow(&requests)?;
    let long = arrivals.iter().position(|arrival| arrival.is_long).map(|place| requests[place].0);
    let long =
        long.and_then(|long| records.iter().find(|(id, _)| *id == long)).map(|(_, record)| record.clone());
    let records: Vec<Record> = records.into_iter().map(|(_, record)| record).collect();
    Ok(Report::new(&records, long.as_ref(), handle.stats(), started.elapsed().max(Duration::from_nanos(1))))
}
