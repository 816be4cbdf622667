//! A number that threads wait on: they spin for a moment, then sleep.
//!
//! Within a step the next piece of work comes within microseconds, and spinning meets it without a system call.
//! Between steps there is nothing to do for long, and a sleeping thread uses no processor time.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long a waiting thread spins before it sleeps: several times what waking a sleeper takes.
pub(super) const SPIN: Duration = Duration::from_micros(60);

/// Looks at the number between two looks at the clock.
const LOOKS_PER_CLOCK: u32 = 64;

pub(super) struct Gate {
    number: AtomicU32,
    sleepers: AtomicU32,
    lock: Mutex<()>,
    changed: Condvar,
}

impl Gate {
    pub(super) fn new(number: u32) -> Self {
        Self {
            number: AtomicU32::new(number),
            sleepers: AtomicU32::new(0),
            lock: Mutex::new(()),
            changed: Condvar::new(),
        }
    }

    /// Sets the number; for a gate that nobody waits on now.
    pub(super) fn set(&self, number: u32) {
        self.number.store(number, Ordering::SeqCst);
    }

    /// Adds one, and wakes those that sleep.
    pub(super) fn advance(&self) {
        self.number.fetch_add(1, Ordering::SeqCst);
        self.wake();
    }

    /// Takes one away; wakes those that sleep when nothing is left.
    pub(super) fn take_one(&self) {
        if self.number.fetch_sub(1, Ordering::SeqCst) == 1 {
            self.wake();
        }
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
            if started.elapsed() > SPIN {
                return self.sleep(is_there);
            }
        }
    }

    fn sleep(&self, is_there: impl Fn(u32) -> bool) -> u32 {
        let mut guard = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        // A sleeper counts itself before it looks, and a changer changes before it looks for sleepers. Both in one
        // total order, so one of the two sees the other.
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
