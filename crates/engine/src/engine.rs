//! The engine's thread: commands in, steps, events out.
//!
//! Up to `depth` steps are in flight: while the device computes one, the next is planned from what is certain, its
//! tokens named by the step that draws them. A request that ends keeps its memory until no step in flight uses it.

mod admit;
mod collect;
mod lending;
mod masks;

pub use lending::Lender;

use crate::alarm::Alarm;
use crate::batch::Assembler;
use crate::containment::contained;
use crate::handle::{Command, EngineHandle};
use crate::masker::Masker;
use crate::outbox::Outbox;
use crate::request::{FinishReason, RequestId};
use crate::runner::Runner;
use crate::scheduler::{self, Planner, Queue, StepBudget, StepPlan};
use crate::sequence::{Running, Sequence};
use crate::state::{PrefixEvent, StateManager};
use crate::stats::{Faults, Lap, Phases, SharedStats};
use crossbeam_channel::{Receiver, TryRecvError, bounded, select};
use gannet_ops::{DeviceError, Readiness, RecurrentBank, SampleRows, StepId};
use lending::Lending;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Commands that may wait for the engine's thread.
const INBOX_COMMANDS: usize = 1024;

/// How long the engine waits at a time for a mask that all wait for: deadlines pass meanwhile.
const WAIT: Duration = Duration::from_millis(5);

/// What a person may choose about an engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EngineOptions {
    /// Sequences that may run at once; the runner's budget has slots for them.
    pub sequences: usize,
    /// Requests that may wait; more are refused when they are submitted. One that makes room for others may come on top.
    pub waiting: usize,
    /// Steps in flight; as many as the runner is for where absent. 1 waits for each step's tokens before the next is planned.
    pub depth: Option<usize>,
    /// Rows of a step, but for those of more sequences that decode; what fits into its time where absent.
    pub step_rows: Option<usize>,
}

impl Default for EngineOptions {
    fn default() -> Self {
        Self { sequences: 1, waiting: 64, depth: None, step_rows: None }
    }
}

/// Options that an engine can't run with.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OptionsError {
    /// A limit of nothing.
    #[error("the engine was to have 0 {what}; at least 1 is needed")]
    Nothing {
        /// Of what.
        what: &'static str,
    },
    /// More sequences than there is memory for.
    #[error("the engine was to run {asked} sequences at once, and its memory has slots for {slots}")]
    TooManySequences {
        /// Sequences asked for.
        asked: usize,
        /// Slots of the runner's budget.
        slots: usize,
    },
    /// A step that has no room for a token of each sequence.
    #[error(
        "a step has {rows} rows at most, and {sequences} sequences are to have one each; raise the one or lower the other"
    )]
    StepTooSmall {
        /// Rows of the largest step that the runner was made for.
        rows: usize,
        /// Sequences asked for.
        sequences: usize,
    },
}

impl EngineOptions {
    /// Checks that an engine over a runner can keep to these.
    pub fn check(&self, runner: &Runner) -> Result<(), OptionsError> {
        let limits = [
            ("sequences at once", self.sequences),
            ("requests that wait", self.waiting),
            ("steps in flight", self.depth.unwrap_or(1)),
            ("rows a step", self.step_rows.unwrap_or(1)),
        ];
        if let Some((what, _)) = limits.into_iter().find(|(_, limit)| *limit == 0) {
            return Err(OptionsError::Nothing { what });
        }
        if runner.step_rows < self.sequences {
            return Err(OptionsError::StepTooSmall { rows: runner.step_rows, sequences: self.sequences });
        }
        let of = |exists: bool, slots: u32| exists.then_some(slots as usize);
        let recurrent = of(runner.layout.is_recurrent(), runner.budget.recurrent_slots);
        let sampler = of(runner.layout.sampler.is_some(), runner.budget.sampler_slots);
        match recurrent.into_iter().chain(sampler).min().filter(|slots| *slots < self.sequences) {
            Some(slots) => Err(OptionsError::TooManySequences { asked: self.sequences, slots }),
            None => Ok(()),
        }
    }
}

/// One model's requests, stepped by one thread.
pub struct Engine {
    inbox: Receiver<Command>,
    options: EngineOptions,
    queue: Queue,
    running: Vec<Running>,
    free_slots: Vec<u32>,
    in_flight: VecDeque<InFlight>,
    state: StateManager,
    runner: Runner,
    budget: StepBudget,
    planner: Planner,
    assembler: Assembler,
    masker: Masker,
    spare_draws: Vec<SampleRows>,
    spare_banks: Vec<Vec<Option<RecurrentBank>>>,
    outbox: Outbox,
    stats: Arc<SharedStats>,
    phases: Phases,
    prefix_events: Vec<PrefixEvent>,
    faults: Faults,
    last_collected: Instant,
    alarm: Arc<Alarm>,
    lending: Lending,
}

