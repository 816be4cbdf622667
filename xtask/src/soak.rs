//! What takes too long for every change: the whole exactness matrix, the long random runs of the engine, draws by the
//! hundred thousand, the CPU backend on emulated Arm processors, checkpoints of true shapes against transformers, and the
//! server against programs of others.
//!
//! The tests are those of the suite, which run a slice of themselves unless `GANNET_LONG_RUN` asks for all.

use std::path::Path;

use anyhow::{Result, bail};

use crate::{arm, clients, models, process, shapes};

/// The packages whose tests have a long form.
const PACKAGES: [&str; 3] = ["gannet-engine", "gannet-loader", "gannet-ops"];

/// What to run.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Only the comparison of this shape with transformers (`cargo xtask checkpoint --help` lists shapes)
    #[arg(long, value_name = "SHAPE")]
    shape: Vec<String>,
    /// Only the long forms of the checks of the server (`cargo xtask clients --help` lists them)
    #[arg(long, conflicts_with = "shape")]
    clients: bool,
}

/// Runs the long forms, optimised and with the invariants checked after every step, and then the true shapes.
pub(crate) fn run(root: &Path, arguments: &Arguments) -> Result<()> {
    let commit = process::output(process::git().args(["rev-parse", "--short", "HEAD"]).current_dir(root))?;
    eprintln!("soak on commit {}", commit.trim());
    if arguments.shape.is_empty() && !arguments.clients {
        long_tests(root)?;
        if let Err(why) = arm::run(root, arm::Extent::Long)? {
            bail!("the tests for Arm can't run: {why}");
        }
    }
    if !arguments.clients {
        shapes::run(root, &arguments.shape)?;
    }
    if arguments.shape.is_empty() {
        clients::run_long(root)?;
    }
    eprintln!("soak passed on commit {}", commit.trim());
    Ok(())
}

fn long_tests(root: &Path) -> Result<()> {
    models::fetch_all(root)?;
    let mut command = process::cargo();
    command.args(["test", "--locked", "--release", "--config", "profile.release.debug-assertions=true"]);
    for package in PACKAGES {
        command.args(["--package", package]);
    }
    process::run(command.env("GANNET_LONG_RUN", "1").current_dir(root))
}
