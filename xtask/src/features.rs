//! What a default build leaves out: the server's optional features, built and tested.

use std::path::Path;

use anyhow::Result;

use crate::{process, python};

/// All optional features of the server.
const FEATURES: &str = "kv-events,otlp";
/// The packages of the subscriber that hears events.
const REQUIREMENTS: &str = "crates/server/tests/kv_events/requirements.txt";

/// Tests the server with its features, events with a subscriber in Python, and checks that the program builds with them.
pub(crate) fn run(root: &Path) -> Result<()> {
    let python = python::environment(root, "kv-events-python", REQUIREMENTS)?;
    let tests = ["--lib", "--test", "kv_events", "--test", "traces"];
    let mut test = process::cargo();
    test.args(["test", "--locked", "--package", "gannet-server", "--features", FEATURES]).args(tests);
    process::run(test.env("GANNET_KV_PYTHON", python).current_dir(root))?;
    let check = ["check", "--locked", "--package", "gannet", "--features", FEATURES];
    process::run(process::cargo().args(check).current_dir(root))
}
