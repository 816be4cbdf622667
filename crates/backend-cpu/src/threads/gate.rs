//! A number that threads wait on: they spin for a moment, then sleep. As a gate it counts who is behind it.
//!
//! Within a step the next piece of work comes within microseconds, and spinning meets it without a system
//! call. Between steps there is nothing to do for long, and a sleeping thread uses no processor time.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Looks at the number between two looks at the clock.
const LOOKS_PER_CLOCK: u32 = 64;

/// The bit of a number that says that the gate is open; the others count those who are behind it.
const OPEN: u32 = 1 << 31;

pub(super) struct Gate {
    number: AtomicU32,
    sleepers: AtomicU32,
    lock: Mutex<()>,
    changed: Condvar,
    /// How long a waiting thread spins.
    spin: Duration,
}

impl Gate {
    /// Closed, at zero, with waiters that spin for so long.
    pub(super) fn new(spin: Duration) -> Self {
        Self {
            spin,
            number: AtomicU32::new(0),
            sleepers: AtomicU32::new(0),
            lock: Mutex::new(()),
            changed: Condvar::new(),
        }
    }

    /// Adds one, and wakes those that sleep.
    pub(super) fn advance(&self) {
        self.number.fetch_add(1, Ordering::SeqCst);
        self.wake();
    }

    /// Lets members in; for a gate that is closed and that nobody is behind.
    pub(super) fn open(&self) {
        self.number.store(OPEN, Ordering::SeqCst);
    }

    /// Goes through; false where the gate is closed.
    pub(super) fn enter(&self) -> bool {
        let one_more = |number: u32| (number & OPEN != 0).then_some(number + 1);
        self.number.fetch_update(Ordering::SeqCst, Ordering::SeqCst, one_more).is_ok()
    }

    /// Comes back.
    pub(super) fn leave(&self) {
        if self.number.fetch_sub(1, Ordering::SeqCst) == 1 {
            self.wake();
        }
    }

    /// Lets nobody in any more, and waits until everybody is back.
    pub(super) fn close(&self) {
        self.number.fetch_and(!OPEN, Ordering::SeqCst);
        self.wait(|number| number == 0);
    }

    /// Waits until the number is as asked for, and returns it.
    pub(super) fn wait(&self, is_there: impl Fn(u32) -> bool) -> u32 {
        let started = Instant::now();
        loop {
            for _ in 0..LOOKS_PER_CLOCK {
                let number = self.number.load(Ordering::Acquire);
                if is_there(number) {
                    return number;
                }
                std::hint::spin_loop();
            }
            if started.elapsed() >= self.spin {
                return self.sleep(is_there);
            }
        }
    }

    fn sleep(&self, is_there: impl Fn(u32) -> bool) -> u32 {
        let mut guard = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        // A sleeper counts itself before it looks, and a changer changes before it looks for sleepers. Both
        // in one total order, so one of the two sees the other.
        self.sleepers.fetch_add(1, Ordering::SeqCst);
        let number = loop {
            let number = self.number.load(Ordering::SeqCst);
            if is_there(number) {
                break number;
            }
            guard = self.changed.wait(guard).unwrap_or_else(PoisonError::into_inner);
        };
        self.sleepers.fetch_sub(1, Ordering::SeqCst);
        number
    }

    fn wake(&self) {
        if self.sleepers.load(Ordering::SeqCst) > 0 {
            // Taking the lock waits until a sleeper that has looked already is asleep.
            drop(self.lock.lock().unwrap_or_else(PoisonError::into_inner));
            self.changed.notify_all();
        }
    }
}
