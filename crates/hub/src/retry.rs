//! How a download is spread over connections, and how often and when something that failed is tried again.

use crate::error::HubError;
use std::thread;
use std::time::Duration;

/// The longest wait before a new attempt, also where the server asks for more.
const WAIT_MAX: Duration = Duration::from_secs(60);
/// An attempt that brought as much isn't counted: slow lines and cut ones come to an end all the same.
pub(crate) const PROGRESS_BYTES: u64 = 1 << 20;

/// How files are fetched.
#[derive(Clone, Copy, Debug)]
pub struct Transfer {
    /// Connections that bring pieces of a file at the same time; at least 1.
    pub connections: usize,
    /// Bytes of a piece, the unit in which an interrupted download is resumed by a later process; at least 1.
    pub piece_bytes: u64,
    /// Attempts in a row that may bring nothing before we give up; at least 1.
    pub attempts: u32,
    /// The wait before the second attempt, doubled for each further one.
    pub first_wait: Duration,
    /// How to wait.
    pub sleep: fn(Duration),
}

impl Default for Transfer {
    fn default() -> Self {
        Self {
            connections: 8,
            piece_bytes: 16 << 20,
            attempts: 5,
            first_wait: Duration::from_millis(500),
            sleep: thread::sleep,
        }
    }
}

/// Why an attempt failed.
#[derive(Debug)]
pub(crate) enum Trouble {
    /// Trying again may help, at the earliest after `wait`.
    Passing { cause: String, wait: Option<Duration> },
    /// It won't.
    Lasting(HubError),
}

impl Trouble {
    pub(crate) fn passing(cause: impl Into<String>) -> Self {
        Self::Passing { cause: cause.into(), wait: None }
    }
}

impl From<HubError> for Trouble {
    fn from(error: HubError) -> Self {
        Self::Lasting(error)
    }
}

/// The attempts at one request.
pub(crate) struct Retries<'a> {
    transfer: &'a Transfer,
    url: &'a str,
    failed: u32,
}

impl<'a> Retries<'a> {
    pub(crate) fn new(transfer: &'a Transfer, url: &'a str) -> Self {
        Self { transfer, url, failed: 0 }
    }

    /// Waits for the next attempt after one that brought `bytes`, or gives up.
    pub(crate) fn after(&mut self, trouble: Trouble, bytes: u64) -> Result<(), HubError> {
        let (cause, wait) = match trouble {
            Trouble::Passing { cause, wait } => (cause, wait),
            Trouble::Lasting(error) => return Err(error),
        };
        self.failed = if bytes >= PROGRESS_BYTES { 1 } else { self.failed + 1 };
        if self.failed >= self.transfer.attempts {
            return Err(HubError::GaveUp { url: self.url.to_owned(), attempts: self.failed, cause });
        }
        let doubled = self.transfer.first_wait.saturating_mul(1 << (self.failed - 1).min(16));
        (self.transfer.sleep)(wait.unwrap_or_default().max(doubled).min(WAIT_MAX));
        Ok(())
    }

    /// Repeats `attempt` until it works, fails for good or was tried often enough.
    pub(crate) fn run<T>(mut self, mut attempt: impl FnMut() -> Result<T, Trouble>) -> Result<T, HubError> {
        loop {
            match attempt() {
                Ok(value) => return Ok(value),
                Err(trouble) => self.after(trouble, 0)?,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;

    thread_local! {
        static WAITS: RefCell<Vec<u64>> = const { RefCell::new(Vec::new()) };
    }

    fn record(wait: Duration) {
        WAITS.with_borrow_mut(|waits| waits.push(wait.as_secs()));
    }

    #[test]
    fn waits_double_and_end_and_heed_the_server() {
        let transfer = Transfer {
            attempts: 9,
            first_wait: Duration::from_secs(1),
            sleep: record,
            ..Transfer::default()
        };
        let check = |asked: Option<u64>, expected: &[u64]| {
            WAITS.with_borrow_mut(Vec::clear);
            let wait = asked.map(Duration::from_secs);
            let fail = || Err::<(), _>(Trouble::Passing { cause: "cut".into(), wait });
            let error = Retries::new(&transfer, "url").run(fail).unwrap_err();
            assert_eq!(error.to_string(), "url can't be fetched, given up after 9 attempts: cut");
            WAITS.with_borrow(|waits| assert_eq!(waits, expected));
        };
        check(None, &[1, 2, 4, 8, 16, 32, 60, 60]);
        check(Some(5), &[5, 5, 5, 8, 16, 32, 60, 60]);
        check(Some(7200), &[60; 8]);
    }

    #[test]
    fn attempts_that_bring_much_are_not_counted() {
        let transfer = Transfer { attempts: 2, sleep: record, ..Transfer::default() };
        let mut retries = Retries::new(&transfer, "url");
        for _ in 0..10 {
            retries.after(Trouble::passing("cut"), PROGRESS_BYTES).unwrap();
        }
        assert!(retries.after(Trouble::passing("cut"), PROGRESS_BYTES - 1).is_err());
    }
}
