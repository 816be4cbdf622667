//! Other programs: run them, and say clearly which one failed or is missing.

use std::io;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

/// A program and its arguments on one line, for messages.
pub(crate) fn line(command: &Command) -> String {
    let arguments = command.get_args().map(|argument| argument.to_string_lossy().into_owned());
    let mut words = vec![command.get_program().to_string_lossy().into_owned()];
    words.extend(arguments);
    words.join(" ")
}

/// Runs a program to its end; its output goes where ours goes.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| missing(command))?;
    if !status.success() {
        bail!("`{}` failed ({status})", line(command));
    }
    Ok(())
}

/// Like [`run`], but what the program prints goes to standard error, so that standard output keeps the answer alone.
pub(crate) fn run_aside(command: &mut Command) -> Result<()> {
    run(command.stdout(Stdio::from(io::stderr())))
}

/// Runs a program and returns what it printed.
pub(crate) fn output(command: &mut Command) -> Result<String> {
    let output = command.stderr(Stdio::inherit()).output().with_context(|| missing(command))?;
    if !output.status.success() {
        bail!("`{}` failed ({})", line(command), output.status);
    }
    String::from_utf8(output.stdout).with_context(|| format!("`{}` printed no UTF-8", line(command)))
}

/// Whether a program is there and answers.
pub(crate) fn works(command: &mut Command) -> bool {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

/// `cargo` as the one that runs us.
pub(crate) fn cargo() -> Command {
    Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
}

/// `git`.
pub(crate) fn git() -> Command {
    Command::new("git")
}

fn missing(command: &Command) -> String {
    format!("`{}` did not start; is it installed and in PATH?", command.get_program().to_string_lossy())
}
