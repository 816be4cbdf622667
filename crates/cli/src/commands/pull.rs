//! `gannet pull`: a model from the hub into the cache.

use crate::download;
use crate::failure::Failure;
use crate::output;
use clap::Args;
use gannet_hub::ModelName;

const HELP: &str = "\
QUANT is a quantisation such as Q4_K_M, a file's name, or `safetensors`; without it a small one with little loss is
chosen. REVISION is a branch, a tag or a commit. Ctrl-C stops, and the same command goes on from there. The path of the
model goes to standard output, everything else to standard error.

The cache and its variables are those of Hugging Face's tools: HF_HOME, HF_HUB_CACHE, HF_ENDPOINT, HF_TOKEN,
HF_HUB_OFFLINE.

Examples:
  gannet pull ORG/REPO
  gannet pull ORG/REPO:Q8_0
  gannet pull ORG/REPO:safetensors@main";

/// Fetch a model from the hub into the cache
#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub(crate) struct PullArguments {
    /// The model's name: ORG/REPO[:QUANT][@REVISION]
    #[arg(value_name = "NAME", value_parser = model_name)]
    name: ModelName,
}

/// Runs the command.
pub(crate) fn run(arguments: &PullArguments) -> Result<(), Failure> {
    let hub = download::hub()?;
    let located = match hub.is_offline() {
        true => hub.locate(&arguments.name)?,
        false => download::fetch(&hub, &arguments.name)?,
    };
    output::show_line(&located.path.display().to_string())
}

/// A name on the hub, as an argument.
pub(super) fn model_name(text: &str) -> Result<ModelName, String> {
    ModelName::parse(text).map_err(|error| error.to_string())
}
