//! Ctrl-C: the first press stops what can be stopped, an answer or a download; the second one, or one without either,
//! the process.

use crate::failure::INTERRUPTED;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The one of the process, from the first use on: a system has one handler a process.
static OF_PROCESS: Mutex<Option<Interrupt>> = Mutex::new(None);

/// Where the handler of Ctrl-C finds what to stop.
#[derive(Clone, Default)]
pub(crate) struct Interrupt {
    current: Arc<Mutex<Option<Current>>>,
}

/// What is being made.
struct Current {
    stop: Box<dyn Fn() + Send>,
    was_asked: bool,
}

impl Interrupt {
    /// Takes over Ctrl-C for the rest of the process, if that wasn't done before.
    pub(crate) fn of_process() -> anyhow::Result<Self> {
        let mut installed = lock(&OF_PROCESS);
        if let Some(interrupt) = &*installed {
            return Ok(interrupt.clone());
        }
        let interrupt = Self::default();
        let handler = interrupt.clone();
        ctrlc::set_handler(move || handler.pressed())?;
        *installed = Some(interrupt.clone());
        Ok(interrupt)
    }

    /// Ctrl-C calls `stop` until [`Interrupt::release`].
    pub(crate) fn watch(&self, stop: impl Fn() + Send + 'static) {
        *lock(&self.current) = Some(Current { stop: Box::new(stop), was_asked: false });
    }

    /// There is nothing to stop any more.
    pub(crate) fn release(&self) {
        lock(&self.current).take();
    }

    fn pressed(&self) {
        match lock(&self.current).as_mut() {
            Some(current) if !current.was_asked => {
                current.was_asked = true;
                (current.stop)();
            }
            Some(_) | None => std::process::exit(INTERRUPTED.into()),
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