/// A submitted step.
struct InFlight {
    step: StepId,
    plan: StepPlan,
    /// How to draw its tokens, until they are.
    waiting: Option<SampleRows>,
    /// The bank that each part's recurrent state was written to.
    banks: Vec<Option<RecurrentBank>>,
    /// When it was handed over; a device that computes at once is done by the time it returns.
    begun: Instant,
}

/// What a turn of the loop says about the next.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    Worked,
    /// All that runs waits for masks.
    Waits,
    Idle,
}

impl Engine {
    /// An engine over a runner, and the handle by which others reach it.
    pub fn new(runner: Runner, options: EngineOptions) -> (Engine, EngineHandle) {
        let (sender, inbox) = bounded(INBOX_COMMANDS);
        let stats = Arc::new(SharedStats::default());
        let mut state = StateManager::new(&runner.layout, &runner.budget);
        if runner.prefix_follower.is_some() {
            state.follow_prefixes();
        }
        let alarm = Alarm::new(runner.interrupter());
        let limits = (state.longest_sequence(), options.waiting);
        let handle = EngineHandle::new((sender, alarm.clone()), &runner, limits, stats.clone());
        let pages = state.page_counts(std::iter::empty());
        stats.update(|stats| (stats.pages, stats.pages_by_kind) = (pages.total(), pages));
        let engine = Engine {
            inbox,
            options,
            queue: Queue::default(),
            running: Vec::new(),
            free_slots: (0..options.sequences as u32).rev().collect(),
            in_flight: VecDeque::new(),
            state,
            budget: StepBudget::new(options.step_rows, runner.step_rows),
            masker: Masker::new(runner.vocabulary),
            runner,
            planner: Planner::default(),
            assembler: Assembler::default(),
            spare_draws: Vec::new(),
            spare_banks: Vec::new(),
            outbox: Outbox::default(),
            prefix_events: Vec::new(),
            faults: Faults::default(),
            stats,
            phases: Phases::default(),
            last_collected: Instant::now(),
            alarm,
            lending: Lending::default(),
        };
        (engine, handle)
    }

    /// Runs until the last handle is dropped; then every request that is left hears so, as it does where the engine
    /// itself panics.
    pub fn run(mut self) {
        let _watch = self.alarm.watch();
        if let Err(panic) = contained(|| self.serve()) {
            self.give_up(&format!("the engine has stopped: {panic}"));
        }
    }

    fn serve(&mut self) {
        loop {
            match self.inbox.try_recv() {
                Ok(command) => self.obey(command),
                Err(TryRecvError::Disconnected) => return self.cancel_all(),
                Err(TryRecvError::Empty) => match self.turn() {
                    Turn::Worked => {}
                    Turn::Waits => self.await_mask(WAIT),
                    Turn::Idle if self.make_ready() => {}
                    Turn::Idle => {
                        self.check_invariants();
                        select! {
                            recv(self.inbox) -> command => match command {
                                Ok(command) => self.obey(command),
                                Err(_) => return,
                            },
                            recv(self.lending.asked) -> asked => match asked {
                                Ok(asked) => self.give_back(asked),
                                Err(_) => self.nobody_asks(),
                            },
                        }
                    }
                },
            }
        }
    }

    /// Waits for a mask, while nothing else can be done, and for so long at most.
    pub(crate) fn await_mask(&mut self, at_most: Duration) {
        select! {
            // That all handles are gone is heard by the loop, too.
            recv(self.inbox) -> command => command.into_iter().for_each(|command| self.obey(command)),
            recv(self.masker.answers) -> answer => answer.into_iter().for_each(|answer| self.hear(answer)),
            default(at_most) => {}
        }
    }

    /// Does a piece of what rare steps would wait for, while nobody waits; whether there may be more. What fails here fails in
    /// such a step, where somebody hears of it.
    fn make_ready(&mut self) -> bool {
        matches!(self.runner.make_ready(), Ok(Readiness::Needed | Readiness::Useful))
    }

    /// One pass: admit, step, collect, tell. A device error ends what runs, and what waits may still be served.
    pub(crate) fn turn(&mut self) -> Turn {
        self.answer_askers();
        let running = self.running.len();
        if let Err(error) = self.step() {
            self.fail_all(&error);
        }
        let mut lap = Lap::start();
        self.retire();
        for id in self.outbox.flush() {
            self.cancel(id, FinishReason::Unheard);
        }
        self.retire();
        lap.ends(&mut self.phases.commit);
        let phases = self.phases;
        self.stats.update(|stats| stats.phases = phases);
        self.publish_stats();
        self.tell_follower();
        if cfg!(debug_assertions) {
            self.check_invariants();
        }
        if self.running.is_empty() && self.queue.is_empty() && self.in_flight.is_empty() {
            return Turn::Idle;
        }
        // Who left may have made room for others.
        let is_still = self.in_flight.is_empty() && running > 0 && running == self.running.len();
        let waits = is_still && self.running.iter().all(|running| running.sequence.awaits_mask());
        if waits { Turn::Waits } else { Turn::Worked }
    }

