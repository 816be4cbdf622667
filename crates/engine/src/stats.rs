//! How long the parts of a request took.

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

    pub(crate) fn step_begins(&mut self) {
        self.started.get_or_insert_with(Instant::now);
    }

    pub(crate) fn token_arrives(&mut self) {
        self.first_token.get_or_insert_with(Instant::now);
    }

    pub(crate) fn timings(&self) -> Timings {
        let now = Instant::now();
        let started = self.started.unwrap_or(now);
        let first_token = self.first_token.unwrap_or(now);
        Timings {
            queued: started - self.submitted,
            prefill: first_token.saturating_duration_since(started),
            decode: now - first_token,
        }
    }
}
