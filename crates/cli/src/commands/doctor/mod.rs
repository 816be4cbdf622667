//! `gannet doctor`: what the machine offers, or whether a model's files are sound.
//!
//! Nothing is run and nothing is fetched for the first; for the second every byte of the model is read and no token is
//! computed.

mod cuda;
mod folders;
mod gpu;
mod libraries;
mod machine;
mod memory;
mod model;
mod processor;
mod system;

use crate::failure::Failure;
use crate::model_reference::ModelReference;
use crate::output;
use clap::Args;
use machine::MachineFacts;

const HELP: &str = "\
Without MODEL the machine is described: instructions, threads and why that many, memory and its limits, GPUs and their
libraries or where they were looked for, cache folders. With MODEL its files are checked without running it: structure,
shapes, tokenizer, chat template, values that aren't finite. `fault` means that it can't run or answers wrongly, and the
exit code is then 1; `note` is worth a look.

Examples:
  gannet doctor
  gannet doctor model.gguf
  gannet doctor ORG/REPO:Q4_K_M --json";

/// Describe the machine, or check a model's files
#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub(crate) struct DoctorArguments {
    /// A .gguf file, a folder with config.json and safetensors, or a name on the hub: ORG/REPO[:QUANT][@REVISION]
    #[arg(value_name = "MODEL")]
    reference: Option<ModelReference>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Runs the command.
pub(crate) fn run(arguments: &DoctorArguments) -> Result<(), Failure> {
    match &arguments.reference {
        Some(reference) => model::run(&reference.locate()?, arguments.json),
        None => {
            let facts = MachineFacts::find()?;
            if arguments.json {
                output::show_json(&facts)
            } else {
                output::show(&(facts.lines().join("\n") + "\n"))
            }
        }
    }
}
