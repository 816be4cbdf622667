//! Processor time of a server's process by threads, as Linux tells it: how much of it the engine and its team took, and how
//! much everything else that serves (proc(5), `/proc/PID/task/TID/stat`).

use anyhow::Context;
use serde::Serialize;
use std::collections::HashMap;
use std::fs;

/// Ticks a second; what Linux has told programs for decades, whatever its own clock does.
const TICKS: f64 = 100.0;
/// Names of threads that compute: the engine's, its team's, and those that make masks.
const COMPUTES: [&str; 3] = ["engine", "gannet-cpu", "gannet-mask"];

/// Seconds of each thread so far, by its id.
pub(super) struct ThreadTimes(HashMap<String, (String, f64)>);

/// Where the processor time of a while went.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Share {
    /// Seconds of the threads that compute.
    engine_seconds: f64,
    /// Seconds of all others.
    other_seconds: f64,
    /// The part of the whole that the others took.
    other_share: f64,
    /// Resident memory at the end, in KiB.
    resident_kib: u64,
    /// Threads at the end.
    threads: usize,
}

impl ThreadTimes {
    /// Of a process of this machine.
    pub(super) fn of(process: u32) -> anyhow::Result<Self> {
        let folder = format!("/proc/{process}/task");
        let tasks = fs::read_dir(&folder)
            .with_context(|| format!("can't read `{folder}`; is there such a process?"))?;
        let mut times = HashMap::new();
        for task in tasks {
            let task = task?;
            // A thread may end while it is looked at.
            let Ok(stat) = fs::read_to_string(task.path().join("stat")) else { continue };
            let (Some(name), Some(seconds)) = (name_of(&stat), seconds_of(&stat)) else { continue };
            times.insert(task.file_name().to_string_lossy().into_owned(), (name.to_owned(), seconds));
        }
        Ok(Self(times))
    }

    /// What was used since `before`, and what is held now, of process `process`.
    pub(super) fn since(&self, before: &Self, process: u32) -> Share {
        let (mut engine_seconds, mut other_seconds) = (0.0, 0.0);
        for (id, (name, seconds)) in &self.0 {
            let used = seconds - before.0.get(id).map_or(0.0, |(_, seconds)| *seconds);
            if COMPUTES.iter().any(|start| name.starts_with(start)) {
                engine_seconds += used;
            } else {
                other_seconds += used;
            }
        }
        let whole: f64 = engine_seconds + other_seconds;
        let other_share = if whole > 0.0 { other_seconds / whole } else { 0.0 };
        Share {
            engine_seconds,
            other_seconds,
            other_share,
            resident_kib: resident_kib(process),
            threads: self.0.len(),
        }
    }
}

impl Share {
    /// For people; `own` is the processor time of this process.
    pub(super) fn line(&self, own: Option<f64>) -> String {
        let Self { engine_seconds, other_seconds, other_share, resident_kib, threads } = self;
        let own = own.map_or("unknown".to_owned(), |seconds| format!("{seconds:.1} s"));
        format!(
            "             server: engine {engine_seconds:.1} s, other threads {other_seconds:.1} s ({:.1} %), {} MiB, {threads} \
             threads; this program {own}",
            100.0 * other_share,
            resident_kib >> 10
        )
    }
}

fn resident_kib(process: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}

/// The name of a thread or process in its `stat`.
fn name_of(stat: &str) -> Option<&str> {
    Some(stat.split_once('(')?.1.rsplit_once(')')?.0)
}

/// Seconds in user and kernel (fields 14 and 15 of `stat`).
pub(super) fn seconds_of(stat: &str) -> Option<f64> {
    let fields: Vec<&str> = stat.rsplit(')').next()?.split_whitespace().collect();
    let ticks = |place: usize| fields.get(place)?.parse::<f64>().ok();
    Some((ticks(11)? + ticks(12)?) / TICKS)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A line of a kernel's, with a name that holds a parenthesis.
    const STAT: &str = "17 (a) b (c) S 1 2 3 4 5 6 7 8 9 10 150 50 0 0 20 0 4 0 1 2 3";

    #[test]
    fn names_and_times_are_read() {
        assert_eq!(name_of(STAT), Some("a) b (c"));
        assert_eq!(seconds_of(STAT), Some(2.0));
        assert_eq!(seconds_of("17 (a)"), None);
    }

    #[test]
    fn threads_that_compute_are_told_from_others() {
        let times = |engine: f64, other: f64| {
            let entry = |id: &str, name: &str, seconds| (id.to_owned(), (name.to_owned(), seconds));
            ThreadTimes([entry("1", COMPUTES[0], engine), entry("2", "tokio-rt-worker", other)].into())
        };
        let share = times(10.0, 1.5).since(&times(1.0, 0.5), std::process::id());
        assert_eq!((share.engine_seconds, share.other_seconds, share.other_share), (9.0, 1.0, 0.1));
        assert!(share.resident_kib > 0 && share.line(None).contains("(10.0 %)"));
    }
}
