//! The text side of a checkpoint, from whichever files describe it.

use crate::LoadError;
use gannet_formats::gguf::Metadata;
use gannet_formats::{Checkpoint, FormatError, HuggingFaceFiles, Source};
use gannet_text::gguf::GgufVocabulary;
use gannet_text::text::{GgufTemplates, Text, TextFiles, TokenizerFile};
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// Largest vocabulary file that isn't tokenizer.json, in bytes; those of the largest public models have 5 MB.
const MAX_VOCABULARY_FILE_BYTES: u64 = 1 << 26;

/// Reads tokenizer and chat template.
pub(crate) fn read(checkpoint: &Checkpoint) -> Result<Text, LoadError> {
    match &checkpoint.source {
        Source::Gguf(metadata) => from_gguf(checkpoint.path(), metadata),
        Source::HuggingFace(files) => from_hugging_face(files),
    }
}

fn from_gguf(path: &Path, metadata: &Metadata) -> Result<Text, LoadError> {
    let Some(vocabulary) = vocabulary(metadata)? else {
        let (file, expected) = (path.display().to_string(), "the key `tokenizer.ggml.model`");
        return Err(LoadError::NoTokenizer { file, expected });
    };
    let templates = GgufTemplates {
        plain: metadata.opt_str("tokenizer.chat_template")?,
        default: metadata.opt_str("tokenizer.chat_template.default")?,
        tool_use: metadata.opt_str("tokenizer.chat_template.tool_use")?,
    };
    Ok(Text::from_gguf(vocabulary, templates)?)
}

/// The vocabulary that the metadata describes; `None` where it names no tokenizer.
fn vocabulary(metadata: &Metadata) -> Result<Option<GgufVocabulary>, FormatError> {
    let Some(model) = metadata.opt_str("tokenizer.ggml.model")? else { return Ok(None) };
    let strings = |key: &str| {
        let list = metadata.opt_strings(key)?;
        Ok(list.map(|list| list.iter().map(str::to_owned).collect()).unwrap_or_default())
    };
    // Written as signed or unsigned bytes.
    let charsmap = metadata.opt_i32s("tokenizer.ggml.precompiled_charsmap")?.unwrap_or_default();
    Ok(Some(GgufVocabulary {
        model: model.to_owned(),
        pre: metadata.opt_str("tokenizer.ggml.pre")?.map(str::to_owned),
        tokens: strings("tokenizer.ggml.tokens")?,
        scores: metadata.opt_f32s("tokenizer.ggml.scores")?.unwrap_or_default().to_vec(),
        token_types: metadata.opt_i32s("tokenizer.ggml.token_type")?.unwrap_or_default().to_vec(),
        merges: strings("tokenizer.ggml.merges")?,
        bos: metadata.opt_u32("tokenizer.ggml.bos_token_id")?,
        eos: metadata.opt_u32("tokenizer.ggml.eos_token_id")?,
        eot: metadata.opt_u32("tokenizer.ggml.eot_token_id")?,
        unknown: metadata.opt_u32("tokenizer.ggml.unknown_token_id")?,
        padding: metadata.opt_u32("tokenizer.ggml.padding_token_id")?,
        cls: metadata.opt_u32("tokenizer.ggml.cls_token_id")?,
        separator: metadata.opt_u32("tokenizer.ggml.seperator_token_id")?,
        mask: metadata.opt_u32("tokenizer.ggml.mask_token_id")?,
        add_bos: metadata.opt_bool("tokenizer.ggml.add_bos_token")?,
        add_eos: metadata.opt_bool("tokenizer.ggml.add_eos_token")?,
        add_separator: metadata.opt_bool("tokenizer.ggml.add_sep_token")?,
        add_space_prefix: metadata.opt_bool("tokenizer.ggml.add_space_prefix")?,
        remove_extra_whitespaces: metadata.opt_bool("tokenizer.ggml.remove_extra_whitespaces")?,
        precompiled_charsmap: charsmap.iter().map(|&byte| byte as u8).collect(),
        lowercase: metadata.opt_bool("tokenizer.ggml.normalizer.lowercase")?,
        strip_accents: metadata.opt_bool("tokenizer.ggml.normalizer.strip_accents")?,
    }))
}

fn from_hugging_face(files: &HuggingFaceFiles) -> Result<Text, LoadError> {
    let json = files.tokenizer_json.as_ref().map(|file| file.read()).transpose()?;
    let model =
        if json.is_none() { first_of(&files.directory, &["tokenizer.model", "spiece.model"])? } else { None };
    let tiktoken = if json.is_none() && model.is_none() { tiktoken(&files.directory)? } else { None };
    let tokenizer = match (&json, &model, &tiktoken) {
        (Some(json), _, _) => TokenizerFile::Json(json.as_bytes()),
        (None, Some(model), _) => TokenizerFile::Model(model),
        (None, None, Some(lines)) => TokenizerFile::Tiktoken(lines),
        (None, None, None) => {
            let expected = "tokenizer.json, tokenizer.model, spiece.model or a tiktoken file";
            let file = files.directory.display().to_string();
            return Err(LoadError::NoTokenizer { file, expected });
        }
    };
    Ok(Text::from_files(&TextFiles {
        tokenizer,
        tokenizer_config: files.tokenizer_config.as_deref().map(str::as_bytes),
        chat_template: files.chat_template.as_deref().map(str::as_bytes),
    })?)
}

/// The bytes of the first of these files that is there.
fn first_of(directory: &Path, names: &[&str]) -> Result<Option<Vec<u8>>, FormatError> {
    let path = names.iter().map(|name| directory.join(name)).find(|path| path.is_file());
    path.map(|path| bytes(&path)).transpose()
}

/// The bytes of `tiktoken.model` or, in the order of their names, of the first `*.tiktoken`.
fn tiktoken(directory: &Path) -> Result<Option<Vec<u8>>, FormatError> {
    let entries = fs::read_dir(directory).map_err(|source| unreadable(directory, source))?;
    let paths = entries.flatten().map(|entry| entry.path());
    let mut paths: Vec<PathBuf> =
        paths.filter(|path| path.extension().is_some_and(|end| end == "tiktoken")).collect();
    paths.sort();
    match first_of(directory, &["tiktoken.model"])? {
        Some(bytes) => Ok(Some(bytes)),
        None => paths.first().map(|path| bytes(path)).transpose(),
    }
}

fn bytes(path: &Path) -> Result<Vec<u8>, FormatError> {
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(|source| unreadable(path, source))?;
    // One byte more is enough for the reader of the file to refuse its length.
    file.take(MAX_VOCABULARY_FILE_BYTES + 1)
        .read_to_end(&mut bytes)
        .map_err(|source| unreadable(path, source))?;
    Ok(bytes)
}

fn unreadable(path: &Path, source: io::Error) -> FormatError {
    FormatError::Io { file: path.to_path_buf(), action: "read", source }
}
