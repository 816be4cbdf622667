//! From a request's words to an answer's, whatever the protocol: parameters, prompt, engine, text.
//!
//! Knows no protocol and no HTTP.

pub(crate) mod held;
pub(crate) mod params;
pub(crate) mod prompt;
mod toolless;

pub(crate) mod answering;
mod choice;
pub(crate) mod collect;
pub(crate) mod embedding;
mod inbox;
pub(crate) mod parts;
