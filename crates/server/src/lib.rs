//! HTTP to the engine and back: the protocols of OpenAI and Anthropic, admission, streaming, metrics.
//!
//! A request: `http/gate` (who is it, is there room) -> a route in `openai` or `anthropic`, which takes the body apart
//! with `wire` -> `generate/prompt` renders and encodes -> `generate/answering` hands it to the engine and turns what
//! comes back into text -> one JSON body, or frames of `http/sse` as they come. `models` knows which models there are
//! and loads them through what the caller gave; `limits` has every limit.
//!
//! The only crate that knows HTTP, JSON protocols and async. Knows no model's file, no device and no kernel.

#![forbid(unsafe_code)]

mod http;

mod openai;

mod anthropic;
mod wire;

mod generate;

#[cfg(feature = "kv-events")]
mod kv_events;

mod admission;
mod models;

mod app;
mod config;
mod error;
mod limits;
mod log;
mod metrics;
mod names;
mod run;
#[cfg(feature = "otlp")]
mod traces;

pub use config::{Config, Keys, KeysError, Origins, Tls};
pub use http::serve::{Bound, ServeError};
#[cfg(feature = "kv-events")]
pub use kv_events::KvEvents;
pub use limits::{Limit, Limits};
#[cfg(feature = "otlp")]
pub use log::start_log_with_traces;
pub use log::{LogForm, start_log};
pub use models::{Facts, LoadFailure, Measure, Model, ModelEntry, ModelSource};
pub use run::serve;
#[cfg(feature = "otlp")]
pub use traces::Traces;
pub use tracing_subscriber::filter::LevelFilter;
