//! Token ids in, token ids out: requests, scheduling, state and sampling over a compiled plan.
//!
//! One request: [`EngineHandle::submit`] -> `scheduler` admits it -> [`Engine::step`] -> events at its sink.
//! The modules below stand in that order. The engine is one thread with a bounded inbox; a request carries its
//! own sink and ends with exactly one [`FinishReason`].
//!
//! Knows no text, no file, no device and no async runtime.

mod batch;
mod commit;
mod engine;
mod evaluate;
mod handle;
mod request;
mod runner;
mod scheduler;
mod sequence;
mod state;
mod stats;

pub use engine::Engine;
pub use evaluate::{EvaluateError, evaluate};
pub use handle::{EngineHandle, SubmitError};
pub use request::{Event, FinishReason, Request, RequestId, Sink, Usage};
pub use runner::Runner;
pub use state::budget;
pub use stats::Timings;
