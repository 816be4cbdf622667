//! Whether the tensors are those that the config asks for.

use super::Check;
use crate::quantity::plural;
use gannet_loader::Opened;
use gannet_model::ProgramOptions;
use gannet_ops::{KvFormat, Rollback};

/// Names that a line lists.
const LISTED: usize = 5;

/// The config's program, its weights, and what nothing reads.
pub(super) fn checks(opened: &Opened) -> Vec<Check> {
    let Opened { checkpoint, model, .. } = opened;
    let config = &model.config;
    let (context, kv_format) = (config.context_length, KvFormat::F16);
    let options = ProgramOptions { context, kv_format, rollback: Rollback::Replay };
    let program = match model.program(&options) {
        Ok(program) => program,
        Err(error) => return vec![Check::fault("config", error.to_string())],
    };
    let layers = plural(config.layers.len(), "layer");
    let described = format!("{}, {layers} of width {}", model.family, config.width);
    let mut checks = vec![Check::ok("config", described)];
    match model.weights(checkpoint) {
        Ok(weights) => {
            let count = plural(program.weights.len(), "weight");
            checks.push(Check::ok("shapes", format!("{count}, each with the shape that the config implies")));
            checks.push(unused(&weights.unused()));
        }
        Err(error) => checks.push(Check::fault("shapes", error.to_string())),
    }
    checks
}

fn unused(names: &[&str]) -> Check {
    let shown = || names.iter().take(LISTED).map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
    match names.len() {
        0 => Check::ok("unused tensors", "none"),
        count if count <= LISTED => Check::note("unused tensors", format!("nothing reads {}", shown())),
        count => {
            Check::note("unused tensors", format!("nothing reads {} and {} more", shown(), count - LISTED))
        }
    }
}
