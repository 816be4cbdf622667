//! JSON schemas: their limits, the keywords that can't be held, and where in one a fault lies.
//!
//! A keyword that the compiler doesn't have is refused with its path, never ignored. Left out is only what constrains
//! nothing: annotations, formats that JSON Schema doesn't define, and keywords with a value that always holds.
//!
//! Knows no token.

mod check;
mod formats;
mod locate;
mod walk;

pub(crate) use check::checked;
pub(crate) use locate::locate;
