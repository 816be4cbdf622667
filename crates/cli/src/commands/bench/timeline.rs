//! Recorded steps as a trace that Chrome (`chrome://tracing`) and Perfetto show: a JSON array of complete events, by the
//! Trace Event Format.

use super::profile;
use super::streams::StepTimes;
use crate::failure::Failure;
use anyhow::Context;
use gannet_ops::Program;
use serde::Serialize;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::time::{Duration, Instant};

/// Events of all cases.
pub(super) struct Timeline {
    started: Instant,
    events: Vec<Event>,
}

/// A complete event; times are microseconds.
#[derive(Serialize)]
struct Event {
    name: String,
    cat: &'static str,
    ph: &'static str,
    ts: f64,
    dur: f64,
    pid: u32,
    /// The row that it is shown in: 1 the host, 2 what computes.
    tid: u32,
}

impl Timeline {
    pub(super) fn start() -> Self {
        Self { started: Instant::now(), events: Vec::new() }
    }

    /// Adds a step of a case.
    pub(super) fn push(&mut self, case: &str, program: &Program, times: &StepTimes) {
        let begun = times.begun.saturating_duration_since(self.started);
        let StepTimes { assembled, submitted, sampled, ended, .. } = *times;
        self.event((case.to_owned(), "step"), begun, begun + ended, 1);
        let phases = [
            ("assemble", Duration::ZERO, assembled),
            ("run", assembled, submitted),
            ("sample", submitted, sampled),
            ("wait", sampled, ended),
        ];
        for (name, start, end) in phases {
            self.event((name.to_owned(), "phase"), begun + start, begun + end, 1);
        }
        for (node, time) in program.nodes.iter().zip(&times.nodes) {
            let run = begun + assembled;
            self.event((profile::name(program, node), "op"), run + time.start, run + time.end, 2);
        }
    }

    fn event(&mut self, (name, cat): (String, &'static str), start: Duration, end: Duration, tid: u32) {
        let microseconds = |time: Duration| time.as_secs_f64() * 1e6;
        let dur = microseconds(end.saturating_sub(start));
        self.events.push(Event { name, cat, ph: "X", ts: microseconds(start), dur, pid: 1, tid });
    }

    /// Writes everything.
    pub(super) fn write(&self, path: &Path) -> Result<(), Failure> {
        let failed = || format!("can't write the trace to `{}`", path.display());
        let mut file = BufWriter::new(File::create(path).with_context(failed)?);
        serde_json::to_writer(&mut file, &self.events).with_context(failed)?;
        file.flush().with_context(failed)?;
        Ok(())
    }
}
