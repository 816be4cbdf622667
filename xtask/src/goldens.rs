//! Makes the golden files again: a Python environment with pinned packages under `target/`, then the scripts in
//! `goldens/`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::{models, process};

/// The scripts in the order they run; the last one reads the real models.
const SCRIPTS: [&str; 10] = [
    "formats.py",
    "packed.py",
    "text.py",
    "tokenizer_kinds.py",
    "templates.py",
    "make.py",
    "ropes.py",
    "drafters.py",
    "generated.py",
    "real.py",
];

/// Everything under `goldens/` that a script makes.
pub(crate) fn run(root: &Path) -> Result<()> {
    models::fetch_all(root)?;
    let python = environment(root)?;
    for script in SCRIPTS {
        eprintln!("running goldens/{script}");
        process::run(
            Command::new(&python).arg(root.join("goldens").join(script)).env("PYTHONDONTWRITEBYTECODE", "1"),
        )?;
    }
    Ok(())
}

/// The Python of an environment that has exactly the pinned packages.
pub(crate) fn environment(root: &Path) -> Result<PathBuf> {
    let requirements = root.join("goldens/requirements.txt");
    let wanted = fs::read_to_string(&requirements)
        .with_context(|| format!("cannot read `{}`", requirements.display()))?;
    let folder = root.join("target/goldens-python");
    let python = folder.join(if cfg!(windows) { "Scripts/python.exe" } else { "bin/python" });
    let installed = folder.join("installed.txt");
    if fs::read_to_string(&installed).is_ok_and(|text| text == wanted) {
        return Ok(python);
    }
    eprintln!("making a Python environment in {}", folder.display());
    process::run(models::python()?.args(["-m", "venv", "--clear"]).arg(&folder))
        .context("Python's `venv` module is needed (on Debian: the package `python3-venv`)")?;
    process::run(Command::new(&python).args(["-m", "pip", "install", "--requirement"]).arg(&requirements))?;
    fs::write(&installed, wanted)?;
    Ok(python)
}
