//! A model's files, checked without running them.
//!
//! Each check is a line: what was looked at, whether it is sound, and with which facts. What one check can't find out,
//! because an earlier one failed, is left out.

mod beginning;
mod chat;
mod shapes;
mod values;
mod vocabulary;

use crate::failure::Failure;
use crate::output;
use crate::quantity::{bytes, entry, plural};
use gannet_formats::{Checkpoint, Source};
use gannet_loader::{LoadError, Opened};
use serde::Serialize;
use std::path::Path;

/// What a check found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Verdict {
    Ok,
    /// Worth a look.
    Note,
    /// It can't run, or answers wrongly.
    Fault,
}

/// One line of the report.
#[derive(Debug, Serialize)]
pub(super) struct Check {
    check: &'static str,
    verdict: Verdict,
    detail: String,
}

impl Check {
    fn ok(check: &'static str, detail: impl Into<String>) -> Self {
        Self { check, verdict: Verdict::Ok, detail: detail.into() }
    }

    fn note(check: &'static str, detail: impl Into<String>) -> Self {
        Self { check, verdict: Verdict::Note, detail: detail.into() }
    }

    fn fault(check: &'static str, detail: impl Into<String>) -> Self {
        Self { check, verdict: Verdict::Fault, detail: detail.into() }
    }

    fn line(&self) -> String {
        let verdict = match self.verdict {
            Verdict::Ok => "ok",
            Verdict::Note => "note",
            Verdict::Fault => "fault",
        };
        format!("{verdict:<7}{}", entry(self.check, &self.detail))
    }
}

/// What `--json` prints.
#[derive(Serialize)]
struct Report<'a> {
    path: &'a Path,
    faults: usize,
    notes: usize,
    checks: &'a [Check],
}

/// Checks the model at a path and prints what was found; faults fail the command.
pub(super) fn run(path: &Path, as_json: bool) -> Result<(), Failure> {
    let checks = checks(path);
    let count = |verdict| checks.iter().filter(|check| check.verdict == verdict).count();
    let (faults, notes) = (count(Verdict::Fault), count(Verdict::Note));
    if as_json {
        output::show_json(&Report { path, faults, notes, checks: &checks })?;
    } else {
        let lines: Vec<String> = checks.iter().map(Check::line).collect();
        output::show(&(lines.join("\n") + "\n"))?;
    }
    match faults {
        0 => Ok(()),
        faults => Err(anyhow::anyhow!("`{}` has {}", path.display(), plural(faults, "fault")).into()),
    }
}

fn checks(path: &Path) -> Vec<Check> {
    let checkpoint = match Checkpoint::open(path) {
        Ok(checkpoint) => checkpoint,
        Err(error) => return vec![Check::fault("structure", error.to_string())],
    };
    let mut checks = vec![structure(&checkpoint)];
    match gannet_loader::open(path) {
        Ok(opened) => {
            checks.extend(shapes::checks(&opened));
            checks.extend(text(&opened));
        }
        Err(error) => checks.push(Check::fault("config", error.to_string())),
    }
    checks.push(values::check(&checkpoint));
    checks
}

fn structure(checkpoint: &Checkpoint) -> Check {
    let kind = match &checkpoint.source {
        Source::Gguf(_) => "a GGUF file",
        Source::HuggingFace(_) => "a folder with safetensors",
    };
    let (tensors, size) = (checkpoint.tensors().count(), bytes(checkpoint.file_bytes() as u64));
    Check::ok("structure", format!("{kind} of {size} with {}", plural(tensors, "tensor")))
}

/// All checks of the text side.
fn text(opened: &Opened) -> Vec<Check> {
    let text = match &opened.text {
        Ok(text) => text,
        Err(LoadError::NoTokenizer { file, expected }) => {
            return vec![Check::note("tokenizer", format!("{file} holds none: expected {expected}"))];
        }
        Err(error) => return vec![Check::fault("tokenizer", error.to_string())],
    };
    let mut checks = vocabulary::checks(opened, text);
    checks.push(beginning::check(opened, text));
    checks.extend(chat::checks(opened, text));
    checks
}
