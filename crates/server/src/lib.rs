//! HTTP to the engine and back: the protocols of OpenAI and Anthropic, admission, streaming, metrics.
//!
//! A request: `http/gate` (who is it, is there room) -> a route in `openai` or `anthropic`, which takes the body apart
//! with `wire` -> `generate/prompt` renders and encodes -> `generate/answering` hands it to the engine and turns what
//! comes back into text -> one JSON body, or frames of `http/sse` as they come. `models` knows which models there are
//! and loads them through what the caller gave; `limits` has every limit.
//!
//! The only crate that knows HTTP, JSON protocols and async. Knows no file, no device and no kernel.

#![forbid(unsafe_code)]

mod http;

mod openai;

mod anthropic;
mod wire;

mod generate;

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

pub use config::{Config, Keys, KeysError, Origins, Tls};
pub use http::serve::{Bound, ServeError};
pub use limits::{Limit, Limits};
pub use log::{LogForm, start_log};
pub use models::{Facts, LoadFailure, Model, ModelEntry, ModelSource};
pub use run::serve;
pub use tracing_subscriber::filter::LevelFilter;
