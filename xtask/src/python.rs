//! Python environments with pinned packages, under `target/`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::{models, process};

/// The Python of an environment of this name that has exactly the packages of a file of requirements.
pub(crate) fn environment(root: &Path, name: &str, requirements: &str) -> Result<PathBuf> {
    let requirements = root.join(requirements);
    let wanted = fs::read_to_string(&requirements)
        .with_context(|| format!("cannot read `{}`", requirements.display()))?;
    let folder = root.join("target").join(name);
    let python = folder.join(if cfg!(windows) { "Scripts/python.exe" } else { "bin/python" });
    let installed = folder.join("installed.txt");
    if fs::read_to_string(&installed).is_ok_and(|text| text == wanted) {
        return Ok(python);
    }
    eprintln!("making a Python environment in {}", folder.display());
    process::run(models::python()?.args(["-m", "venv", "--clear"]).arg(&folder))
        .context("Python's `venv` module is needed (on Debian: the package `python3-venv`)")?;
    process::run(
        Command::new(&python).args(["-m", "pip", "install", "--quiet", "--requirement"]).arg(&requirements),
    )?;
    fs::write(&installed, wanted)?;
    Ok(python)
}
