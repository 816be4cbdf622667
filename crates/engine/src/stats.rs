//! What the engine has done and does, for those who watch it.

use crate::state::{PageCounts, PrefixCounters};
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// How long the parts of a request took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Timings {
    /// From submission to the first step.
    pub queued: Duration,
    /// From the first step to the first token.
    pub prefill: Duration,
    /// From the first token to the end.
    pub decode: Duration,
}

/// The moments of a request's life so far.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    submitted: Instant,
    started: Option<Instant>,
    first_token: Option<Instant>,
}

impl Clock {
    pub(crate) fn start() -> Self {
        Self { submitted: Instant::now(), started: None, first_token: None }
    }

    pub(crate) fn starts_running(&mut self) {
        self.started.get_or_insert_with(Instant::now);
    }

    pub(crate) fn token_arrives(&mut self) {
        self.first_token.get_or_insert_with(Instant::now);
    }

    pub(crate) fn running_for(&self) -> Duration {
        self.started.map_or(Duration::ZERO, |started| started.elapsed())
    }

    pub(crate) fn timings(&self) -> Timings {
        let now = Instant::now();
        let started = self.started.unwrap_or(now);
        let first_token = self.first_token.unwrap_or(now);
        Timings {
            queued: started.saturating_duration_since(self.submitted),
            prefill: first_token.saturating_duration_since(started),
            decode: now.saturating_duration_since(first_token),
        }
    }
}

/// The time of steps on the engine's thread, all of them together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Phases {
    /// Who runs, how far, and on which pages.
    pub schedule: Duration,
    /// The batch.
    pub assemble: Duration,
    /// The program: handing it over and waiting for it.
    pub run: Duration,
    /// Drawing tokens, where the host does it.
    pub sample: Duration,
    /// What was found becomes part of sequences and prefix cache, and is told.
    pub commit: Duration,
}

/// Time since it was last looked at.
pub(crate) struct Lap(Instant);

impl Lap {
    pub(crate) fn start() -> Self {
        Self(Instant::now())
    }

    /// Adds the time since the start, or since the last call, to a phase.
    pub(crate) fn ends(&mut self, phase: &mut Duration) {
        let before = std::mem::replace(&mut self.0, Instant::now());
        *phase += self.0 - before;
    }
}

/// What the engine has done and does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EngineStats {
    /// Steps collected since the start.
    pub steps: u64,
    /// Rows of all these steps.
    pub rows: u64,
    /// Requests that run.
    pub running: usize,
    /// Requests that wait.
    pub waiting: usize,
    /// Times that a request had to make room for others.
    pub preemptions: u64,
    /// What the prefix cache was asked for and gave.
    pub prefix: PrefixCounters,
    /// What pages are used for.
    pub pages: PageCounts,
    /// Where the time of these steps went.
    pub phases: Phases,
    /// When the engine last made progress; none before the first step.
    pub last_progress: Option<Instant>,
}

impl EngineStats {
    /// Whether requests are there and none has made progress for so long.
    pub fn is_stuck(&self, limit: Duration) -> bool {
        let is_busy = self.running + self.waiting > 0;
        is_busy && self.last_progress.is_some_and(|last| last.elapsed() > limit)
    }
}

/// The newest statistics, shared between the engine's thread and its handles.
#[derive(Debug, Default)]
pub(crate) struct SharedStats(Mutex<EngineStats>);

impl SharedStats {
    pub(crate) fn read(&self) -> EngineStats {
        *self.0.lock().expect("no holder of the lock panics")
    }

    pub(crate) fn update(&self, change: impl FnOnce(&mut EngineStats)) {
        change(&mut self.0.lock().expect("no holder of the lock panics"));
    }
}
