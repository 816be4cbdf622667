//! Gives up a step that is still running when a deadline passes, or a while after a client has left.
//!
//! The engine's thread is inside of the step then, so a thread beside it watches the clock. It sleeps until the earliest
//! moment that it knows of; most steps neither wake it nor are noticed by it.
//!
//! Invariant: a step is given up for a deadline of a request that was there when it began, or while the engine has not heard
//! yet that a client has left.
//!
//! Knows no request: a moment is all that it is told.

use gannet_ops::Interrupter;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

/// How long a step may go on after a client has left: with the time between two ops, well below a tenth of a second.
pub(crate) const PATIENCE: Duration = Duration::from_millis(50);

/// What the engine, its clients and the thread beside it share.
#[derive(Debug, Default)]
pub(crate) struct Alarm {
    due: Mutex<Due>,
    changed: Condvar,
    interrupter: Interrupter,
}

#[derive(Debug, Default)]
struct Due {
    /// The earliest deadline of a request that is there, while a step runs.
    deadline: Option<Instant>,
    /// When the step ends at the latest because a client has left.
    hurry: Option<Instant>,
    /// Until when the thread sleeps, unless it is woken.
    sleeps_until: Option<Instant>,
    has_ended: bool,
}

impl Due {
    fn earliest(&self) -> Option<Instant> {
        self.deadline.into_iter().chain(self.hurry).min()
    }
}

/// The thread, for as long as this lives.
pub(crate) struct Watch {
    alarm: Arc<Alarm>,
    thread: Option<JoinHandle<()>>,
}

impl Alarm {
    pub(crate) fn new(interrupter: Interrupter) -> Arc<Self> {
        Arc::new(Self { interrupter, ..Self::default() })
    }

    /// A step begins; it is given up when a deadline passes.
    pub(crate) fn begin_step(&self, deadline: Option<Instant>) {
        let mut due = self.lock();
        due.deadline = deadline;
        self.wake(&due);
    }

    pub(crate) fn end_step(&self) {
        self.lock().deadline = None;
    }

    /// Gives up the step in progress, if it goes on for longer than [`PATIENCE`]. Said before the engine is told why, so
    /// that it can't hear it first.
    pub(crate) fn hurry(&self) {
        let mut due = self.lock();
        due.hurry.get_or_insert_with(|| Instant::now() + PATIENCE);
        self.wake(&due);
    }

    /// The engine has heard why it was hurried.
    pub(crate) fn heard(&self) {
        self.lock().hurry = None;
    }

    /// Gives up the step in progress at once.
    pub(crate) fn ring(&self) {
        self.interrupter.interrupt();
    }

    /// Wakes the thread where it would sleep for too long.
    fn wake(&self, due: &Due) {
        let is_late = |at: Instant| due.sleeps_until.is_none_or(|until| at < until);
        if due.earliest().is_some_and(is_late) {
            self.changed.notify_one();
        }
    }

    /// Starts the thread. Where the system gives none, deadlines are still looked at between steps.
    pub(crate) fn watch(self: &Arc<Self>) -> Watch {
        let alarm = Arc::clone(self);
        let thread = Builder::new().name("engine-alarm".to_owned()).spawn(move || alarm.ring_when_due());
        Watch { alarm: Arc::clone(self), thread: thread.ok() }
    }

    fn ring_when_due(&self) {
        let mut due = self.lock();
        while !due.has_ended {
            let now = Instant::now();
            if due.earliest().is_some_and(|at| at <= now) {
                (due.deadline, due.hurry) = (None, None);
                self.ring();
            }
            due.sleeps_until = due.earliest();
            due = match due.sleeps_until {
                Some(at) => {
                    let left = at.saturating_duration_since(now);
                    self.changed.wait_timeout(due, left).unwrap_or_else(PoisonError::into_inner).0
                }
                None => self.changed.wait(due).unwrap_or_else(PoisonError::into_inner),
            };
        }
    }

    fn lock(&self) -> MutexGuard<'_, Due> {
        self.due.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.alarm.lock().has_ended = true;
        self.alarm.changed.notify_one();
        // Nothing in the thread panics, and if it did, the engine is ending anyway.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Waits until the alarm has rung; a test that waits in vain hangs.
    fn rings(interrupter: &Interrupter) {
        while !interrupter.take() {
            std::thread::yield_now();
        }
    }

    #[test]
    fn a_step_is_given_up_when_its_deadline_passes_or_a_client_leaves() {
        let interrupter = Interrupter::default();
        let alarm = Alarm::new(interrupter.clone());
        let _watch = alarm.watch();
        alarm.begin_step(Some(Instant::now()));
        rings(&interrupter);
        alarm.end_step();
        // A later moment first, so that the thread sleeps for longer than what comes then.
        alarm.begin_step(Some(Instant::now() + Duration::from_secs(3600)));
        alarm.hurry();
        rings(&interrupter);
    }

    #[test]
    fn what_ended_in_time_rings_no_more() {
        let alarm = Alarm::new(Interrupter::default());
        alarm.begin_step(Some(Instant::now()));
        alarm.end_step();
        alarm.hurry();
        alarm.heard();
        assert_eq!(alarm.lock().earliest(), None);
    }
}
