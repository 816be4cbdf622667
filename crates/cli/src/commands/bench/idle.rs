//! `gannet bench --loop`: what the engine's own loop costs, with a device that computes nothing.
//!
//! The sequences are those of the model, with its page groups and recurrent slots, and each step brings every stream a
//! token at once. What a step takes is then scheduling, pages, batches and events alone.

use super::BenchArguments;
use crate::failure::Failure;
use crate::output;
use crate::quantity::entry;
use crossbeam_channel::unbounded;
use gannet_engine::budget::{Wish, for_wish};
use gannet_engine::{Engine, EngineOptions, Event, NumericsId, Request, RequestId, Runner, Sink};
use gannet_loader::{LoadError, MemoryPlan};
use gannet_ops::sampling::History;
use gannet_ops::{
    Batch, DeviceError, GroupId, Interrupter, OutputResult, PageId, Plan, PlanBytes, RecurrentBank,
    SampleRows, SamplerSlot, SnapshotId, State, StateBytes, StepId, StepOutput, TokenId,
};
use serde::Serialize;
use std::any::Any;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

/// Requests that an engine hears of before it runs.
const STREAMS_MAX: usize = 1024;

/// A plan that gives the same token to whoever asks.
#[derive(Default)]
struct IdlePlan {
    steps: u64,
    outputs: VecDeque<(StepId, usize)>,
    interrupter: Interrupter,
}

impl Plan for IdlePlan {
    fn submit(&mut self, batch: &Batch, _state: &mut dyn State) -> Result<StepId, DeviceError> {
        let step = StepId(self.steps);
        self.steps += 1;
        self.outputs.push_back((step, batch.outputs.len()));
        Ok(step)
    }

    fn sample(
        &mut self,
        _step: StepId,
        _rows: &SampleRows,
        _state: &mut dyn State,
    ) -> Result<(), DeviceError> {
        Ok(())
    }

    fn wait(&mut self, step: StepId) -> Result<StepOutput, DeviceError> {
        let place = self.outputs.iter().position(|(submitted, _)| *submitted == step);
        let count = place.and_then(|place| self.outputs.remove(place)).map_or(0, |(_, outputs)| outputs);
        let token = OutputResult { token: Some(TokenId(1)), ..OutputResult::default() };
        Ok(StepOutput { outputs: vec![token; count], accepted: Vec::new() })
    }

    fn interrupter(&self) -> Interrupter {
        self.interrupter.clone()
    }

    fn bytes(&self) -> PlanBytes {
        PlanBytes::default()
    }
}

/// State that holds nothing.
struct IdleState;

impl State for IdleState {
    fn copy_pages(&mut self, _group: GroupId, _copies: &[(PageId, PageId)]) -> Result<(), DeviceError> {
        Ok(())
    }

    fn accept(&mut self, _step: StepId, _rows: &[u32]) -> Result<(), DeviceError> {
        Ok(())
    }

    fn snapshot(&mut self, _bank: RecurrentBank) -> Result<SnapshotId, DeviceError> {
        Ok(SnapshotId(0))
    }

    fn restore(&mut self, _snapshot: SnapshotId, _bank: RecurrentBank) -> Result<(), DeviceError> {
        Ok(())
    }

    fn forget(&mut self, _snapshot: SnapshotId) -> Result<(), DeviceError> {
        Ok(())
    }

    fn start_history(&mut self, _slot: SamplerSlot, _history: History) -> Result<(), DeviceError> {
        Ok(())
    }

    fn bytes(&self) -> StateBytes {
        StateBytes::default()
    }

    fn as_any(&self) -> &dyn Any {
        self
    }

    fn as_any_mut(&mut self) -> &mut dyn Any {
        self
    }
}

/// A sink that reads nothing of its events but the end.
pub(super) struct Ends(pub(super) crossbeam_channel::Sender<RequestId>);

impl Sink for Ends {
    fn deliver(&self, events: &mut Vec<(RequestId, Event)>) -> Vec<RequestId> {
        let ended = events.drain(..).filter(|(_, event)| matches!(event, Event::Finished { .. }));
        ended.map(|(id, _)| id).filter(|id| self.0.send(*id).is_err()).collect()
    }
}

