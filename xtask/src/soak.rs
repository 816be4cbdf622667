//! What takes too long for every change: the whole exactness matrix and the long random runs of the engine.
//!
//! The tests are those of the suite, which run a slice of themselves unless `GANNET_LONG_RUN` asks for all.

use std::path::Path;

use anyhow::Result;

use crate::{models, process};

/// The packages whose tests have a long form.
const PACKAGES: [&str; 2] = ["gannet-engine", "gannet-loader"];

/// Runs the long forms, optimised and with the invariants checked after every step.
pub(crate) fn run(root: &Path) -> Result<()> {
    let commit = process::output(process::git().args(["rev-parse", "--short", "HEAD"]).current_dir(root))?;
    eprintln!("soak on commit {}", commit.trim());
    models::fetch_all(root)?;
    let mut command = process::cargo();
    command.args(["test", "--locked", "--release", "--config", "profile.release.debug-assertions=true"]);
    for package in PACKAGES {
        command.args(["--package", package]);
    }
    process::run(command.env("GANNET_LONG_RUN", "1").current_dir(root))?;
    eprintln!("soak passed on commit {}", commit.trim());
    Ok(())
}
