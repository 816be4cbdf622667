//! Why a model can't be loaded.

use crate::broker::{MemoryUse, OverBudget};
use gannet_engine::OptionsError;
use gannet_formats::FormatError;
use gannet_model::ModelError;
use gannet_ops::DeviceError;
use gannet_text::error::TextError;

/// Why a model can't be loaded.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The files can't be read.
    #[error(transparent)]
    Format(#[from] FormatError),
    /// The files hold no model that we know.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// There is no tokenizer that we know.
    #[error(transparent)]
    Text(#[from] TextError),
    /// The files hold no tokenizer at all.
    #[error("{file} holds no tokenizer: expected {expected}; give token ids with --ids instead of text")]
    NoTokenizer {
        /// The file or folder.
        file: String,
        /// What was looked for.
        expected: &'static str,
    },
    /// The model makes vectors of texts, not text.
    #[error("`{family}` models like this one make vectors of texts and no text; `embed` makes them")]
    MakesNoText {
        /// What people call its family.
        family: &'static str,
    },
    /// The files don't say how the model would make vectors.
    #[error(
        "`{family}` models like this one make text, and their files don't say which rows make a vector; \
         choose a pooling: last, mean or first"
    )]
    NoPooling {
        /// What people call its family.
        family: &'static str,
    },
    /// The backend refused.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// A context beyond the model's own.
    #[error(
        "a context of {asked} tokens was asked for, and the model's own ends at {limit}; ask for at most that, or \
         for a rope scaling that reaches further"
    )]
    ContextTooLong {
        /// Tokens asked for.
        asked: usize,
        /// Tokens that the model was made for.
        limit: usize,
    },
    /// A context without a token.
    #[error("a context of 0 tokens was asked for; at least 1 is needed")]
    NoContext,
    /// It doesn't fit into memory.
    #[error(
        "not enough memory: {memory} bytes are needed for a context of {context} and {sequences} at once, and {available} \
         are available; choose a shorter context, fewer sequences, or a smaller format"
    )]
    OutOfMemory {
        /// Bytes of each class.
        memory: MemoryUse,
        /// Tokens of the longest sequence.
        context: usize,
        /// Sequences that run at once.
        sequences: usize,
        /// Bytes that the system, or a limit on the process or on the model, leaves.
        available: u64,
    },
    /// A budget beyond what there is.
    #[error(
        "a memory of {asked} bytes was asked for, and {available} are available; ask for at most that, or for none to \
         take what is there"
    )]
    BudgetTooLarge {
        /// Bytes asked for.
        asked: u64,
        /// Bytes that the system, or a limit on the process, leaves.
        available: u64,
    },
    /// Others took the memory meanwhile.
    #[error("not enough memory: {0}")]
    OverBudget(#[from] OverBudget),
    /// An engine can't run so.
    #[error(transparent)]
    Options(#[from] OptionsError),
    /// The operating system refused a thread.
    #[error("can't start the engine's thread: {0}")]
    Thread(#[from] std::io::Error),
}
