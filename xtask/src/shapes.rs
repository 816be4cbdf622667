//! True shapes: random float32 checkpoints of the sizes of real models, held against transformers.
//!
//! A checkpoint is written, compared by `goldens/shapes.py` and removed before the next one, since each takes gigabytes.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::{goldens, process};

/// A dense model with normed heads, one with biases and an untied head, and a hybrid.
const SHAPES: [&str; 3] = ["qwen3-0.6b", "deepseek-r1-distill-qwen-1.5b", "qwen3.5-0.8b"];

/// Compares each shape, or those that are asked for.
pub(crate) fn run(root: &Path, asked: &[String]) -> Result<()> {
    let python = goldens::environment(root)?;
    let binary = built(root)?;
    let shapes = if asked.is_empty() { SHAPES.map(str::to_owned).to_vec() } else { asked.to_vec() };
    for shape in shapes {
        eprintln!("the shape of {shape} against transformers");
        let folder = root.join("target/soak").join(&shape);
        let compared = write(root, &shape, &folder).and_then(|()| compare(root, &python, &binary, &folder));
        let removed = fs::remove_dir_all(&folder);
        compared?;
        removed.with_context(|| format!("cannot remove `{}`", folder.display()))?;
    }
    Ok(())
}

/// The binary, optimised.
fn built(root: &Path) -> Result<PathBuf> {
    let mut command = process::cargo();
    process::run(command.args(["build", "--locked", "--release", "--package", "gannet"]).current_dir(root))?;
    Ok(root.join("target/release").join(format!("gannet{}", std::env::consts::EXE_SUFFIX)))
}

fn write(root: &Path, shape: &str, folder: &Path) -> Result<()> {
    fs::create_dir_all(root.join("target/soak")).context("cannot create `target/soak`")?;
    let mut command = process::cargo();
    command.args(["run", "--locked", "--release", "--quiet", "--package", "xtask-checkpoint", "--", shape]);
    process::run(command.args(["--format", "f32", "--safetensors"]).arg(folder).current_dir(root))
}

fn compare(root: &Path, python: &Path, binary: &Path, folder: &Path) -> Result<()> {
    let mut command = Command::new(python);
    command.arg(root.join("goldens/shapes.py")).arg(binary).arg(folder);
    process::run(command.env("PYTHONDONTWRITEBYTECODE", "1"))
}
