//! The model crate from the outside: files in, configs, weights, programs and logits out.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests too")]

mod configs;
mod drafter_ggufs;
mod drafters;
mod generated;
mod goldens;
mod programs;
mod refusals;
mod ropes;
mod toy;
mod weights;
