//! What each API key does at the moment, within its limits. Without keys, everybody is one.

use crate::config::KeyIndex;
use crate::error::ApiError;
use crate::limits::Limits;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The use of all keys.
pub(crate) struct KeyUse {
    uses: Vec<Arc<Mutex<Use>>>,
    concurrent: usize,
    per_minute: Option<u32>,
}

struct Use {
    running: usize,
    /// Requests that may be sent at once, refilled evenly up to a minute's.
    tokens: f64,
    filled: Instant,
}

/// A request of a key, until this is dropped.
pub(crate) struct Turn(Arc<Mutex<Use>>);

impl KeyUse {
    pub(crate) fn new(keys: usize, limits: &Limits) -> Self {
        let (concurrent, per_minute) = (limits.concurrent_per_key, limits.requests_per_minute);
        let tokens = f64::from(per_minute.unwrap_or(0));
        let uses =
            (0..keys).map(|_| Arc::new(Mutex::new(Use { running: 0, tokens, filled: Instant::now() })));
        Self { uses: uses.collect(), concurrent, per_minute }
    }

    /// Takes a turn of this key.
    pub(crate) fn take(&self, key: KeyIndex) -> Result<Turn, ApiError> {
        let entry = &self.uses[key];
        let mut used = entry.lock().unwrap_or_else(PoisonError::into_inner);
        if used.running >= self.concurrent {
            return Err(ApiError::TooManyConcurrent { limit: self.concurrent });
        }
        if let Some(limit) = self.per_minute {
            used.spend(limit, Instant::now())?;
        }
        used.running += 1;
        Ok(Turn(entry.clone()))
    }
}

impl Use {
    fn spend(&mut self, limit: u32, now: Instant) -> Result<(), ApiError> {
        let rate = f64::from(limit) / 60.0;
        let passed = now.saturating_duration_since(self.filled).as_secs_f64();
        self.tokens = (self.tokens + passed * rate).min(f64::from(limit));
        self.filled = now;
        if self.tokens < 1.0 {
            let retry_after = Duration::from_secs_f64(((1.0 - self.tokens) / rate).ceil());
            return Err(ApiError::TooFrequent { limit, retry_after });
        }
        self.tokens -= 1.0;
        Ok(())
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).running -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_has_so_many_requests_at_once() {
        let uses = KeyUse::new(2, &Limits { concurrent_per_key: 1, ..Limits::default() });
        let turn = uses.take(0).unwrap_or_else(|error| panic!("{error}"));
        assert!(uses.take(0).is_err());
        assert!(uses.take(1).is_ok());
        drop(turn);
        assert!(uses.take(0).is_ok());
    }

    #[test]
    fn a_minutes_requests_come_back_evenly() {
        let start = Instant::now();
        let mut used = Use { running: 0, tokens: 2.0, filled: start };
        let mut spend = |seconds| used.spend(2, start + Duration::from_secs(seconds)).is_ok();
        assert_eq!([spend(0), spend(0), spend(0)], [true, true, false]);
        assert_eq!([spend(29), spend(30), spend(31)], [false, true, false]);
        assert_eq!([spend(1000), spend(1000), spend(1000)], [true, true, false]);
    }
}
