//! The suite and what its checks run, built in one way.
//!
//! Cargo builds a library again where other features of it are asked for, and which are depends on all that is built beside
//! it. So the suite, and each program that a check of the suite needs, is built over the whole workspace and with the
//! optional features; that the program builds without them is seen by clippy.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;

use crate::{process, python};

/// All optional features, of the server and of the program that hands them on.
const FEATURES: &str = "gannet/kv-events,gannet/otlp,gannet-server/kv-events,gannet-server/otlp";
/// The packages of the subscriber that hears events.
const SUBSCRIBER: &str = "crates/server/tests/kv_events/requirements.txt";

/// Runs every test and doctest, those of optional features too. Without target flags, so that doctests run as well.
pub(crate) fn run(root: &Path) -> Result<()> {
    let subscriber = python::environment(root, "kv-events-python", SUBSCRIBER)?;
    process::run(cargo(root, "test").env("GANNET_KV_PYTHON", subscriber))
}

/// Builds the program as its own tests run it; where it lies.
pub(crate) fn program(root: &Path) -> Result<PathBuf> {
    process::run(cargo(root, "test").args(["--no-run", "--test", "cli"]))?;
    Ok(built(&root.join("target/debug"), "gannet"))
}

/// Builds an example of this name; where it lies.
pub(crate) fn example(root: &Path, name: &str) -> Result<PathBuf> {
    process::run(cargo(root, "build").args(["--example", name]))?;
    Ok(built(&root.join("target/debug/examples"), name))
}

fn built(folder: &Path, name: &str) -> PathBuf {
    folder.join(format!("{name}{}", std::env::consts::EXE_SUFFIX))
}

fn cargo(root: &Path, verb: &str) -> Command {
    let mut command = process::cargo();
    command.args([verb, "--locked", "--workspace", "--features", FEATURES]).current_dir(root);
    command
}
