//! The cases of the bare plan, each measured several times and set beside the machine's bound.

use super::BenchArguments;
use super::limits::Limits;
use super::rows::{self, Case, Measured, Spread, Start};
use super::streams::{Draws, Streams};
use crate::commands::weight_formats;
use crate::failure::Failure;
use crate::output;
use crate::progress::{self, Bar};
use crate::quantity::{bytes, entry};
use gannet_loader::{DEFAULT_STEP_ROWS, LoadOptions, MemoryClass};
use gannet_ops::cost::{BatchShape, Machine, costs};
use gannet_ops::{DeviceError, Program, WeightId};
use gannet_tensor::Format;
use std::path::Path;
use std::time::{Duration, Instant};

/// Measures and prints.
pub(super) fn run(arguments: &BenchArguments) -> Result<(), Failure> {
    let plans = plans(arguments)?;
    let (backend, threads) = arguments.model.device.open_counted()?;
    let path = arguments.model.reference.locate()?;
    let limits = Limits::measure(threads);
    let started = Instant::now();
    let options = load_options(arguments);
    let loaded = progress::load(&path, backend.as_ref(), &options)?;
    let load_time = started.elapsed();
    let (weights, numerics) = (loaded.memory.memory.of(MemoryClass::Weights), backend.numerics());
    let costs = Costs::new(&path, loaded.program.clone(), limits.machine())?;
    let mut bench = Bench { streams: Streams::new(loaded.runner, arguments.streams_max()), costs };
    let first = bench.first_request(&plans, load_time, limits)?;
    let bar = Bar::new("measuring");
    let mut times = vec![Vec::new(); plans.len()];
    // In turns, so that a machine that grows slower meanwhile is as slow for all.
    for done in 0..plans.len() * arguments.repeat {
        bar.show(done, plans.len() * arguments.repeat);
        times[done % plans.len()].push(bench.once(&plans[done % plans.len()])?);
    }
    drop(bar);
    let rows = plans.iter().zip(&times).map(|(plan, times)| bench.row(plan, times));
    let measured: Vec<Measured> = std::iter::once(first).chain(rows).collect();
    if arguments.json {
        return output::show_json(&measured);
    }
    let mut lines = vec![entry("machine", &limits.line())];
    lines.push(entry(
        "model",
        &format!("{}, {} of weights, numerics {numerics}", path.display(), bytes(weights)),
    ));
    lines.extend(measured[0].start.as_ref().map(|start| entry("start", &start_text(start))));
    lines.push(String::new());
    lines.push(rows::title());
    lines.extend(measured.iter().map(Measured::line));
    output::show(&(lines.join("\n") + "\n"))
}

fn start_text(start: &Start) -> String {
    format!(
        "loaded in {:.2} s, the first token of the first request after {:.2} s",
        start.load_ms / 1e3,
        start.first_token_ms / 1e3
    )
}

/// What to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Planned {
    case: Case,
    tokens: usize,
    depth: usize,
    streams: usize,
    draws: Draws,
}

/// All cases, in the order in which a depth is filled once.
fn plans(arguments: &BenchArguments) -> Result<Vec<Planned>, Failure> {
    let mut plans = Vec::new();
    for &depth in &arguments.depth {
        let prefill = |&tokens: &usize| Planned {
            case: Case::Prefill,
            tokens,
            depth,
            streams: 1,
            draws: Draws::Greedy,
        };
        plans.extend(arguments.prefill.iter().map(prefill));
        for &streams in &arguments.streams {
            for &draws in &arguments.draws {
                let decode = |&tokens: &usize| Planned { case: Case::Decode, tokens, depth, streams, draws };
                plans.extend(arguments.decode.iter().map(decode));
            }
        }
    }
    plans.retain(|plan| plan.tokens > 0);
    match plans.len() {
        0 => Err(Failure::usage("there is nothing to measure; give --prefill or --decode a number above 0")),
        _ => Ok(plans),
    }
}

/// Memory for the longest case in every stream.
fn load_options(arguments: &BenchArguments) -> LoadOptions {
    let most = |list: &[usize]| list.iter().copied().max().unwrap_or(0);
    let streams = arguments.streams_max();
    let tokens = most(&arguments.prefill).max(most(&arguments.decode));
    LoadOptions {
        // A step has a row a stream, and no more rows than the context.
        context: Some((most(&arguments.depth) + tokens).max(streams)),
        step_rows: Some(DEFAULT_STEP_ROWS.max(streams)),
        sequences: Some(streams),
        kv_format: arguments.kv.format,
        ..LoadOptions::default()
    }
}

