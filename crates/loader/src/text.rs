//! The text side of a checkpoint, from whichever files describe it.

use crate::LoadError;
use gannet_formats::gguf::Metadata;
use gannet_formats::{Checkpoint, FormatError, HuggingFaceFiles, Source};
use gannet_text::gguf::GgufVocabulary;
use gannet_text::text::{Text, TextFiles};
use std::path::Path;

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
    Ok(Text::from_gguf(vocabulary, metadata.opt_str("tokenizer.chat_template")?)?)
}

/// The vocabulary that the metadata describes; `None` where it names no tokenizer.
fn vocabulary(metadata: &Metadata) -> Result<Option<GgufVocabulary>, FormatError> {
    let Some(model) = metadata.opt_str("tokenizer.ggml.model")? else { return Ok(None) };
    let strings = |key: &str| {
        let list = metadata.opt_strings(key)?;
        Ok(list.map(|list| list.iter().map(str::to_owned).collect()).unwrap_or_default())
    };
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
        precompiled_charsmap: Vec::new(),
        lowercase: metadata.opt_bool("tokenizer.ggml.normalizer.lowercase")?,
        strip_accents: metadata.opt_bool("tokenizer.ggml.normalizer.strip_accents")?,
    }))
}

fn from_hugging_face(files: &HuggingFaceFiles) -> Result<Text, LoadError> {
    let Some(tokenizer) = &files.tokenizer_json else {
        let (file, expected) = (files.directory.display().to_string(), "tokenizer.json");
        return Err(LoadError::NoTokenizer { file, expected });
    };
    Ok(Text::from_files(&TextFiles {
        tokenizer: tokenizer.read()?.as_bytes(),
        tokenizer_config: files.tokenizer_config.as_deref().map(str::as_bytes),
        chat_template: files.chat_template.as_deref().map(str::as_bytes),
    })?)
}
