//! The cases of the bare plan, each measured several times and set beside the machine's bound.

use super::BenchArguments;
use super::costs::Costs;
use super::limits::Limits;
use super::profile::{PhaseFacts, Profile};
use super::rows::{self, Case, Measured, Spread, Start};
use super::simulate;
use super::streams::{Draws, Streams};
use super::timeline::Timeline;
use crate::failure::Failure;
use crate::output;
use crate::progress::{self, Bar};
use crate::quantity::{bytes, entry};
use gannet_loader::{LoadOptions, MemoryClass};
use gannet_ops::DeviceError;
use std::path::Path;
use std::time::{Duration, Instant};

/// Tokens of each stream that a profile of decoding looks at.
const PROFILED_TOKENS: usize = 16;
/// Steps of a check: few, so that all are at about the same depth.
const CHECK_STEPS: usize = 8;

/// Measures and prints.
pub(super) fn run(arguments: &BenchArguments) -> Result<(), Failure> {
    let plans = plans(arguments)?;
    let backend = arguments.model.device.open()?;
    let path = arguments.model.reference.locate()?;
    let limits = Limits::measure(&arguments.model.device)?;
    let started = Instant::now();
    let options = load_options(arguments);
    let loaded = progress::load(&path, backend.as_ref(), &options)?;
    let load_time = started.elapsed();
    let model = format!(
        "{}, {} of weights, numerics {}",
        path.display(),
        bytes(loaded.memory.memory.of(MemoryClass::Weights)),
        backend.numerics()
    );
    let step_rows = loaded.runner.step_rows;
    let costs = Costs::new(&path, loaded.program, limits.machine(), step_rows, arguments.weights)?;
    let mut bench = Bench { streams: Streams::new(loaded.runner, arguments.streams_max()), costs };
    let mut measured = vec![bench.first_request(&plans, load_time, limits)?];
    measured.extend(bench.measure_all(&plans, arguments.repeat)?);
    if arguments.is_profiled() {
        bench.profile(&plans, &mut measured, arguments.timeline.as_deref())?;
    }
    if arguments.json {
        return output::show_json(&measured);
    }
    output::show(&(text(&model, &measured).join("\n") + "\n"))
}

/// Everything for people.
fn text(model: &str, measured: &[Measured]) -> Vec<String> {
    let mut lines = Vec::new();
    let start = measured[0].start.as_ref();
    lines.extend(start.map(|start| entry("machine", &start.machine.line())));
    lines.push(entry("model", model));
    lines.extend(start.map(|start| entry("start", &start_text(start))));
    let phases = start.and_then(|start| start.phases.as_ref());
    lines.extend(phases.map(|phases| entry("phases", &phases.line())));
    lines.push(String::new());
    lines.push(rows::title());
    lines.extend(measured.iter().map(Measured::line));
    for row in measured {
        let case = row.name();
        lines.extend(row.profile.iter().flat_map(|profile| profile.lines(&case)));
    }
    lines
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
pub(super) struct Planned {
    pub(super) case: Case,
    pub(super) tokens: usize,
    pub(super) depth: usize,
    pub(super) streams: usize,
    /// Of one sequence in a step of a check.
    pub(super) rows: usize,
    pub(super) draws: Draws,
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
            rows: 1,
            draws: Draws::Greedy,
        };
        plans.extend(arguments.prefill.iter().map(prefill));
        for &streams in &arguments.streams {
            for &draws in &arguments.draws {
                let decode =
                    |&tokens: &usize| Planned { case: Case::Decode, tokens, depth, streams, rows: 1, draws };
                plans.extend(arguments.decode.iter().map(decode));
            }
        }
        let check = |&rows: &usize| Planned {
            case: Case::Check,
            tokens: rows * CHECK_STEPS,
            depth,
            streams: 1,
            rows,
            draws: Draws::Greedy,
        };
        plans.extend(arguments.rows.iter().map(check));
    }
    plans.retain(|plan| plan.tokens > 0);
    match plans.len() {
        0 => Err(Failure::usage(
            "there is nothing to measure; give --prefill, --decode or --rows a number above 0",
        )),
        _ => Ok(plans),
    }
}

/// Memory for the longest case in every stream.
fn load_options(arguments: &BenchArguments) -> LoadOptions {
    let most = |list: &[usize]| list.iter().copied().max().unwrap_or(0);
    let streams = arguments.streams_max();
    let checked = most(&arguments.rows) * CHECK_STEPS;
    let tokens = most(&arguments.prefill).max(most(&arguments.decode)).max(checked);
    LoadOptions {
        // A step has a row a stream, and no more rows than the context.
        context: Some((most(&arguments.depth) + tokens).max(streams)),
        sequences: Some(streams),
        kv_format: arguments.kv.format,
        random_weights: arguments.weights.random(),
        ..LoadOptions::default()
    }
}

/// What is measured on.
struct Bench {
    streams: Streams,
    costs: Costs,
}

