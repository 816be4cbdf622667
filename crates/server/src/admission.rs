//! Whether there is room for a request: so many sequences run, so many may wait, the rest is refused at once.
//!
//! A refusal says when a place is expected, as far as the engine's queue shows it.

use crate::error::ApiError;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// The longest time after which a client is told to try again.
const LATEST: Duration = Duration::from_secs(3600);

/// The places of one model.
#[derive(Debug)]
pub(crate) struct Admission {
    /// Answers that are being made or wait.
    live: AtomicUsize,
    sequences: usize,
    waiting: usize,
}

/// Places that are taken until this is dropped.
#[derive(Debug)]
pub(crate) struct Permit {
    admission: Arc<Admission>,
    answers: usize,
}

impl Admission {
    pub(crate) fn new(sequences: usize, waiting: usize) -> Arc<Self> {
        Arc::new(Self { live: AtomicUsize::new(0), sequences, waiting })
    }

    /// Answers that are being made or wait.
    pub(crate) fn live(&self) -> usize {
        self.live.load(Ordering::Relaxed)
    }

    /// The most answers that one request may ask for.
    fn most(&self) -> usize {
        self.sequences + self.waiting
    }

    /// Refuses a request that there will never be room for; `path` is the parameter that asks for so much.
    pub(crate) fn check(&self, answers: usize, path: &str) -> Result<(), ApiError> {
        let most = self.most();
        if answers <= most {
            return Ok(());
        }
        let why =
            format!("{answers} answers at once are more than the {most} that this server runs and queues");
        Err(ApiError::Invalid { path: path.to_owned(), why })
    }

    /// Takes places for so many answers; `wait` is how long the next one would wait, where that is known.
    pub(crate) fn admit(
        self: &Arc<Self>,
        answers: usize,
        wait: Option<Duration>,
    ) -> Result<Permit, ApiError> {
        let take = |live: usize| (live + answers <= self.most()).then_some(live + answers);
        match self.live.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take) {
            Ok(_) => Ok(Permit { admission: self.clone(), answers }),
            Err(live) => Err(ApiError::QueueFull {
                waiting: live.saturating_sub(self.sequences),
                limit: self.waiting,
                retry_after: wait.unwrap_or(Duration::ZERO).clamp(Duration::from_secs(1), LATEST),
            }),
        }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.admission.live.fetch_sub(self.answers, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_there_is_never_room_for_is_a_fault_of_its_parameter() {
        let admission = Admission::new(2, 1);
        assert!(admission.check(3, "n").is_ok());
        let refused = admission.check(4, "prompt").unwrap_err().to_string();
        assert!(refused.starts_with("`prompt`: 4 answers at once are more than the 3"), "{refused}");
    }

    #[test]
    fn places_are_taken_refused_and_given_back() {
        let admission = Admission::new(2, 1);
        let first = admission.admit(2, None).unwrap();
        let second = admission.admit(1, None).unwrap();
        let refused = admission.admit(1, Some(Duration::from_millis(2500))).unwrap_err();
        assert!(
            refused.to_string().starts_with("1 requests are waiting already, at most 1 may"),
            "{refused}"
        );
        drop(first);
        assert_eq!(admission.live(), 1);
        assert!(admission.admit(3, None).is_err());
        drop((admission.admit(2, None).unwrap(), second));
        assert_eq!(admission.live(), 0);
    }
}
