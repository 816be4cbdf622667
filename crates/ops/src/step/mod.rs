//! What every backend does on the host around a step: naming what earlier steps found, drawing, confirming
//! drafts.
//!
//! A backend keeps a [`Steps`] in its state, begins a [`PendingStep`] with a batch and it, runs the program's nodes up to
//! [`crate::Program::sampling_start`], and leaves the values that sampling reads to the step, which
//! runs the other nodes when the parameters of the draws come. So the meaning of a batch is written once.
//!
//! Knows no kernel and no memory of a device.

mod memory;
mod pending;
mod ready;
mod resolve;
mod sample;

pub use memory::{Sampled, StepMemory, Steps};
pub use pending::{KeptIds, PendingStep, RowLogprobs, StepValues, map_ids};
pub use ready::ReadyDraws;
pub use resolve::Resolved;
pub use sample::{Scores, accept, sample};

use crate::DeviceError;

/// The error for something that isn't there.
fn unknown(what: &'static str, number: impl Into<u64>, reason: impl Into<String>) -> DeviceError {
    DeviceError::Unknown { what, number: number.into(), reason: reason.into() }
}
