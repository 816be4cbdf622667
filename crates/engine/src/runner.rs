//! A plan and its state as one thing that runs steps.

use gannet_ops::{
    Batch, Budget, DeviceError, Interrupter, Plan, SampleRows, SamplerSlot, State, StateLayout, StepOutput,
    TokenId,
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
    /// Runs a step and draws its tokens.
    pub(crate) fn run(&mut self, batch: &Batch, rows: &SampleRows) -> Result<StepOutput, DeviceError> {
        let step = self.plan.submit(batch, self.state.as_mut())?;
        self.plan.sample(step, rows, self.state.as_mut())?;
        self.plan.wait(step)
    }

    pub(crate) fn start_history(&mut self, slot: SamplerSlot, prompt: &[TokenId]) -> Result<(), DeviceError> {
        self.state.start_history(slot, prompt, &[])
    }

    pub(crate) fn interrupter(&self) -> Interrupter {
        self.plan.interrupter()
    }
}
