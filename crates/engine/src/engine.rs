//! The engine's thread: commands in, steps, events out.

use crate::handle::{Command, EngineHandle};
use crate::request::{FinishReason, RequestId};
use crate::runner::Runner;
use crate::scheduler::{MAX_WAITING, Scheduler, StepPlan};
use crate::sequence::Sequence;
use crate::state::StateManager;
use crate::{batch, commit};
use crossbeam_channel::{Receiver, bounded};
use gannet_ops::{DeviceError, SamplerSlot};

/// Commands that may wait for the engine's thread.
const INBOX_COMMANDS: usize = 256;

/// One model's requests, stepped by one thread.
pub struct Engine {
    inbox: Receiver<Command>,
    scheduler: Scheduler,
    state: StateManager,
    runner: Runner,
}

/// What a turn of the loop says about the next.
enum Turn {
    Continue,
    Stop,
}

impl Engine {
    /// An engine over a runner, and the handle by which others reach it.
    pub fn new(runner: Runner) -> (Engine, EngineHandle) {
        let (sender, inbox) = bounded(INBOX_COMMANDS);
        let handle = EngineHandle::new(sender, &runner);
        let state = StateManager::new(&runner.layout, &runner.budget);
        (Engine { inbox, scheduler: Scheduler::default(), state, runner }, handle)
    }

    /// Runs until the handle is dropped or asks to stop; then every request that is left hears so.
    pub fn run(mut self) {
        while let Turn::Continue = self.take_commands() {
            if let Err(error) = self.step() {
                self.fail_all(&error);
            }
        }
        while let Some(mut sequence) =
            self.scheduler.running.pop().or_else(|| self.scheduler.waiting.pop_front())
        {
            sequence.finish(FinishReason::Cancelled);
        }
    }

    /// One pass over all running sequences: plan, assemble, run, commit.
    fn step(&mut self) -> Result<(), DeviceError> {
        self.start_waiting()?;
        let plan = self.plan();
        if plan.scheduled.is_empty() {
            return Ok(());
        }
        let (batch, draws) = batch::assemble(&plan, &self.scheduler.running);
        let output = match self.runner.run(&batch, &draws) {
            // Nothing of the step counts, so the next one computes the same rows again.
            Err(DeviceError::Interrupted) => return Ok(()),
            result => result?,
        };
        let running = &mut self.scheduler.running;
        let ended = commit::commit(&plan, output, running, &mut self.state, self.runner.context);
        self.end(ended);
        self.check_invariants();
        Ok(())
    }

    /// Waits for a command only where nothing runs.
    fn take_commands(&mut self) -> Turn {
        let is_idle = self.scheduler.running.is_empty() && self.scheduler.waiting.is_empty();
        if is_idle {
            match self.inbox.recv() {
                Ok(command) => self.obey(command),
                Err(_) => return Turn::Stop,
            }
        }
        while let Ok(command) = self.inbox.try_recv() {
            self.obey(command);
        }
        Turn::Continue
    }

    fn obey(&mut self, command: Command) {
        match command {
            Command::Submit(id, request, clock) => {
                let tokens = request.prompt.clone();
                let pages = self.state.empty();
                let sampler = SamplerSlot(0);
                let mut sequence =
                    Sequence { id, request: *request, tokens, computed: 0, pages, sampler, clock };
                if self.scheduler.waiting.len() < MAX_WAITING {
                    self.scheduler.waiting.push_back(sequence);
                } else {
                    sequence
                        .finish(FinishReason::Failed(format!("{MAX_WAITING} requests are waiting already")));
                }
            }
            Command::Cancel(id) => self.cancel(id),
        }
    }

    fn cancel(&mut self, id: RequestId) {
        if let Some(place) = self.scheduler.waiting.iter().position(|sequence| sequence.id == id) {
            if let Some(mut sequence) = self.scheduler.waiting.remove(place) {
                sequence.finish(FinishReason::Cancelled);
            }
        } else if let Some(place) = self.scheduler.running.iter().position(|sequence| sequence.id == id) {
            self.end(vec![(place, FinishReason::Cancelled)]);
        }
    }

    fn start_waiting(&mut self) -> Result<(), DeviceError> {
        while let Some(mut sequence) = self.scheduler.next_to_start() {
            sequence.clock.step_begins();
            sequence.sampler = SamplerSlot(self.scheduler.running.len() as u32);
            self.runner.start_history(sequence.sampler, &sequence.request.prompt)?;
            self.scheduler.running.push(sequence);
        }
        Ok(())
    }

    /// The next step, with its pages reserved. A sequence that can't have its pages ends, and the others are
    /// planned anew.
    fn plan(&mut self) -> StepPlan {
        loop {
            let plan = self.scheduler.plan(self.runner.step_rows);
            let mut refused = Vec::new();
            for part in &plan.scheduled {
                let sequence = &mut self.scheduler.running[part.running];
                if let Err(error) = self.state.reserve(&mut sequence.pages, part.tokens.end) {
                    refused.push((part.running, FinishReason::Failed(error.to_string())));
                }
            }
            if refused.is_empty() {
                return plan;
            }
            self.end(refused);
        }
    }

    /// Takes sequences out of the running, by ascending place, and says why they end.
    fn end(&mut self, ended: Vec<(usize, FinishReason)>) {
        for (place, reason) in ended.into_iter().rev() {
            let mut sequence = self.scheduler.running.remove(place);
            self.state.release(&mut sequence.pages);
            sequence.finish(reason);
        }
    }

    /// A device error ends what runs; what waits may still be served.
    fn fail_all(&mut self, error: &DeviceError) {
        let reason = FinishReason::Failed(error.to_string());
        let all = (0..self.scheduler.running.len()).map(|place| (place, reason.clone())).collect();
        self.end(all);
    }

    fn check_invariants(&self) {
        if cfg!(debug_assertions) {
            self.state.check(self.scheduler.running.iter().map(|sequence| &sequence.pages));
        }
    }
}
