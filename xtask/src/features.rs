//! What a default build leaves out: the server's optional features, built and tested.

use std::path::Path;

use anyhow::Result;

use crate::{process, python};

/// All optional features of the program and of the server, whose they are.
const FEATURES: &str = "gannet/kv-events,gannet/otlp,gannet-server/kv-events,gannet-server/otlp";
/// The packages of the subscriber that hears events.
const REQUIREMENTS: &str = "crates/server/tests/kv_events/requirements.txt";

/// Tests the server with its features, events with a subscriber in Python, and builds the program with them.
///
/// All packages are chosen each time, as for the suite: for a few, cargo would build most libraries again with fewer features.
pub(crate) fn run(root: &Path) -> Result<()> {
    let python = python::environment(root, "kv-events-python", REQUIREMENTS)?;
    let parts: [&[&str]; 3] = [
        &["--no-run", "--test", "cli"],
        &["--test", "kv_events", "--test", "traces"],
        &["--lib", "--", "kv_events::"],
    ];
    for part in parts {
        let mut test = process::cargo();
        test.args(["test", "--locked", "--workspace", "--features", FEATURES]).args(part);
        process::run(test.env("GANNET_KV_PYTHON", &python).current_dir(root))?;
    }
    Ok(())
}
