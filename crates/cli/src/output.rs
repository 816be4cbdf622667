//! Standard output, whose reader may leave at any time.

use crate::failure::Failure;
use std::io::{ErrorKind, Write, stdout};

/// Writes text and shows it at once.
pub(crate) fn show(text: &str) -> Result<(), Failure> {
    let mut out = stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(|error| {
        if error.kind() == ErrorKind::BrokenPipe {
            return Failure::ReaderGone;
        }
        anyhow::Error::new(error).context("can't write to standard output").into()
    })
}

/// Writes a line.
pub(crate) fn show_line(text: &str) -> Result<(), Failure> {
    show(&format!("{text}\n"))
}

/// Writes a value as indented JSON.
pub(crate) fn show_json(value: &impl serde::Serialize) -> Result<(), Failure> {
    show_line(&serde_json::to_string_pretty(value)?)
}
