//! What can be wrong with a model, with the facts.

use gannet_formats::FormatError;
use gannet_ops::{ProgramError, WeightError};

/// Why a checkpoint is no model that can run.
#[derive(Debug, thiserror::Error)]
pub enum ModelError {
    /// No family knows the architecture.
    #[error("{file}: `{key}` is `{found}`, which is not supported; supported are {supported}")]
    UnknownArchitecture {
        /// The file.
        file: String,
        /// The key that names the architecture.
        key: &'static str,
        /// The architecture.
        found: String,
        /// All that are known.
        supported: String,
    },
    /// The architecture is known, and known to compute something that nothing here does.
    #[error("{file}: `{key}` is `{found}`, which can't run: {reason}")]
    Lookalike {
        /// The file.
        file: String,
        /// The key that names the architecture.
        key: &'static str,
        /// The architecture.
        found: String,
        /// What it has.
        reason: &'static str,
    },
    /// The checkpoint guesses another model's tokens and is no model by itself.
    #[error("{file}: `{key}` is `{found}`, a drafter, which runs beside its target and not alone")]
    IsDrafter {
        /// The file.
        file: String,
        /// The key that names the architecture.
        key: &'static str,
        /// The architecture.
        found: String,
    },
    /// A rope scaling that was asked for can't be put on this model.
    #[error("the rope scaling `{asked}` was asked for: {reason}")]
    WrongScaling {
        /// What was asked for.
        asked: String,
        /// Why it can't be.
        reason: String,
    },
    /// A key that has to be there isn't.
    #[error("{file}: key `{key}` is missing, expected {expected}")]
    MissingKey {
        /// The file.
        file: String,
        /// The key, in this kind of file.
        key: String,
        /// What its value would be.
        expected: String,
    },
    /// A key has a value that can't be, or that nothing here computes.
    #[error("{file}: key `{key}` is {found}, expected {expected}")]
    WrongValue {
        /// The file.
        file: String,
        /// The key, in this kind of file.
        key: String,
        /// The value.
        found: String,
        /// What can be.
        expected: String,
    },
    /// A number of the config lies outside of its limits, or contradicts another.
    #[error("{file}: {what} is {found}, expected {expected}")]
    WrongSize {
        /// The file.
        file: String,
        /// The property.
        what: String,
        /// Its value.
        found: String,
        /// What can be.
        expected: String,
    },
    /// A tensor that the config is read from can't be read.
    #[error(transparent)]
    Format(#[from] FormatError),
    /// generation_config.json is no JSON object.
    #[error("{file} is not valid JSON: {source}")]
    Json {
        /// The file.
        file: String,
        /// What is wrong with it.
        source: serde_json::Error,
    },
    /// A weight is missing or has another shape than the config implies.
    #[error(transparent)]
    Weight(#[from] WeightError),
    /// The program contradicts itself: a fault of a block, not of the file.
    #[error("the program of this model does not verify: {0}")]
    Program(#[from] ProgramError),
}
