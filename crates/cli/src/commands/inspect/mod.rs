//! `gannet inspect`: what a model is, what it needs and what it does, without reading its weights.

mod drafter;
mod facts;
mod listing;
mod memory;
mod program;
mod rope;

use crate::arguments::{ContextArguments, values};
use crate::failure::Failure;
use crate::model_reference::ModelReference;
use crate::output;
use crate::quantity;
use clap::Args;
use drafter::{DrafterFacts, DrafterInspection};
use facts::Facts;
use gannet_formats::Checkpoint;
use gannet_loader::{LoadOptions, Opened};
use gannet_model::{Model, ProgramOptions};
use gannet_ops::Rollback;
use memory::MemoryFacts;
use program::ProgramFacts;
use serde::Serialize;
use std::path::Path;

const HELP: &str = "\
Examples:
  gannet inspect model.gguf
  gannet inspect folder --context 8192 --json
  gannet inspect model.gguf --program";

/// Say what a model is, what it needs and what it does
#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub(crate) struct InspectArguments {
    /// A .gguf file, a folder with config.json and safetensors, or a name on the hub: ORG/REPO[:QUANT][@REVISION]
    #[arg(value_name = "MODEL")]
    reference: ModelReference,
    /// List the tensors with format, shape and size
    #[arg(long)]
    tensors: bool,
    /// List what its memory is planned for, by class
    #[arg(long)]
    memory: bool,
    /// Load the model as well, let it answer, and say what lies in memory then, beside what was planned
    #[arg(long, requires = "memory")]
    load: bool,
    /// Sequences that run at once
    #[arg(long, value_name = "N", default_value = "1", value_parser = values::streams)]
    max_sequences: usize,
    /// Print the program with shapes, operations, bytes and what bounds each op
    #[arg(long)]
    program: bool,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    context: ContextArguments,
}

/// Everything that was asked for.
#[derive(Serialize)]
struct Inspection {
    #[serde(flatten)]
    facts: Facts,
    memory: MemoryFacts,
    /// The head beside the model that drafts; null where there is none.
    drafter: Option<DrafterFacts>,
    warnings: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tensors: Option<Vec<listing::TensorFacts>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    program: Option<ProgramFacts>,
    /// Whether people are shown the memory by class.
    #[serde(skip)]
    lists_memory: bool,
}

/// Runs the command.
pub(crate) fn run(arguments: &InspectArguments) -> Result<(), Failure> {
    let path = arguments.reference.locate()?;
    if let Some(drafter) = drafter(&path)? {
        return if arguments.json { output::show_json(&drafter) } else { output::show(&drafter.text()) };
    }
    let inspection = inspect(&path, arguments)?;
    if arguments.json { output::show_json(&inspection) } else { output::show(&inspection.text()) }
}

/// The drafter that a checkpoint is instead of a model.
fn drafter(path: &Path) -> Result<Option<DrafterInspection>, Failure> {
    let checkpoint = Checkpoint::open(path)?;
    let drafter = gannet_model::recognise_drafter(&checkpoint)?;
    Ok(drafter.map(|drafter| DrafterInspection::new(&checkpoint, &drafter)))
}

fn inspect(path: &Path, arguments: &InspectArguments) -> Result<Inspection, Failure> {
    let Opened { checkpoint, mut model, text } = gannet_loader::open(path)?;
    if let Some(scaling) = &arguments.context.rope_scaling {
        model.scale_rope(scaling)?;
    }
    let options =
        LoadOptions { sequences: Some(arguments.max_sequences), ..arguments.context.load_options() };
    let mut memory = MemoryFacts::plan(&model, &checkpoint, &options)?;
    if arguments.load {
        memory = memory.measured(path, &options)?;
    }
    let (context, kv_format) = (memory.context, memory.kv_format);
    let options = ProgramOptions { context, kv_format, rollback: Rollback::Replay };
    let program = match arguments.program {
        true => Some(ProgramFacts::new(&model, &checkpoint, &options)?),
        false => None,
    };
    let mut warnings = warnings(&model, &checkpoint);
    warnings.extend(memory.warning());
    Ok(Inspection {
        facts: Facts::new(&checkpoint, &model, &text, memory.context),
        drafter: model.drafter.as_ref().map(DrafterFacts::new),
        warnings,
        memory,
        tensors: arguments.tensors.then(|| listing::tensors(&checkpoint)),
        program,
        lists_memory: arguments.memory,
    })
}

/// What keeps the model from running, or may be a sign that it is not what it seems.
fn warnings(model: &Model, checkpoint: &Checkpoint) -> Vec<String> {
    let unsupported = checkpoint.unsupported();
    let mut warnings: Vec<String> = unsupported
        .map(|tensor| {
            format!("tensor `{}` has the type {}, which is not supported", tensor.name, tensor.kind)
        })
        .collect();
    match model.weights(checkpoint) {
        Ok(weights) => {
            warnings.extend(weights.passed_over().iter().map(|over| {
                let (tensors, bytes) =
                    (quantity::plural(over.tensors, "tensor"), quantity::bytes(over.bytes as u64));
                format!("{tensors} of {} are not read: {bytes}", over.part)
            }));
            warnings.extend(
                weights.unused().iter().map(|name| format!("tensor `{name}` is not read by the program")),
            );
        }
        Err(error) => warnings.push(format!("this model can't run: {error}")),
    }
    warnings
}

impl Inspection {
    fn text(&self) -> String {
        let mut lines = self.facts.lines();
        lines.extend(self.drafter.iter().map(|drafter| quantity::entry("drafter", &drafter.text())));
        lines.extend(self.memory.lines());
        if self.lists_memory {
            lines.extend(self.memory.class_lines());
        }
        lines.extend(self.warnings.iter().map(|warning| quantity::entry("warning", warning)));
        if let Some(tensors) = &self.tensors {
            lines.push(String::new());
            lines.extend(listing::lines(tensors));
        }
        if let Some(program) = &self.program {
            lines.push(String::new());
            lines.extend(program.lines());
        }
        lines.join("\n") + "\n"
    }
}
