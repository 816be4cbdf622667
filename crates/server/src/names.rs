//! Names of what the server makes: ids of answers, the moment they are made.

use std::hash::{BuildHasher, RandomState};
use std::time::{SystemTime, UNIX_EPOCH};

/// A name that no other answer has: the prefix and 32 random hexadecimal digits.
pub(crate) fn fresh(prefix: &str) -> String {
    format!("{prefix}{:016x}{:016x}", random(), random())
}

/// 64 bits that nobody can foresee.
pub(crate) fn random() -> u64 {
    // Each `RandomState` hashes with other keys, which come from the system's randomness.
    RandomState::new()
        .hash_one(SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_nanos()))
}

/// Seconds since 1970.
pub(crate) fn now_seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs())
}

/// What answers say about who made them.
pub(crate) const FINGERPRINT: &str = concat!("gannet-", env!("CARGO_PKG_VERSION"));
