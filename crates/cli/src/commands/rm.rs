//! `gannet rm`: a model out of the cache.

use super::pull::model_name;
use crate::download;
use crate::failure::Failure;
use crate::output;
use crate::quantity::bytes;
use clap::Args;
use gannet_hub::{Hub, ModelName};
use std::io::{IsTerminal, stderr, stdin};

const HELP: &str = "\
A repository goes as a whole, with all its quantisations and revisions.

Examples:
  gannet rm ORG/REPO
  gannet rm ORG/REPO --yes";

/// Delete a model from the cache
#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub(crate) struct RmArguments {
    /// The model's name: ORG/REPO
    #[arg(value_name = "NAME", value_parser = model_name)]
    name: ModelName,
    /// Don't ask
    #[arg(long)]
    yes: bool,
}

/// Runs the command.
pub(crate) fn run(arguments: &RmArguments) -> Result<(), Failure> {
    let hub = download::hub()?;
    if !arguments.yes && !is_confirmed(&hub, &arguments.name)? {
        return output::show_line("nothing was deleted");
    }
    let freed = hub.remove(&arguments.name)?;
    output::show_line(&format!("{} deleted: {} freed", arguments.name, bytes(freed)))
}

/// Asks the person, where there is one and something to delete.
fn is_confirmed(hub: &Hub, name: &ModelName) -> Result<bool, Failure> {
    let cached = hub.cached()?;
    let Some(model) = cached.iter().find(|model| model.name == *name) else {
        // There is nothing to lose: deleting it says why.
        return Ok(true);
    };
    if !(stdin().is_terminal() && stderr().is_terminal()) {
        return Err(Failure::usage("without a terminal nobody can be asked; give --yes to delete the model"));
    }
    eprint!("delete {name} ({}) from `{}`? [y/N] ", bytes(model.bytes), hub.cache().display());
    let mut answer = String::new();
    stdin().read_line(&mut answer)?;
    Ok(["y", "yes"].contains(&answer.trim().to_lowercase().as_str()))
}
