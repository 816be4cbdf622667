//! Everything that can be wrong with a model file, with the facts.

use std::io;
use std::path::{Path, PathBuf};

/// What is wrong with a model file. Each message names the file and what in it, what was found and expected, and what
/// to do where we know.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the message of each variant says what its fields are")]
pub enum FormatError {
    // The file as a whole.
    #[error("`{}` doesn't exist", file.display())]
    NotFound { file: PathBuf },
    #[error("can't {action} `{}`: {source}", file.display())]
    Io { file: PathBuf, action: &'static str, source: io::Error },
    #[error("`{}` is neither a file nor a directory", file.display())]
    NotAFile { file: PathBuf },
    #[error("`{}` is empty", file.display())]
    Empty { file: PathBuf },
    #[error("`{}` is no model that can be opened: it begins with {found}, expected `GGUF`; {advice}", file.display())]
    NotAModel { file: PathBuf, found: String, advice: &'static str },
    #[error(
        "`{}` is no model directory: expected config.json beside model.safetensors or model.safetensors.index.json, \
         found {found}; a GGUF model is opened by the path of its file", directory.display()
    )]
    NotAModelDirectory { directory: PathBuf, found: String },
    #[error(
        "`{}` has no weights that can be opened: expected model.safetensors or model.safetensors.index.json, \
         found {found}", directory.display()
    )]
    NoWeights { directory: PathBuf, found: String },
    #[error(
        "`{}` ends too early: expected {needed} bytes for {what} from byte {offset} on, found {left}; \
         it was cut off or damaged, so fetch it again", file.display()
    )]
    Truncated { file: PathBuf, what: String, offset: usize, needed: u64, left: usize },
    #[error("`{}`: {what} is {found}, above the limit of {limit} ({name})", file.display())]
    OverLimit { file: PathBuf, what: String, found: u64, limit: usize, name: &'static str },
    #[error("`{}`: {what} is not UTF-8 text", file.display())]
    NotUtf8 { file: PathBuf, what: String },

    // GGUF.
    #[error("`{}` is GGUF version {found}, expected 2 or 3; convert the model again", file.display())]
    GgufVersion { file: PathBuf, found: u32 },
    #[error(
        "`{}` is part {part} of {count} of a split GGUF model; expected a name that ends with `{ending}`, by which the \
         other parts are found", file.display()
    )]
    PartName { file: PathBuf, part: u64, count: u32, ending: String },
    #[error(
        "`{}` doesn't belong to this split GGUF model: `{key}` is {found}, expected {expected}; fetch all parts from \
         one place", file.display()
    )]
    WrongPart { file: PathBuf, key: String, found: String, expected: String },
    #[error(
        "`{}` and the other parts of this split GGUF model have {found} tensors, expected {expected} \
         (`split.tensors.count`); fetch all parts from one place", file.display()
    )]
    PartTensors { file: PathBuf, expected: u64, found: usize },
    #[error("`{}`: metadata key `{key}` occurs twice", file.display())]
    DuplicateKey { file: PathBuf, key: String },
    #[error("`{}`: metadata key `{key}` has the value type {found}, expected 0 to 12", file.display())]
    UnknownValueType { file: PathBuf, key: String, found: u32 },
    #[error("`{}`: metadata key `{key}` is an array of arrays, which no model uses", file.display())]
    NestedArray { file: PathBuf, key: String },
    #[error("`{}`: metadata key `{key}` holds the bool {found}, expected 0 or 1", file.display())]
    NotABool { file: PathBuf, key: String, found: u8 },
    #[error("`{}` has no metadata key `{key}`, expected {expected}", file.display())]
    MissingKey { file: PathBuf, key: String, expected: &'static str },
    #[error("`{}`: metadata key `{key}` is {found}, expected {expected}", file.display())]
    WrongType { file: PathBuf, key: String, found: String, expected: &'static str },
    #[error("`{}`: alignment (general.alignment) is {found}, expected a power of two", file.display())]
    Alignment { file: PathBuf, found: u32 },

    // Tensors.
    #[error("`{}`: tensor `{tensor}` occurs twice", file.display())]
    DuplicateTensor { file: PathBuf, tensor: String },
    #[error(
        "`{}`: tensor `{tensor}` has {columns} columns, expected a multiple of {block}, the block of `{kind}`",
        file.display()
    )]
    NotWholeBlocks { file: PathBuf, tensor: String, kind: &'static str, columns: usize, block: usize },
    #[error("`{}`: tensor `{tensor}` of shape {shape:?} is larger than the address space", file.display())]
    SizeOverflow { file: PathBuf, tensor: String, shape: Vec<u64> },
    #[error(
        "`{}`: tensor `{tensor}` starts at offset {offset}, expected a multiple of the alignment {alignment}",
        file.display()
    )]
    Unaligned { file: PathBuf, tensor: String, offset: u64, alignment: usize },
    #[error("`{}`: tensors `{first}` and `{second}` overlap", file.display())]
    Overlap { file: PathBuf, first: String, second: String },
    #[error(
        "`{}`: tensor `{tensor}` has the type {kind}, which is not supported; supported are {supported}",
        file.display()
    )]
    UnsupportedTensor { file: PathBuf, tensor: String, kind: String, supported: String },
    #[error("`{}`: tensor `{tensor}` has {found} bytes, expected {expected} for its shape", file.display())]
    TensorBytes { file: PathBuf, tensor: String, expected: usize, found: usize },

    #[error("`{}`: tensor `{tensor}` is in `{format}`, for which GGUF has no type", file.display())]
    NoTensorType { file: PathBuf, tensor: String, format: &'static str },
    #[error("tensor `{tensor}`: no memory for its {bytes} bytes")]
    OutOfMemory { tensor: String, bytes: usize },

    // Weights in parts.
    #[error("`{}`: key `{key}` is {found}, expected {expected}", file.display())]
    Quantization { file: PathBuf, key: String, found: String, expected: String },
    #[error("`{}`: tensor `{tensor}` is packed and needs `{part}`, which is missing", file.display())]
    MissingPart { file: PathBuf, tensor: String, part: String },
    #[error("`{}`: tensor `{tensor}` has the type {found}, expected {expected}", file.display())]
    PartFormat { file: PathBuf, tensor: String, found: &'static str, expected: String },
    #[error("`{}`: tensor `{tensor}` has the shape {found:?}, expected {expected}", file.display())]
    PartShape { file: PathBuf, tensor: String, found: Vec<usize>, expected: String },
    #[error(
        "`{}`: tensor `{tensor}` puts column {column} into group {found}, expected one of {groups} groups",
        file.display()
    )]
    GroupIndex { file: PathBuf, tensor: String, column: usize, found: i64, groups: usize },
    #[error(
        "`{}`: tensor `{tensor}` is part of a packed weight, but {why}; reading the weight without it would be wrong",
        file.display()
    )]
    StrayPart { file: PathBuf, tensor: String, why: String },

    #[error(
        "`{}`: tensor `{tensor}` holds zeros of 3 bits that differ from group to group in version 1 of GPTQ, which its writers \
         store in two ways; convert the model to `gptq_v2`", file.display()
    )]
    OlderZeros { file: PathBuf, tensor: String },

    // Hugging Face directories.
    #[error("`{}` is not valid JSON: {source}", file.display())]
    Json { file: PathBuf, source: serde_json::Error },
    #[error("`{}` holds {found}, expected {expected}", file.display())]
    WrongJson { file: PathBuf, found: &'static str, expected: &'static str },
    #[error("`{}` has no valid safetensors header: {source}; fetch it again", file.display())]
    SafetensorsHeader { file: PathBuf, source: serde_json::Error },
    #[error("`{}` has {found} bytes of tensor data, expected {expected}; fetch it again", file.display())]
    TrailingBytes { file: PathBuf, expected: usize, found: usize },
    #[error("`{}` names the shard {shard:?}, expected the plain name of a file beside it", file.display())]
    ShardName { file: PathBuf, shard: String },
    #[error("`{}` places tensor `{tensor}` in `{shard}`, which doesn't hold it", file.display())]
    NotInShard { file: PathBuf, tensor: String, shard: String },
}

impl FormatError {
    /// The error for a file that can't be read, or isn't there.
    pub(crate) fn unreadable(file: &Path, source: io::Error) -> Self {
        let file = file.to_path_buf();
        if source.kind() == io::ErrorKind::NotFound {
            return Self::NotFound { file };
        }
        Self::Io { file, action: "read", source }
    }
}
