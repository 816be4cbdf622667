//! The README's first command: a model, a release build, an answer.

use std::path::{Path, PathBuf};

use anyhow::{Result, bail};

use crate::{models, process};

const DEFAULT_PROMPT: &str = "Explain in two sentences why the sky is blue.";

/// What `cargo xtask demo` takes.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// What to say to the model
    #[arg(default_value = DEFAULT_PROMPT)]
    prompt: String,
    /// A .gguf file or a checkpoint folder, instead of the fetched SmolLM2-135M-Instruct
    #[arg(long, value_name = "PATH")]
    model: Option<PathBuf>,
}

/// Fetches the model if need be, builds in release, and streams the answer on standard output.
pub(crate) fn run(root: &Path, arguments: &Arguments) -> Result<()> {
    let model = match &arguments.model {
        Some(path) if path.exists() => path.clone(),
        Some(path) => bail!("no such model: `{}`", path.display()),
        None => models::fetch(root, &models::SMOLLM2)?,
    };
    let manifest = root.join("Cargo.toml");
    let mut command = process::cargo();
    command.args(["run", "--release", "--quiet", "--package", "gannet", "--bin", "gannet"]);
    command.arg("--manifest-path").arg(manifest).arg("--").arg("run").arg(model).arg(&arguments.prompt);
    eprintln!("building gannet in release (the first time takes a few minutes)");
    process::run(&mut command)
}