/// What `--json` prints, a row for each number of streams.
#[derive(Debug, Serialize)]
struct LoopCost {
    streams: usize,
    steps: u64,
    microseconds_per_step: f64,
}

/// Measures and prints.
pub(super) fn run(arguments: &BenchArguments) -> Result<(), Failure> {
    if arguments.streams_max() > STREAMS_MAX {
        return Err(Failure::usage(format!(
            "--loop runs at most {STREAMS_MAX} --streams, all of which are there before the first step"
        )));
    }
    let path = arguments.model.reference.locate()?;
    let tokens = arguments.decode.iter().copied().max().unwrap_or(1).max(1);
    let costs = arguments.streams.iter().map(|streams| measure(arguments, &path, *streams, tokens));
    let costs = costs.collect::<Result<Vec<_>, Failure>>()?;
    if arguments.json {
        return output::show_json(&costs);
    }
    let line = |cost: &LoopCost| {
        let name = format!("{} streams", cost.streams);
        entry(&name, &format!("{:.1} us a step, over {} steps", cost.microseconds_per_step, cost.steps))
    };
    output::show(&(costs.iter().map(line).collect::<Vec<_>>().join("\n") + "\n"))
}

fn measure(
    arguments: &BenchArguments,
    path: &std::path::Path,
    streams: usize,
    tokens: usize,
) -> Result<LoopCost, Failure> {
    let mut costs = Vec::new();
    for _ in 0..arguments.repeat.max(1) {
        costs.push(once(idle_runner(path, streams, tokens)?, streams, tokens)?);
    }
    costs.sort_by(|a, b| a.1.total_cmp(&b.1));
    let (steps, microseconds_per_step) = costs[costs.len() / 2];
    Ok(LoopCost { streams, steps, microseconds_per_step })
}

/// Runs all streams to their end, each of which is there before the first step: the steps, and microseconds of each.
fn once(runner: Runner, streams: usize, tokens: usize) -> Result<(u64, f64), Failure> {
    let vocabulary = runner.vocabulary;
    let options = EngineOptions { sequences: streams, waiting: streams, ..EngineOptions::default() };
    options.check(&runner).map_err(LoadError::from)?;
    let (engine, handle) = Engine::new(runner, options);
    let (sender, ends) = unbounded();
    let sink = Arc::new(Ends(sender));
    for stream in 0..streams {
        let prompt = vec![TokenId((stream % vocabulary) as u32)];
        handle.submit(Request::greedy(prompt, tokens as u32, sink.clone()))?;
    }
    let started = Instant::now();
    let thread = std::thread::spawn(move || engine.run());
    for _ in 0..streams {
        ends.recv().map_err(|_| anyhow::anyhow!("the engine stopped in the middle of the measurement"))?;
    }
    let time = started.elapsed();
    let steps = handle.stats().steps;
    drop(handle);
    if let Err(panic) = thread.join() {
        std::panic::resume_unwind(panic);
    }
    Ok((steps, time.as_secs_f64() * 1e6 / steps.max(1) as f64))
}

/// The memory of the model's sequences, and nothing that computes.
fn idle_runner(path: &std::path::Path, streams: usize, tokens: usize) -> Result<Runner, Failure> {
    let opened = gannet_loader::open(path)?;
    let options = gannet_loader::LoadOptions { context: Some(tokens + 2), ..Default::default() };
    let plan = MemoryPlan::new(&opened.model, &opened.checkpoint, &options)?;
    let program = opened.model.program(&plan.program_options())?;
    let (context, step_rows) = (tokens + 2, streams.max(gannet_loader::DEFAULT_STEP_ROWS));
    let wish = Wish { context, step_rows, depth: 1, sequences: streams as u32, snapshots: 0, drafts: 0 };
    Ok(Runner {
        plan: Box::new(IdlePlan::default()),
        state: Box::new(IdleState),
        budget: for_wish(&program.state, &wish),
        layout: Arc::clone(&program.state),
        vocabulary: opened.model.config.vocabulary,
        context,
        step_rows,
        steps_in_flight: 1,
        pooling: None,
        numerics_id: NumericsId::default(),
        major_faults: Box::new(|| None),
        prefix_follower: None,
    })
}
