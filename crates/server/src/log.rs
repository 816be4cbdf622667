//! The log: events on standard error, as text for people or JSON for collectors. Prompts and answers are logged where that
//! was asked for alone.

use std::io::{IsTerminal, stderr};
use tracing::Subscriber;
use tracing_subscriber::Layer;
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::fmt;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::registry::{LookupSpan, Registry};
use tracing_subscriber::util::SubscriberInitExt;

/// How log lines look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogForm {
    /// A line for people.
    Text,
    /// An object a line.
    Json,
}

/// Sends log events to standard error from now on. A second call changes nothing.
pub fn start_log(form: LogForm, level: LevelFilter) {
    // The first one stays: a process has one log.
    let _ = Registry::default().with(lines(form, level)).try_init();
}

/// The same, and sends requests as traces, whatever the level of the log.
#[cfg(feature = "otlp")]
pub fn start_log_with_traces(form: LogForm, level: LevelFilter, traces: &crate::traces::Traces) {
    let spans = tracing_opentelemetry::layer().with_tracer(traces.tracer());
    let own = spans.with_filter(LevelFilter::INFO);
    let _ = Registry::default().with(lines(form, level)).with(own).try_init();
}

fn lines<S: Subscriber + for<'a> LookupSpan<'a>>(
    form: LogForm,
    level: LevelFilter,
) -> Box<dyn Layer<S> + Send + Sync> {
    let lines = fmt::layer().with_writer(stderr).with_target(false);
    match form {
        LogForm::Text => lines.with_ansi(stderr().is_terminal()).with_filter(level).boxed(),
        LogForm::Json => lines.json().flatten_event(true).with_filter(level).boxed(),
    }
}
