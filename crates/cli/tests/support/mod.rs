//! Runs the built binary.

#![allow(dead_code, reason = "each test binary uses a part")]

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// What a run of the binary gave.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Run {
    pub(crate) fn new(output: Output) -> Self {
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        Self { code: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) }
    }

    /// The standard output of a run that went well.
    pub(crate) fn succeeded(self) -> String {
        assert_eq!(self.code, Some(0), "{self:?}");
        self.stdout
    }

    /// The standard output of a run that went well, as JSON.
    pub(crate) fn json(self) -> serde_json::Value {
        serde_json::from_str(&self.succeeded()).unwrap()
    }

    /// The run failed with this code and one line that holds these parts.
    pub(crate) fn failed(self, code: i32, parts: &[&str]) {
        assert_eq!(self.code, Some(code), "{self:?}");
        assert!(self.stderr.starts_with("gannet: "), "{self:?}");
        assert!(!self.stderr.contains("panicked"), "{self:?}");
        if code == 1 {
            assert_eq!(self.stderr.trim_end().lines().count(), 1, "{self:?}");
        }
        for part in parts {
            assert!(self.stderr.contains(part), "{part:?} is not in {self:?}");
        }
    }
}

/// The binary with these words as its arguments.
pub(crate) fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gannet"));
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Runs the binary.
pub(crate) fn gannet(arguments: &[&str]) -> Run {
    Run::new(command(arguments).output().unwrap())
}

/// Runs the binary with this on its standard input.
pub(crate) fn gannet_reading(input: &[u8], arguments: &[&str]) -> Run {
    let mut child = command(arguments).stdin(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(input).unwrap();
    Run::new(child.wait_with_output().unwrap())
}

/// A file or folder of the repository.
pub(crate) fn repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}

/// A committed checkpoint, as an argument.
pub(crate) fn golden(name: &str) -> String {
    repository("goldens").join(name).to_str().unwrap().to_owned()
}