/// What is measured on.
struct Bench {
    streams: Streams,
    costs: Costs,
}

impl Bench {
    /// The first prompt after the start, with everything cold.
    fn first_request(
        &mut self,
        plans: &[Planned],
        load: Duration,
        machine: Limits,
    ) -> Result<Measured, Failure> {
        let prompt = plans.iter().find(|plan| plan.case == Case::Prefill).map_or(1, |plan| plan.tokens);
        let plan = Planned { case: Case::Load, tokens: prompt, depth: 0, streams: 1, draws: Draws::Greedy };
        let time = self.once(&plan)?;
        let milliseconds = |time: Duration| time.as_secs_f64() * 1e3;
        let start = Start { load_ms: milliseconds(load), first_token_ms: milliseconds(load + time), machine };
        Ok(Measured { start: Some(start), ..self.row(&plan, &[time]) })
    }

    /// The time of one run, without that of getting to its depth.
    fn once(&mut self, plan: &Planned) -> Result<Duration, DeviceError> {
        self.streams.prepare(plan.streams, plan.depth)?;
        self.streams.draw_as(plan.draws);
        let started = Instant::now();
        match plan.case {
            Case::Load | Case::Prefill => {
                self.streams.prefill(plan.tokens)?;
            }
            Case::Decode => {
                self.streams.decode(plan.streams, plan.tokens)?;
            }
        }
        Ok(started.elapsed())
    }

    fn row(&self, plan: &Planned, times: &[Duration]) -> Measured {
        let Planned { case, tokens, depth, streams, draws } = *plan;
        let all = tokens * streams;
        let cost = self.costs.of(plan, self.streams.runner.step_rows);
        let tokens_per_second = Spread::of_times(all, times);
        let each = |sum: u64| (sum as f64 / all as f64).round() as u64;
        Measured {
            case,
            tokens,
            depth,
            streams,
            draws,
            tokens_per_second,
            bound_fraction: tokens_per_second.median * cost.seconds / all as f64,
            bytes_per_token: each(cost.bytes),
            operations_per_token: each(cost.operations),
            start: None,
        }
    }
}

/// What steps cost at least.
struct Costs {
    program: Program,
    formats: Vec<Format>,
    machine: Machine,
}

/// What a case costs at least.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Sum {
    seconds: f64,
    bytes: u64,
    operations: u64,
}

impl Costs {
    fn new(path: &Path, program: Program, machine: Machine) -> Result<Self, Failure> {
        let opened = gannet_loader::open(path)?;
        let formats =
            weight_formats(&program, &opened.model.weights(&opened.checkpoint).map_err(anyhow::Error::from)?);
        Ok(Self { program, formats, machine })
    }

    fn of(&self, plan: &Planned, step_rows: usize) -> Sum {
        let (first, end) = (plan.depth, plan.depth + plan.tokens);
        match plan.case {
            Case::Load | Case::Prefill => {
                let starts = (first..end).step_by(step_rows);
                let ends = starts.map(|start| (start, end.min(start + step_rows)));
                let shape = |(start, stop): (usize, usize)| BatchShape {
                    tokens: (stop - start) as u64,
                    outputs: u64::from(stop == end),
                    sequences: 1,
                    context: stop as u64,
                };
                ends.map(|range| self.step(shape(range))).fold(Sum::default(), Sum::plus)
            }
            Case::Decode => {
                // The context grows by a token a step, so the middle one is the mean.
                let streams = plan.streams as u64;
                let context = (first + plan.tokens.div_ceil(2)) as u64;
                let shape = BatchShape { tokens: streams, outputs: streams, sequences: streams, context };
                self.step(shape).times(plan.tokens as u64)
            }
        }
    }

    fn step(&self, shape: BatchShape) -> Sum {
        let format = |id: WeightId| self.formats[id.0 as usize];
        let costs = costs(&self.program, shape, &format);
        Sum {
            seconds: costs.iter().map(|cost| cost.seconds(&self.machine)).sum(),
            bytes: costs.iter().map(|cost| cost.bytes()).sum(),
            operations: costs.iter().map(|cost| cost.flops).sum(),
        }
    }
}

impl Sum {
    fn plus(self, other: Self) -> Self {
        Self {
            seconds: self.seconds + other.seconds,
            bytes: self.bytes + other.bytes,
            operations: self.operations + other.operations,
        }
    }

    fn times(self, count: u64) -> Self {
        Self {
            seconds: self.seconds * count as f64,
            bytes: self.bytes * count,
            operations: self.operations * count,
        }
    }
}
