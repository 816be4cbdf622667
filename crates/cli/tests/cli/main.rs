//! The built binary on committed checkpoints and on toy files: what it prints, and how it fails.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests too")]

#[path = "../support/mod.rs"]
mod support;

mod bad_input;
mod eval;
mod help;
mod inspect;
mod run;
mod toy;
