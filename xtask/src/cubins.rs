//! `cargo xtask cubins`: every kernel of the CUDA backend compiled for every architecture that is tested, without a card,
//! by NVRTC as a Python package.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::{process, python, suite};

/// The environment's name under `target/`, and what it has.
const ENVIRONMENT: &str = "nvrtc-python";
const REQUIREMENTS: &str = "crates/backend-cuda/requirements.txt";

/// Compiles all kernels into `target/cubins`; `None` where the compiler can't be had, with the reason on standard error.
pub(crate) fn run(root: &Path) -> Result<Option<PathBuf>> {
    let folder = root.join("target/cubins");
    Ok(compile(root, &folder, &[])?.then_some(folder))
}

/// Compiles all kernels for these compute capabilities, or all that are tested, into a folder; whether it could.
pub(crate) fn compile(root: &Path, folder: &Path, capabilities: &[&str]) -> Result<bool> {
    let environment = match python::environment(root, ENVIRONMENT, REQUIREMENTS) {
        Ok(python) => python,
        Err(error) => {
            eprintln!("NVRTC can't be had: {error:#}");
            return Ok(false);
        }
    };
    let prefix = environment.parent().and_then(Path::parent).context("a Python lies two folders deep")?;
    let mut command = Command::new(suite::example(root, "cubins")?);
    command.arg(folder).args(capabilities).current_dir(root).env("VIRTUAL_ENV", prefix);
    process::run(&mut command)?;
    Ok(true)
}
