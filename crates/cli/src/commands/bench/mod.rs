//! `gannet bench`: how fast a model runs, beside what the machine could do.
//!
//! Several measurements. The bare plan (`cases` over `streams`): steps over made-up tokens without scheduler, prefix cache
//! or text, which is what the engine is held against. A
//! trace of requests through the whole engine (`simulate`). And the engine's loop over a device that does nothing
//! (`idle`), or over the real one beside the bare plan (`whole`).

mod cases;
mod costs;
mod idle;
mod limits;
mod profile;
mod ranks;
mod rows;
mod served;
mod simulate;
mod streams;
mod timeline;
mod whole;

use crate::arguments::values;
use crate::arguments::{KvArguments, ModelArguments};
use crate::failure::Failure;
use clap::{Args, ValueEnum};
use gannet_loader::random::RandomFormat;
use std::path::PathBuf;

const HELP: &str = "\
First the machine is measured: how fast the threads read memory and multiply numbers. Then each case of the bare plan:
a prompt of --prefill tokens, or --decode tokens one after the other in --streams sequences at once, or steps of --rows
tokens of one sequence, behind --depth tokens that are there already. A bound is the least time that the machine needs: for each operation that to move its
bytes or to do its arithmetic (products with quantised weights in int8), whichever is longer, summed. The first request
after the start is a row of its own.

--profile adds a table of operations for each case, each timed in its place in a step, and the engine's phases.

--engine measures decoding through the whole engine and on the bare plan, in turns, and the parts of an engine's step.
--loop measures what the engine's own loop costs a step, over a device that computes nothing.
--serve-sim sends a made-up trace of requests through the engine instead, with --streams of them at once.
--serve sends load over HTTP to a server that runs already, and loads no model.

Examples:
  gannet bench model.gguf
  gannet bench model.gguf --prefill 512,4096 --decode 128 --depth 0,4096 --streams 1,8 --json
  gannet bench model.gguf --prefill 0 --decode 0 --rows 1,4,8 --depth 0,4096
  gannet bench model.gguf --profile --trace steps.json
  gannet bench model.gguf --serve-sim --rate 4 --requests 100 --shared 0.5 --streams 8
  gannet bench model --serve http://127.0.0.1:8080 --shapes 128/1024 --clients 1,8,64 --plot load.svg";

/// Measure how fast a model runs
#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub(crate) struct BenchArguments {
    #[command(flatten)]
    model: ModelArguments,
    #[command(flatten)]
    kv: KvArguments,
    /// Tokens of the prompts to measure; 0 leaves them out
    #[arg(long, value_name = "LIST", default_value = "512", value_delimiter = ',',
          value_parser = values::token_count_or_none)]
    prefill: Vec<usize>,
    /// Tokens to decode; 0 leaves it out
    #[arg(long, value_name = "LIST", default_value = "128", value_delimiter = ',',
          value_parser = values::token_count_or_none)]
    decode: Vec<usize>,
    /// Tokens that are there before
    #[arg(long, value_name = "LIST", default_value = "0", value_delimiter = ',',
          value_parser = values::token_count_or_none)]
    depth: Vec<usize>,
    /// Sequences that decode at once
    #[arg(long, value_name = "LIST", default_value = "1", value_delimiter = ',', value_parser = values::streams)]
    streams: Vec<usize>,
    /// Rows of one sequence a step, each with its scores, as drafts are checked: the time of 4 beside that of 1 says what
    /// speculation costs; 0 leaves it out
    #[arg(long, value_name = "LIST", default_value = "0", value_delimiter = ',',
          value_parser = values::token_count_or_none)]
    rows: Vec<usize>,
    /// How decoded tokens are drawn
    #[arg(long = "draw", value_name = "LIST", default_value = "greedy", value_delimiter = ',', value_enum)]
    draws: Vec<streams::Draws>,
    /// Weights to measure with: those of a folder's config.json alone are made up
    #[arg(long, value_enum, default_value = "stored", value_name = "WHICH")]
    weights: WeightsOf,
    /// How often each case is measured
    #[arg(long, value_name = "N", default_value = "5", value_parser = values::times)]
    repeat: usize,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Show where a step's time goes, by operation and by phase
    #[arg(long)]
    profile: bool,
    /// Write the steps that --profile looks at for Chrome's or Perfetto's trace viewer
    #[arg(long = "trace", value_name = "FILE")]
    timeline: Option<PathBuf>,
    /// Send a made-up trace of requests through the engine
    #[arg(long, conflicts_with_all = ["prefill", "decode", "depth", "rows", "draws", "repeat", "profile", "timeline"])]
    serve_sim: bool,
    /// Measure the engine's own loop over a device that computes nothing: --decode tokens in --streams sequences
    #[arg(long = "loop", conflicts_with_all = ["serve_sim", "prefill", "depth", "rows", "draws"])]
    is_loop: bool,
    /// Measure decoding through the whole engine beside the bare plan: --decode tokens in --streams sequences
    #[arg(long = "engine", conflicts_with_all = ["serve_sim", "is_loop", "prefill", "depth", "rows", "draws", "profile"])]
    is_whole: bool,
    #[command(flatten)]
    trace: simulate::TraceArguments,
    #[command(flatten)]
    load: served::LoadArguments,
}

/// Where the weights come from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum WeightsOf {
    /// The model's files
    #[default]
    Stored,
    /// Random numbers in bf16, in the shapes of a folder's config.json
    Random,
    /// The same in the format q8_0
    #[value(name = "random-q8_0")]
    RandomQ8_0,
    /// The same in the formats of files called Q4_K_M
    #[value(name = "random-q4_k_m")]
    RandomQ4KM,
}

impl WeightsOf {
    /// What random matrices are encoded in.
    fn random(self) -> Option<RandomFormat> {
        match self {
            WeightsOf::Stored => None,
            WeightsOf::Random => Some(RandomFormat::Bf16),
            WeightsOf::RandomQ8_0 => Some(RandomFormat::Q8_0),
            WeightsOf::RandomQ4KM => Some(RandomFormat::Q4KM),
        }
    }
}

/// Runs the command.
pub(crate) fn run(arguments: &BenchArguments) -> Result<(), Failure> {
    if let Some(address) = &arguments.load.address {
        return served::run(arguments, address);
    }
    if arguments.is_whole {
        return whole::run(arguments);
    }
    if arguments.is_loop {
        return idle::run(arguments);
    }
    if arguments.serve_sim { simulate::run(arguments) } else { cases::run(arguments) }
}

impl BenchArguments {
    /// Whether each case runs once more with its nodes timed.
    fn is_profiled(&self) -> bool {
        self.profile || self.timeline.is_some()
    }

    /// The most sequences at once.
    fn streams_max(&self) -> usize {
        self.streams.iter().copied().max().unwrap_or(1)
    }
}
