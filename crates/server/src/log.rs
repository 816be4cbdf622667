//! The log: events on standard error, as text for people or JSON for collectors. Prompts and answers are never logged.

use std::io::{IsTerminal, stderr};
use tracing_subscriber::filter::LevelFilter;

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
    let builder = tracing_subscriber::fmt().with_max_level(level).with_writer(stderr).with_target(false);
    // The first one stays: a process has one log.
    let _ = match form {
        LogForm::Text => builder.with_ansi(stderr().is_terminal()).try_init(),
        LogForm::Json => builder.json().flatten_event(true).try_init(),
    };
}
