//! The built binary on committed checkpoints and on toy files: what it prints, and how it fails.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests too")]

#[path = "../support/mod.rs"]
mod support;

#[allow(dead_code, reason = "the hub's own tests use the rest")]
#[path = "../../../hub/tests/hub/server.rs"]
mod hub_server;

mod bad_input;
mod bench;
mod doctor;
mod embed;
mod eval;
mod help;
mod hub;
mod inspect;
mod run;
mod serve;

use gannet_testing::toy;
