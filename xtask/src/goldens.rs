//! Makes the golden files again: a Python environment with pinned packages under `target/`, then the scripts in
//! `goldens/`.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;

use crate::{models, process, python};

/// The scripts in the order they run; the last one reads the real models.
const SCRIPTS: [&str; 11] = [
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
    "likelihoods.py",
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
    python::environment(root, "goldens-python", "goldens/requirements.txt")
}
