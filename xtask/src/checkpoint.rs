//! `cargo xtask checkpoint`: builds and runs the package that writes random checkpoints.
//!
//! It is a package of its own because it needs crates of the engine, which would make every first `cargo xtask` slower.

use std::ffi::OsString;
use std::path::Path;

use anyhow::{Context, Result};

use crate::process;

/// What `cargo xtask checkpoint` takes: what the package takes.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// SHAPE --format FORMAT OUT; `--help` shows them
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGUMENTS")]
    arguments: Vec<OsString>,
}

/// Passes the arguments on; where the package fails it has said why, so that there is nothing to add.
pub(crate) fn run(root: &Path, arguments: &Arguments) -> Result<()> {
    let mut command = process::cargo();
    command.args(["run", "--quiet", "--package", "xtask-checkpoint", "--manifest-path"]);
    command.arg(root.join("Cargo.toml")).arg("--").args(&arguments.arguments);
    let status = command.status().context("cargo did not start")?;
    if status.success() { Ok(()) } else { std::process::exit(status.code().unwrap_or(1)) }
}
