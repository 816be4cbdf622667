//! `cargo xtask checkpoint`: builds and runs the package that writes random checkpoints.
//!
//! It is a package of its own because it needs crates of the engine, which would make every first `cargo xtask` slower.

use std::ffi::OsString;
use std::path::Path;

use anyhow::Result;

use crate::process;

/// What `cargo xtask checkpoint` takes: what the package takes.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// `--help` shows shapes and formats
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "SHAPE --format FORMAT OUT")]
    arguments: Vec<OsString>,
}

/// Passes the arguments on.
pub(crate) fn run(root: &Path, arguments: &Arguments) -> Result<()> {
    let mut command = process::cargo();
    command.args(["run", "--quiet", "--package", "xtask-checkpoint", "--manifest-path"]);
    command.arg(root.join("Cargo.toml")).arg("--").args(&arguments.arguments);
    process::run(&mut command)
}
