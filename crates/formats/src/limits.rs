//! The limits of what a model file may hold, each with room above the largest files in use.
//!
//! A file beyond one of them is refused with an error that names the limit.

/// Bytes of a GGUF file before its tensor data: metadata and tensor list.
pub const GGUF_HEADER_BYTES: usize = 1 << 30;
/// Metadata entries of a GGUF file.
pub const METADATA_ENTRIES: usize = 1 << 16;
/// Bytes of a metadata key, as the GGUF specification has it.
pub const KEY_BYTES: usize = (1 << 16) - 1;
/// Bytes of one string value; a whole tokenizer.json may be one.
pub const STRING_BYTES: usize = 1 << 27;
/// Elements of one metadata array; the largest vocabularies have 2^18.
pub const ARRAY_ELEMENTS: usize = 1 << 24;
/// Tensors of one file, or of all shards of a checkpoint; one expert a tensor makes tens of thousands.
pub const TENSORS: usize = 1 << 17;
/// Bytes of a tensor's name.
pub const TENSOR_NAME_BYTES: usize = 1024;
/// Dimensions of a GGUF tensor.
pub const DIMENSIONS: usize = 4;
/// Bytes that GGUF tensor data may be aligned to.
pub const ALIGNMENT: usize = 1 << 20;
/// Bytes of the JSON header of a safetensors file.
pub const SAFETENSORS_HEADER_BYTES: usize = 100_000_000;
/// Files that a sharded safetensors checkpoint may have.
pub const SHARDS: usize = 4096;
/// Bytes of model.safetensors.index.json.
pub const INDEX_BYTES: usize = 1 << 26;
/// Bytes of config.json; lists of modules that aren't quantised can be long.
pub const CONFIG_BYTES: usize = 1 << 24;
/// Bytes of generation_config.json.
pub const GENERATION_CONFIG_BYTES: usize = 1 << 20;
/// Bytes of tokenizer.json.
pub const TOKENIZER_BYTES: usize = 1 << 28;
/// Bytes of tokenizer_config.json, special_tokens_map.json and chat_template.jinja, each.
pub const TOKENIZER_CONFIG_BYTES: usize = 1 << 24;
