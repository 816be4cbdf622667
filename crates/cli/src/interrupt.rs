//! Ctrl-C: the first press stops the answer that is being made, the second one, or one without an answer, the process.

use crate::failure::INTERRUPTED;
use gannet_engine::{EngineHandle, RequestId};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Where the handler of Ctrl-C finds the answer to stop.
#[derive(Clone, Default)]
pub(crate) struct Interrupt {
    current: Arc<Mutex<Option<Current>>>,
}

/// The answer that is being made.
struct Current {
    handle: EngineHandle,
    request: RequestId,
    was_asked: bool,
}

impl Interrupt {
    /// Takes over Ctrl-C for the rest of the process.
    pub(crate) fn install() -> anyhow::Result<Self> {
        let interrupt = Self::default();
        let handler = interrupt.clone();
        ctrlc::set_handler(move || handler.pressed())?;
        Ok(interrupt)
    }

    /// Ctrl-C means this request until [`Interrupt::release`].
    pub(crate) fn watch(&self, handle: &EngineHandle, request: RequestId) {
        *self.lock() = Some(Current { handle: handle.clone(), request, was_asked: false });
    }

    /// The request has ended; returns whether Ctrl-C was pressed meanwhile.
    pub(crate) fn release(&self) -> bool {
        self.lock().take().is_some_and(|current| current.was_asked)
    }

    fn pressed(&self) {
        match self.lock().as_mut() {
            Some(current) if !current.was_asked => {
                current.was_asked = true;
                // An engine that doesn't listen any more has ended the request already.
                let _ = current.handle.cancel(current.request);
            }
            Some(_) | None => std::process::exit(INTERRUPTED.into()),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<Current>> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
