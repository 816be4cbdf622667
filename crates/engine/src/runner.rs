//! A plan and its state as one thing that runs steps.

use gannet_ops::{
    Batch, Budget, DeviceError, Interrupter, Plan, SampleRows, State, StateLayout, StepId, StepOutput,
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
}

impl Runner {
    /// Submits a step with its draws.
    pub(crate) fn submit(&mut self, batch: &Batch, draws: &SampleRows) -> Result<StepId, DeviceError> {
        let step = self.plan.submit(batch, self.state.as_mut())?;
        self.plan.sample(step, draws, self.state.as_mut())?;
        Ok(step)
    }

    pub(crate) fn wait(&mut self, step: StepId) -> Result<StepOutput, DeviceError> {
        self.plan.wait(step)
    }

    pub(crate) fn interrupter(&self) -> Interrupter {
        self.plan.interrupter()
    }
}
