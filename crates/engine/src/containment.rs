//! Code of others, called where a panic of it must not reach further: a constraint's, a sink's.
//!
//! What was called may be left half done, so whoever catches a panic ends the request that it belongs to.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// A panic, with what it said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Panicked {
    said: String,
}

impl fmt::Display for Panicked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "it panicked: {}", self.said)
    }
}

/// Does some work; a panic of it is an error.
pub(crate) fn contained<T>(work: impl FnOnce() -> T) -> Result<T, Panicked> {
    catch_unwind(AssertUnwindSafe(work)).map_err(|panic| {
        let said = panic.downcast_ref::<String>().map(String::as_str);
        let said = said.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("it says nothing");
        Panicked { said: said.to_owned() }
    })
}