    /// Says what the prefix cache gained and lost, where somebody follows it.
    fn tell_follower(&mut self) {
        let Some(follower) = &mut self.runner.prefix_follower else { return };
        self.state.take_prefix_events(&mut self.prefix_events);
        if !self.prefix_events.is_empty() {
            follower(&self.prefix_events);
            self.prefix_events.clear();
        }
    }

    fn publish_stats(&mut self) {
        let major_faults = self.faults.look(Instant::now(), &mut self.runner.major_faults);
        let (running, waiting, prefix) = (self.running.len(), self.queue.len(), self.state.counters());
        let wait = self.queue.pace().wait(waiting, Instant::now());
        self.stats.update_queue(&self.queue);
        let pages = self.state.page_counts(self.running.iter().map(|running| &running.state));
        self.stats.update(|stats| {
            (stats.running, stats.waiting, stats.prefix, stats.pages) =
                (running, waiting, prefix, pages.total());
            stats.pages_by_kind = pages;
            (stats.wait, stats.major_faults) = (wait, major_faults);
        });
    }

    /// Plans and submits a step, and collects the oldest one where as many are in flight as may be.
    fn step(&mut self) -> Result<(), DeviceError> {
        let mut lap = Lap::start();
        self.hear_workers();
        let deadline = self.expire(Instant::now());
        self.admit()?;
        self.finish_draws()?;
        let plan = self.plan()?;
        lap.ends(&mut self.phases.schedule);
        let is_submitted = !plan.parts.is_empty();
        if is_submitted {
            self.alarm.begin_step(deadline);
            let submitted = self.submit(plan);
            self.alarm.end_step();
            match submitted {
                // Nothing of the step counts, so the next one computes the same rows again.
                Err(DeviceError::Interrupted) => return Ok(()),
                submitted => submitted?,
            }
        }
        let depth = self.options.depth.unwrap_or(self.runner.steps_in_flight);
        if self.in_flight.len() >= depth || !is_submitted { self.collect() } else { Ok(()) }
    }

    /// The next step, with its pages reserved.
    fn plan(&mut self) -> Result<StepPlan, DeviceError> {
        loop {
            let decoding = self.running.iter().filter(|running| running.sequence.is_decoding()).count();
            let rows = self.budget.rows(decoding);
            let plan = match self.runner.whole_prompt_only() {
                true => scheduler::plan_whole(&self.running, rows, self.runner.context),
                false => self.planner.plan(&self.running, rows, self.runner.context),
            };
            let Some((id, why)) = self.first_without_pages(&plan)? else { return Ok(plan) };
            self.planner.reuse(plan);
            if self.take_lent() {
                continue;
            }
            // What is in flight may end sequences, which frees pages.
            if self.in_flight.is_empty() { self.make_room(id, &why)? } else { self.collect()? }
        }
    }

    fn first_without_pages(&mut self, plan: &StepPlan) -> Result<Option<(RequestId, String)>, DeviceError> {
        for part in &plan.parts {
            let at = self.position(part.id).expect("a part's sequence is running");
            let state = &mut self.running[at].state;
            let reserved = self.state.reserve(state, part.tokens.clone(), self.runner.state.as_mut())?;
            if let Err(error) = reserved {
                return Ok(Some((part.id, error.to_string())));
            }
        }
        Ok(None)
    }

    /// Submits a step, and its draws unless a mask waits for a token that is still being drawn.
    fn submit(&mut self, plan: StepPlan) -> Result<(), DeviceError> {
        let begun = Instant::now();
        let mut lap = Lap::start();
        let mut draws = self.spare_draws.pop().unwrap_or_default();
        self.assembler.assemble(&plan, &self.running, &mut draws);
        let waits = self.waits_for_tokens(&plan);
        if !waits {
            self.ask_workers(&plan);
        }
        lap.ends(&mut self.phases.assemble);
        let step = self.runner.submit(&self.assembler.batch)?;
        lap.ends(&mut self.phases.run);
        self.submitted(step, plan, draws, begun);
        if !waits {
            self.draw_newest()?;
            lap.ends(&mut self.phases.sample);
        }
        Ok(())
    }