/// How long a case took, and its first token.
struct Times {
    whole: Duration,
    first_token: Duration,
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
        let plan =
            Planned { case: Case::Load, tokens: prompt, depth: 0, streams: 1, rows: 1, draws: Draws::Greedy };
        let times = self.once(&plan)?;
        let (load_ms, first_token_ms) = (milliseconds(load), milliseconds(load + times.first_token));
        let start = Start { load_ms, first_token_ms, machine, phases: None };
        Ok(Measured { start: Some(start), ..self.row(&plan, &[times]) })
    }

    fn measure_all(&mut self, plans: &[Planned], repeat: usize) -> Result<Vec<Measured>, Failure> {
        let bar = Bar::new("measuring");
        let mut times: Vec<Vec<Times>> = plans.iter().map(|_| Vec::new()).collect();
        // In turns, so that a machine that grows slower meanwhile is as slow for all.
        for done in 0..plans.len() * repeat {
            bar.show(done, plans.len() * repeat);
            times[done % plans.len()].push(self.once(&plans[done % plans.len()])?);
        }
        Ok(plans.iter().zip(&times).map(|(plan, times)| self.row(plan, times)).collect())
    }

    /// The times of one run, without that of getting to its depth.
    fn once(&mut self, plan: &Planned) -> Result<Times, DeviceError> {
        self.streams.prepare(plan.streams, plan.depth)?;
        self.streams.draw_as(plan.draws);
        let started = Instant::now();
        let first_token = match plan.case {
            Case::Load | Case::Prefill => {
                self.streams.prefill(plan.tokens)?;
                started.elapsed()
            }
            Case::Decode => {
                self.streams.decode(plan.streams, 1)?;
                let first = started.elapsed();
                self.streams.decode(plan.streams, plan.tokens - 1)?;
                first
            }
            Case::Check => {
                self.streams.check(plan.rows, 1)?;
                let first = started.elapsed();
                self.streams.check(plan.rows, plan.tokens / plan.rows - 1)?;
                first
            }
        };
        Ok(Times { whole: started.elapsed(), first_token })
    }

    /// Runs each case again with every node timed, and the engine for its phases.
    fn profile(
        mut self,
        plans: &[Planned],
        measured: &mut [Measured],
        timeline: Option<&Path>,
    ) -> Result<(), Failure> {
        let mut trace = Timeline::start();
        for (plan, row) in plans.iter().zip(&mut measured[1..]) {
            let tokens =
                if plan.case == Case::Decode { plan.tokens.min(PROFILED_TOKENS) } else { plan.tokens };
            let plan = Planned { tokens, ..*plan };
            self.streams.prepare(plan.streams, plan.depth)?;
            self.streams.draw_as(plan.draws);
            let steps = self.streams.record(|streams| match plan.case {
                Case::Load | Case::Prefill => streams.prefill(plan.tokens).map(|_| ()),
                Case::Decode => streams.decode(plan.streams, plan.tokens).map(|_| ()),
                Case::Check => streams.check(plan.rows, plan.tokens / plan.rows),
            })?;
            let program = &self.costs.program;
            steps.iter().for_each(|times| trace.push(&row.name(), program, times));
            let steps: Vec<_> = steps.into_iter().zip(self.costs.steps(&plan)).collect();
            let mut profile = Profile::new(program, &self.costs.machine, &steps);
            if plan.case == Case::Decode {
                // As it runs where nobody times nodes: from graphs, and launched ahead.
                self.streams.prepare(plan.streams, plan.depth)?;
                let decode = |streams: &mut Streams| streams.decode(plan.streams, plan.tokens).map(|_| ());
                decode(&mut self.streams)?;
                self.streams.prepare(plan.streams, plan.depth)?;
                profile.idle_share = self.streams.idle_share(decode)?;
            }
            row.profile = Some(profile);
        }
        if let Some(path) = timeline {
            trace.write(path)?;
        }
        let most = |case| plans.iter().filter(|plan| plan.case == case).map(|plan| plan.tokens).max();
        let stats = simulate::one_request(self.streams.into_runner()?, most(Case::Decode).unwrap_or(1))?;
        if let Some(start) = &mut measured[0].start {
            start.phases = Some(PhaseFacts::new(&stats));
        }
        Ok(())
    }

    fn row(&self, plan: &Planned, times: &[Times]) -> Measured {
        let Planned { case, tokens, depth, streams, rows, draws } = *plan;
        let all = tokens * streams;
        let cost = self.costs.of(plan);
        let whole: Vec<Duration> = times.iter().map(|times| times.whole).collect();
        let tokens_per_second = Spread::of_times(all, &whole);
        let first_token = Spread::of(times.iter().map(|times| milliseconds(times.first_token)).collect());
        let each = |sum: u64| (sum as f64 / all as f64).round() as u64;
        Measured {
            case,
            tokens,
            depth,
            streams,
            rows: (case == Case::Check).then_some(rows),
            draws,
            tokens_per_second,
            bound_fraction: tokens_per_second.median * cost.seconds / all as f64,
            first_token_ms: first_token.median,
            bytes_per_token: each(cost.bytes),
            operations_per_token: each(cost.operations),
            profile: None,
            start: None,
        }
    }
}

fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}
