//! Token ids in, token ids out: requests, scheduling, state and sampling over a compiled plan.
//!
//! One request: [`EngineHandle::submit`] -> `queue` -> admitted with what the prefix cache has of it -> steps, each
//! planned by `scheduler`, assembled by `batch`, run by the plan, collected -> events at its sink. The modules below
//! stand in that order. The engine is one thread with a bounded inbox; a request ends with exactly one
//! [`FinishReason`].
//!
//! Knows no text, no file, no device and no async runtime.

mod constraint;
mod embedding;
mod masker;
mod request;

mod alarm;
mod handle;

mod engine;
mod scheduler;
mod sequence;
mod state;

mod batch;
mod numerics;
mod runner;

mod containment;
mod outbox;
mod stats;

mod evaluate;

pub use constraint::{Constraint, ConstraintError, MayEnd, Progress};
pub use embedding::{EmbedError, Embedding, EmbeddingRequest, EmbeddingResult, EmbeddingSink};
pub use engine::{Engine, EngineOptions, Lender, OptionsError};
pub use evaluate::{EvaluateError, evaluate};
pub use handle::{EngineHandle, LOGPROBS_MAX, SubmitError};
pub use numerics::NumericsId;
pub use request::{Event, FinishReason, Request, RequestId, Sink, Usage};
pub use runner::{MajorFaults, Pooling, Runner, RunnerBytes};
pub use state::{PageCounts, PageKind, PagesByKind, PrefixCounters, PrefixEvent, PrefixFollower, budget};
pub use stats::{EngineStats, Phases, QueuePlace, Timings};