    fn submitted(&mut self, step: StepId, plan: StepPlan, draws: SampleRows, begun: Instant) {
        let mut output = 0;
        let mut banks = self.spare_banks.pop().unwrap_or_default();
        banks.clear();
        for part in &plan.parts {
            let at = self.position(part.id).expect("a part's sequence is running");
            let Running { sequence, state, .. } = &mut self.running[at];
            sequence.scheduled = part.tokens.end;
            sequence.steps_in_flight += 1;
            state.step_submitted();
            banks.push(state.bank());
            output += part.scores.len() as u32;
            if part.draws {
                sequence.drawing.push_back((step, output));
                output += 1;
            }
        }
        self.in_flight.push_back(InFlight { step, plan, waiting: Some(draws), banks, begun });
    }

    pub(crate) fn obey(&mut self, command: Command) {
        match command {
            Command::Submit(sequence) => self.queue.push(*sequence),
            Command::Cancel(id) => {
                self.alarm.heard();
                self.cancel(id, FinishReason::Cancelled);
            }
            Command::Truncate(id, tokens) => self.truncate(id, tokens),
            // Who has stopped waiting for it doesn't need it.
            Command::Measure(answer) => _ = answer.send(self.runner.bytes()),
        }
    }

    fn position(&self, id: RequestId) -> Option<usize> {
        self.running.iter().position(|running| running.sequence.id == id)
    }

    /// Ends a request wherever it is; one that has ended already is left alone.
    fn cancel(&mut self, id: RequestId, reason: FinishReason) {
        if let Some(mut sequence) = self.queue.remove(id) {
            if sequence.preemptions == 0 {
                self.stats.no_longer_waits();
            }
            sequence.finish(reason, &mut self.outbox);
        } else if let Some(at) = self.position(id) {
            self.end(at, reason, None);
        }
    }

    /// Ends a request at an earlier token of its answer.
    fn truncate(&mut self, id: RequestId, tokens: usize) {
        if let Some(at) = self.position(id) {
            let Running { sequence, state, .. } = &mut self.running[at];
            if !sequence.has_ended {
                let kept = tokens.clamp(sequence.prompt_tokens(), sequence.tokens.len());
                sequence.tokens.truncate(kept);
                sequence.computed = sequence.computed.min(kept);
                if sequence.steps_in_flight == 0 {
                    self.state.rollback(state, sequence.computed);
                }
            }
        }
        self.cancel(id, FinishReason::Truncated);
    }

    /// Ends requests whose deadline has passed; the earliest deadline of the others.
    fn expire(&mut self, now: Instant) -> Option<Instant> {
        loop {
            let running = self.running.iter().map(|running| &running.sequence);
            let live = self.queue.iter().chain(running).filter(|sequence| !sequence.has_ended);
            let (deadline, id) =
                live.filter_map(|sequence| Some((sequence.request.deadline?, sequence.id))).min()?;
            if deadline > now {
                return Some(deadline);
            }
            self.cancel(id, FinishReason::TimedOut);
        }
    }

    fn fail_all(&mut self, error: &DeviceError) {
        self.stats.update(|stats| {
            stats.failures += 1;
            stats.failures_since_step += 1;
        });
        self.in_flight.clear();
        for at in 0..self.running.len() {
            let sequence = &mut self.running[at].sequence;
            sequence.steps_in_flight = 0;
            if !sequence.has_ended {
                sequence.finish(FinishReason::Failed(error.to_string()), &mut self.outbox);
            }
        }
    }

    /// Tells every request why nothing more comes. Nothing is said of state, which may be left half changed.
    fn give_up(&mut self, why: &str) {
        let arrived = self.inbox.try_iter().filter_map(|command| match command {
            Command::Submit(sequence) => Some(*sequence),
            Command::Cancel(_) | Command::Truncate(..) | Command::Measure(_) => None,
        });
        let mut all: Vec<Sequence> = arrived.collect();
        all.extend(self.running.drain(..).map(|running| running.sequence));
        for id in self.queue.iter().map(|sequence| sequence.id).collect::<Vec<_>>() {
            all.extend(self.queue.remove(id));
        }
        for sequence in all.iter_mut().filter(|sequence| !sequence.has_ended) {
            sequence.finish(FinishReason::Failed(why.to_owned()), &mut self.outbox);
        }
        self.stats.update(|stats| (stats.running, stats.waiting) = (0, 0));
        self.outbox.flush();
    }

    fn cancel_all(&mut self) {
        let running = self.running.iter().map(|running| &running.sequence);
        for id in self.queue.iter().chain(running).map(|sequence| sequence.id).collect::<Vec<_>>() {
            self.cancel(id, FinishReason::Cancelled);
        }
        self.outbox.flush();
    }

    fn check_invariants(&mut self) {
        self.state.check(self.running.iter().map(|running| &running.state));
        let slots = self.free_slots.len() + self.running.len();
        assert_eq!(slots, self.options.sequences, "each slot is free or a running sequence's");
    }
}

#[cfg(test)]
mod tests;
