//! Weights by name: what a program asks for, and where the bytes come from.

use std::any::Any;
use std::borrow::Cow;

use gannet_tensor::Format;

/// A weight that a program reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WeightUse {
    /// The canonical name, in the Hugging Face style without a prefix: `layers.0.attention.q.weight`.
    pub name: String,
    /// Dimensions, outermost first.
    pub shape: Vec<usize>,
    /// What reads it.
    pub role: WeightRole,
}

/// What reads a weight, so that a backend can lay it out once, at load.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WeightRole {
    /// One dimension, or one an expert: norms, biases, gates.
    Vector,
    /// `[rows, columns]`, read by `linear`.
    Matrix,
    /// `[vocabulary, width]`, read by `embed`.
    Embedding,
    /// `[vocabulary, width]`, read by `embed` and by `linear`.
    TiedEmbedding,
    /// `[experts, rows, columns]`, read by `expert_linear`.
    Experts,
    /// `[channels, kernel]`, read by `causal_conv`.
    Convolution,
}

/// Where weights come from: the canonical view of a checkpoint.
pub trait WeightSource: Sync {
    /// The weight of this canonical name, in whatever format the checkpoint holds it.
    fn weight(&self, name: &str) -> Result<WeightTensor<'_>, WeightError>;

    /// Hears that a weight was read, and may let go of the memory behind it; it can be asked for again.
    fn give_back(&self, name: &str) {
        let _ = name;
    }
}

/// A weight as it stands in a checkpoint, or a copy where the canonical form differs.
#[derive(Clone, Debug)]
pub struct WeightTensor<'a> {
    /// The numeric encoding.
    pub format: Format,
    /// Dimensions, outermost first.
    pub shape: Vec<usize>,
    /// Row-major bytes.
    pub bytes: Cow<'a, [u8]>,
}

/// Why a weight can't be had.
#[derive(Debug, thiserror::Error)]
pub enum WeightError {
    /// The checkpoint does not hold it.
    #[error("tensor `{name}` is missing from {file}")]
    Missing {
        /// The name looked for in the file.
        name: String,
        /// The file or folder.
        file: String,
    },
    /// It has other dimensions than the config implies.
    #[error("tensor `{name}` of {file}: the config implies shape {expected:?}, found {found:?}")]
    WrongShape {
        /// The name in the file.
        name: String,
        /// The file or folder.
        file: String,
        /// What the config implies, outermost first.
        expected: Vec<usize>,
        /// What the file has, outermost first.
        found: Vec<usize>,
    },
    /// It is there, but can't be read.
    #[error("tensor `{name}` of {file}: {reason}")]
    Unreadable {
        /// The name in the file.
        name: String,
        /// The file or folder.
        file: String,
        /// What was found and what was expected.
        reason: String,
    },
}

/// Weights that a backend has uploaded; shared by all plans over them.
pub trait Weights: Any + Send + Sync {
    /// Bytes of memory that they hold.
    fn bytes(&self) -> u64;

    /// What a person should know about how they lie, a sentence each: formats that take more room or time than others.
    fn remarks(&self) -> Vec<String>;

    /// For the backend that made them.
    fn as_any(&self) -> &dyn Any;
}
