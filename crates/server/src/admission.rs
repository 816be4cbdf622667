//! Whether there is room for a request: so many sequences run, so many may wait, the rest is refused at once.
//!
//! A refusal says when a place is expected: the average time of recent answers, times those that wait, shared among the
//! sequences.

use crate::error::ApiError;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// The share of the newest answer in the average.
const NEWEST: f64 = 0.1;

/// The places of one model.
#[derive(Debug)]
pub(crate) struct Admission {
    /// Answers that are being made or wait.
    live: AtomicUsize,
    sequences: usize,
    waiting: usize,
    /// Average seconds of an answer, as bits.
    average: AtomicU64,
}

/// Places that are taken until this is dropped.
#[derive(Debug)]
pub(crate) struct Permit {
    admission: Arc<Admission>,
    answers: usize,
    since: Instant,
}

impl Admission {
    pub(crate) fn new(sequences: usize, waiting: usize) -> Arc<Self> {
        let average = AtomicU64::new(1f64.to_bits());
        Arc::new(Self { live: AtomicUsize::new(0), sequences, waiting, average })
    }

    /// Answers that are being made or wait.
    pub(crate) fn live(&self) -> usize {
        self.live.load(Ordering::Relaxed)
    }

    /// The most answers that one request may ask for.
    pub(crate) fn most(&self) -> usize {
        self.sequences + self.waiting
    }

    /// Takes places for so many answers.
    pub(crate) fn admit(self: &Arc<Self>, answers: usize) -> Result<Permit, ApiError> {
        let take = |live: usize| (live + answers <= self.most()).then_some(live + answers);
        match self.live.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take) {
            Ok(_) => Ok(Permit { admission: self.clone(), answers, since: Instant::now() }),
            Err(live) => Err(ApiError::QueueFull {
                waiting: live.saturating_sub(self.sequences),
                limit: self.waiting,
                retry_after: self.expected(live),
            }),
        }
    }

    fn expected(&self, live: usize) -> Duration {
        let average = f64::from_bits(self.average.load(Ordering::Relaxed));
        let turns = (live.saturating_sub(self.sequences) + 1) as f64 / self.sequences as f64;
        Duration::from_secs_f64((average * turns).clamp(1.0, 3600.0).ceil())
    }

    fn ended(&self, answers: usize, took: Duration) {
        let blend = |bits: u64| {
            let average = f64::from_bits(bits);
            Some((average + NEWEST * (took.as_secs_f64() - average)).to_bits())
        };
        // The closure always gives a value, so the update can't fail.
        let _ = self.average.fetch_update(Ordering::Relaxed, Ordering::Relaxed, blend);
        self.live.fetch_sub(answers, Ordering::Relaxed);
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.admission.ended(self.answers, self.since.elapsed());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_taken_refused_and_given_back() {
        let admission = Admission::new(2, 1);
        let first = admission.admit(2).unwrap();
        let second = admission.admit(1).unwrap();
        let refused = admission.admit(1).unwrap_err();
        assert!(
            refused.to_string().starts_with("1 requests are waiting already, at most 1 may"),
            "{refused}"
        );
        drop(first);
        assert_eq!(admission.live(), 1);
        assert!(admission.admit(3).is_err());
        drop((admission.admit(2).unwrap(), second));
        assert_eq!(admission.live(), 0);
    }
}
