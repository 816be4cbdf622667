//! What happens when a mapped file becomes shorter: the system sends SIGBUS to whoever touches what is gone, and a
//! process dies of it without a word. With [`explain_shrunk_files`] it says which file it was, and exits with 1.
//!
//! A signal handler may do next to nothing, so the message of each mapping is made when the file is mapped, and lies in a
//! table of fixed size that the handler only reads. A process with more mappings than the table has places dies without
//! a word for the others.

#![allow(unsafe_code)]

use std::path::Path;
use std::ptr;
use std::sync::Once;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

/// Mappings that the handler knows at one time.
const PLACES: usize = 256;

/// One mapping: its addresses, and what to say. A start of 0 is a free place.
struct Place {
    start: AtomicUsize,
    end: AtomicUsize,
    message: AtomicPtr<u8>,
    message_bytes: AtomicUsize,
}

static TABLE: [Place; PLACES] = [const {
    Place {
        start: AtomicUsize::new(0),
        end: AtomicUsize::new(0),
        message: AtomicPtr::new(ptr::null_mut()),
        message_bytes: AtomicUsize::new(0),
    }
}; PLACES];

/// A mapping's place in the table, for as long as this lives.
#[derive(Debug)]
pub(crate) struct Registered(Option<usize>);

impl Registered {
    /// Takes a free place for the bytes of a file.
    pub(crate) fn new(path: &Path, bytes: &[u8]) -> Self {
        let start = bytes.as_ptr() as usize;
        let is_taken = |place: &Place| {
            place.start.compare_exchange(0, start, Ordering::AcqRel, Ordering::Relaxed).is_ok()
        };
        let Some(number) = TABLE.iter().position(is_taken) else { return Self(None) };
        let place = &TABLE[number];
        // Never freed, since a handler on another thread may still read it: some hundred bytes a mapping.
        let message = Box::leak(message(path).into_bytes().into_boxed_slice());
        place.message.store(message.as_mut_ptr(), Ordering::Relaxed);
        place.message_bytes.store(message.len(), Ordering::Relaxed);
        place.end.store(start + bytes.len(), Ordering::Release);
        Self(Some(number))
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        if let Some(number) = self.0 {
            TABLE[number].end.store(0, Ordering::Release);
            TABLE[number].start.store(0, Ordering::Release);
        }
    }
}

fn message(path: &Path) -> String {
    format!(
        "gannet: `{}` became shorter while it was in use, or its disk can't be read; leave it as it is while a model runs, \
         and fetch it again\n",
        path.display()
    )
}

/// Makes this process say which file it was when a mapped file becomes shorter, and exit with 1. For programs; the
/// handler replaces another one of SIGBUS.
pub fn explain_shrunk_files() {
    static ONCE: Once = Once::new();
    ONCE.call_once(install);
}

#[cfg(not(unix))]
fn install() {}

#[cfg(unix)]
fn install() {
    // SAFETY: `action` is all zero but for the fields set here, which is a valid `sigaction`; the handler has the
    // signature that SA_SIGINFO asks for and calls nothing that isn't safe in a handler.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        let handler: extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void) = on_bus_error;
        action.sa_sigaction = handler as libc::sighandler_t;
        action.sa_flags = libc::SA_SIGINFO;
        libc::sigaction(libc::SIGBUS, &action, ptr::null_mut());
    }
}

#[cfg(unix)]
extern "C" fn on_bus_error(_signal: libc::c_int, info: *mut libc::siginfo_t, _context: *mut libc::c_void) {
    // SAFETY: the system hands a valid `siginfo_t` to a handler with SA_SIGINFO, and SIGBUS fills in the address.
    let address = unsafe { (*info).si_addr() } as usize;
    let holds = |place: &&Place| {
        let start = place.start.load(Ordering::Acquire);
        start != 0 && (start..place.end.load(Ordering::Acquire)).contains(&address)
    };
    // SAFETY: `write`, `_exit` and `signal` are safe in a handler; a message is never freed once it is in the table.
    unsafe {
        match TABLE.iter().find(holds) {
            Some(place) => {
                let message = place.message.load(Ordering::Relaxed);
                libc::write(libc::STDERR_FILENO, message.cast(), place.message_bytes.load(Ordering::Relaxed));
                libc::_exit(1);
            }
            // Not ours: as if there were no handler, when the instruction runs again.
            None => {
                libc::signal(libc::SIGBUS, libc::SIG_DFL);
            }
        }
    }
}
