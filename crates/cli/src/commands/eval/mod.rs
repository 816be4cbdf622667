//! `gannet eval`: numbers that show whether a model is computed rightly.

mod compare;
mod logits;
mod perplexity;

use crate::failure::Failure;
use clap::{Args, Subcommand};

/// Rows of a step that evaluates: enough to read each weight rarely, and few enough that the scores of all of them, a
/// vocabulary wide, stay small. The results don't depend on it.
const STEP_ROWS: usize = 64;

/// Evaluate a model: its scores, its perplexity, one backend against another
#[derive(Debug, Args)]
#[command(after_help = "Example: gannet eval perplexity model.gguf --file book.txt")]
pub(crate) struct EvalArguments {
    #[command(subcommand)]
    pub(crate) command: EvalCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum EvalCommand {
    Logits(logits::LogitsArguments),
    Perplexity(perplexity::PerplexityArguments),
    Compare(compare::CompareArguments),
}

/// Runs the command.
pub(crate) fn run(command: &EvalCommand) -> Result<(), Failure> {
    match command {
        EvalCommand::Logits(arguments) => logits::run(arguments),
        EvalCommand::Perplexity(arguments) => perplexity::run(arguments),
        EvalCommand::Compare(arguments) => compare::run(arguments),
    }
}

/// Refuses ids that the model doesn't have, before anything is computed.
fn check_ids(ids: &[gannet_ops::TokenId], vocabulary: usize) -> Result<(), Failure> {
    match ids.iter().find(|id| id.0 as usize >= vocabulary) {
        Some(id) => {
            Err(anyhow::anyhow!("token id {} is outside of the model's vocabulary of {vocabulary}", id.0)
                .into())
        }
        None => Ok(()),
    }
}
