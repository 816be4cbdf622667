//! What the engine has done and does, for those who watch it.

use crate::request::RequestId;
use crate::scheduler::{Pace, Queue};
use crate::state::{PageCounts, PagesByKind, PrefixCounters};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
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

    /// As if it had started so much earlier.
    #[cfg(test)]
    pub(crate) fn started_earlier(&mut self, by: Duration) {
        self.started = self.started.and_then(|started| started.checked_sub(by));
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

/// The process's major page faults, looked at now and then since that costs a system call.
#[derive(Default)]
pub(crate) struct Faults {
    looked: Option<Instant>,
    at_start: u64,
    since_start: Option<u64>,
}

impl Faults {
    /// How often they are looked at.
    const EVERY: Duration = Duration::from_secs(1);

    /// Those since the first look, as the last one found.
    pub(crate) fn look(&mut self, now: Instant, count: &mut dyn FnMut() -> Option<u64>) -> Option<u64> {
        if self.looked.is_none_or(|looked| now - looked >= Self::EVERY) {
            let all = count();
            if self.looked.is_none() {
                self.at_start = all.unwrap_or(0);
            }
            self.looked = Some(now);
            self.since_start = all.map(|all| all.saturating_sub(self.at_start));
        }
        self.since_start
    }
}

/// What the engine has done and does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EngineStats {
    /// Steps collected since the start.
    pub steps: u64,
    /// Of these, steps that hold rows of prompts.
    pub prompt_steps: u64,
    /// Rows of all these steps.
    pub rows: u64,
    /// Requests that run.
    pub running: usize,
    /// Requests that wait.
    pub waiting: usize,
    /// How long a request would wait that came now and went behind all others; none where nothing shows it yet.
    pub wait: Option<Duration>,
    /// Times that the device failed; all that ran then ended with that.
    pub failures: u64,
    /// Of these, those since the last step that was collected: where it grows, the device is lost.
    pub failures_since_step: u64,
    /// Times that a request had to make room for others.
    pub preemptions: u64,
    /// Draws that were put off to a later step because their mask was late.
    pub late_masks: u64,
    /// What the prefix cache was asked for and gave.
    pub prefix: PrefixCounters,
    /// What pages are used for.
    pub pages: PageCounts,
    /// The same by kind.
    pub pages_by_kind: PagesByKind,
    /// Where the time of these steps went.
    pub phases: Phases,
    /// Page faults of the process since the engine started that had to read a file or swapped memory: each of them holds a
    /// step up. None where the system doesn't say.
    pub major_faults: Option<u64>,
}

/// A waiting request's place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueuePlace {
    /// Requests that go before it.
    pub before: usize,
    /// How long it goes on waiting, as far as the others show; none where nothing shows it yet.
    pub wait: Option<Duration>,
}

/// The newest statistics, shared between the engine's thread and its handles.
#[derive(Debug, Default)]
pub(crate) struct SharedStats {
    stats: Mutex<EngineStats>,
    line: Mutex<Line>,
    /// Requests that were taken and have not started for the first time, those in the inbox included.
    accepted: AtomicUsize,
}

/// The requests that wait, in their order, and how fast they leave.
#[derive(Debug, Default)]
struct Line {
    waiting: Vec<RequestId>,
    pace: Pace,
}

impl SharedStats {
    pub(crate) fn read(&self) -> EngineStats {
        *self.stats.lock().expect("no holder of the lock panics")
    }

    pub(crate) fn update(&self, change: impl FnOnce(&mut EngineStats)) {
        change(&mut self.stats.lock().expect("no holder of the lock panics"));
    }

    /// Says who waits.
    pub(crate) fn update_queue(&self, queue: &Queue) {
        let mut line = self.line.lock().expect("no holder of the lock panics");
        line.waiting.clear();
        line.waiting.extend(queue.iter().map(|sequence| sequence.id));
        line.pace = queue.pace();
    }

    /// A waiting request's place; none where it waits no more, or the engine has not looked at it yet.
    pub(crate) fn place(&self, id: RequestId) -> Option<QueuePlace> {
        let line = self.line.lock().expect("no holder of the lock panics");
        let before = line.waiting.iter().position(|waiting| *waiting == id)?;
        Some(QueuePlace { before, wait: line.pace.wait(before, Instant::now()) })
    }

    /// Takes one more request where fewer than `limit` wait; else how many do.
    pub(crate) fn accept(&self, limit: usize) -> Result<(), usize> {
        let one_more = |accepted: usize| (accepted < limit).then_some(accepted + 1);
        self.accepted.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more).map(|_| ())
    }

    /// A request that was taken waits no more, or never did.
    pub(crate) fn no_longer_waits(&self) {
        self.accepted.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn page_faults_count_from_the_first_look_and_are_looked_at_once_a_second() {
        let start = Instant::now();
        let mut all = 40;
        let mut looks = 0;
        let mut faults = Faults::default();
        let mut at = |milliseconds: u64| {
            let mut count = || {
                looks += 1;
                all += 1;
                Some(all)
            };
            faults.look(start + Duration::from_millis(milliseconds), &mut count)
        };
        assert_eq!([0, 500, 1000, 1999, 2000].map(&mut at), [Some(0), Some(0), Some(1), Some(1), Some(2)]);
        assert_eq!(looks, 3);
        assert_eq!(Faults::default().look(start, &mut || None), None);
    }
}
