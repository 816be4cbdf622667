//! Every way in which a command ends without having done its work, and the exit code of each.

use std::fmt::{Display, Write};
use std::process::ExitCode;

/// The exit code of a command line that can't be understood.
const WRONG_USAGE: u8 = 2;
/// The exit code of a command that Ctrl-C ended, as shells count signals.
pub(crate) const INTERRUPTED: u8 = 130;

/// Why a command ends early.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The parser's complaint, or the help that was asked for.
    Parsing(clap::Error),
    /// Arguments that contradict each other, or the place where they are used.
    Usage(String),
    /// It was tried and failed.
    Failed(anyhow::Error),
    /// Ctrl-C ended it.
    Interrupted,
    /// Who reads standard output has left; nothing is wrong here.
    ReaderGone,
}

impl<E: Into<anyhow::Error>> From<E> for Failure {
    fn from(error: E) -> Self {
        Failure::Failed(error.into())
    }
}

impl Failure {
    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Failure::Usage(message.into())
    }

    /// Says what happened on standard error and returns the exit code.
    pub(crate) fn report(self) -> ExitCode {
        match self {
            Failure::Parsing(error) => report_parsing(&error),
            Failure::Usage(message) => {
                eprintln!("gannet: {message}; see `gannet --help`");
                ExitCode::from(WRONG_USAGE)
            }
            Failure::Failed(error) => {
                eprintln!("gannet: {}", one_line(&error));
                ExitCode::FAILURE
            }
            Failure::Interrupted => ExitCode::from(INTERRUPTED),
            Failure::ReaderGone => ExitCode::SUCCESS,
        }
    }
}

/// Help and version go to standard output; complaints to standard error, with our name where the parser says `error`.
fn report_parsing(error: &clap::Error) -> ExitCode {
    if !error.use_stderr() {
        // Nobody is left to tell where standard output is closed.
        let _ = error.print();
        return ExitCode::SUCCESS;
    }
    eprint!("{}", as_ours(&error.render().to_string()));
    ExitCode::from(WRONG_USAGE)
}

fn as_ours(complaint: &str) -> String {
    match complaint.strip_prefix("error: ") {
        Some(rest) => format!("gannet: {rest}"),
        None => complaint.to_owned(),
    }
}

/// An error and its causes, outermost first. A cause that the message before it repeats is said once.
pub(crate) fn one_line(error: &anyhow::Error) -> String {
    let causes: Vec<String> = error.chain().map(ToString::to_string).collect();
    join_causes(&causes)
}

fn join_causes(causes: &[impl Display]) -> String {
    let mut line = String::new();
    for cause in causes.iter().map(ToString::to_string) {
        if line.is_empty() {
            line = cause;
        } else if !line.contains(&cause) {
            write!(line, ": {cause}").expect("a string takes any text");
        }
    }
    line.split('\n').map(str::trim).filter(|part| !part.is_empty()).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn causes_are_one_line_and_said_once() {
        let check = |causes: &[&str], line: &str| assert_eq!(join_causes(causes), line);
        check(&["can't read `x`"], "can't read `x`");
        check(&["can't read `x`", "no such file"], "can't read `x`: no such file");
        check(&["can't read `x`: no such file", "no such file"], "can't read `x`: no such file");
        check(&["bad template", "line 1\n  line 2\n"], "bad template: line 1 line 2");
    }

    #[test]
    fn the_parsers_complaints_carry_our_name() {
        assert_eq!(as_ours("error: unexpected argument\n"), "gannet: unexpected argument\n");
        assert_eq!(as_ours("Usage: gannet\n"), "Usage: gannet\n");
    }
}
