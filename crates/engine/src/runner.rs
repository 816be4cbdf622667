//! A plan and its state as one thing that runs steps.

use crate::{NumericsId, PrefixFollower};
use gannet_ops::{
    Batch, Budget, DeviceError, Interrupter, OutputKind, Plan, PlanBytes, Program, Readiness, SampleRows,
    State, StateBytes, StateLayout, StepId, StepOutput,
};
use std::sync::Arc;

/// A compiled program over allocated state.
pub struct Runner {
    /// The program, ready to run.
    pub plan: Box<dyn Plan>,
    /// The memory of its sequences.
    pub state: Box<dyn State>,
    /// What that memory holds.
    pub layout: Arc<StateLayout>,
    /// How much of it there is.
    pub budget: Budget,
    /// Entries of the vocabulary.
    pub vocabulary: usize,
    /// Tokens of the longest sequence.
    pub context: usize,
    /// Rows of the largest step.
    pub step_rows: usize,
    /// Steps that are worth having in flight.
    pub steps_in_flight: usize,
    /// How it makes vectors; none where it makes text.
    pub pooling: Option<Pooling>,
    /// What the bits of its answers depend on beside the prompt.
    pub numerics_id: NumericsId,
    /// Page faults of the process so far that had to read a file or swapped memory, where the system says.
    pub major_faults: MajorFaults,
    /// Who hears what the prefix cache gains and loses.
    pub prefix_follower: Option<PrefixFollower>,
}

/// Bytes in memory of a runner, weights aside.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RunnerBytes {
    /// Of its plan.
    pub plan: PlanBytes,
    /// Of its sequences and of the prefix cache.
    pub state: StateBytes,
}

/// Counts the process's major page faults.
pub type MajorFaults = Box<dyn FnMut() -> Option<u64> + Send>;

/// How a plan makes vectors of texts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pooling {
    /// Elements of a vector.
    pub width: usize,
    /// Rows of the largest step.
    pub step_rows: usize,
    /// A text can't come in chunks, nor begin behind what the prefix cache has.
    pub whole_prompt_only: bool,
}

impl Pooling {
    /// That of a program which steps of at most `step_rows` rows run; none where it makes text.
    pub fn of(program: &Program, step_rows: usize) -> Option<Self> {
        let pooled = program.output(OutputKind::Pooled)?;
        let width = program.value(pooled).width;
        Some(Self { width, step_rows, whole_prompt_only: program.whole_prompt_only })
    }
}

impl Runner {
    /// What lies in memory.
    pub fn bytes(&self) -> RunnerBytes {
        RunnerBytes { plan: self.plan.bytes(), state: self.state.bytes() }
    }

    /// Submits a step; its draws follow.
    /// Does a piece of what steps would else wait for, once.
    pub fn make_ready(&mut self) -> Result<Readiness, DeviceError> {
        self.plan.make_ready(self.state.as_mut())
    }

    pub(crate) fn submit(&mut self, batch: &Batch) -> Result<StepId, DeviceError> {
        self.plan.submit(batch, self.state.as_mut())
    }

    /// Says how to draw the tokens that a step asks for.
    pub(crate) fn sample(&mut self, step: StepId, draws: &SampleRows) -> Result<(), DeviceError> {
        self.plan.sample(step, draws, self.state.as_mut())
    }

    pub(crate) fn wait(&mut self, step: StepId) -> Result<StepOutput, DeviceError> {
        self.plan.wait(step)
    }

    /// Whether each prompt is computed in one step of its own rows alone.
    pub(crate) fn whole_prompt_only(&self) -> bool {
        self.pooling.is_some_and(|pooling| pooling.whole_prompt_only)
    }

    pub(crate) fn interrupter(&self) -> Interrupter {
        self.plan.interrupter()
    }
}
