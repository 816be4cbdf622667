//! The ids that a model's files name for the beginning and the end of a text.

use crate::ModelError;
use crate::keys::{Key, Keys, json_key};
use gannet_formats::gguf::Metadata;
use gannet_formats::{Checkpoint, HuggingFaceFiles, Source};
use gannet_ops::TokenId;
use serde_json::{Map, Value};

const BOS: Key = json_key("bos_token_id");
const EOS: Key = json_key("eos_token_id");

/// Ids with a meaning for generation, from config.json and generation_config.json or from GGUF metadata.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TokenIds {
    /// Stands before every text.
    pub bos: Option<TokenId>,
    /// Each ends a text or a turn; in the order of the files, without repeats.
    pub eos: Vec<TokenId>,
}

impl TokenIds {
    pub(crate) fn read(checkpoint: &Checkpoint, keys: &Keys<'_>) -> Result<Self, ModelError> {
        match &checkpoint.source {
            Source::Gguf(metadata) => Self::from_gguf(metadata),
            Source::HuggingFace(files) => Self::from_hugging_face(checkpoint, files, keys),
        }
    }

    fn from_gguf(metadata: &Metadata) -> Result<Self, ModelError> {
        let bos = metadata.opt_u32("tokenizer.ggml.bos_token_id")?.map(TokenId);
        let mut ids = Self { bos, eos: Vec::new() };
        for name in ["eos", "eot", "eom"] {
            ids.end_with(metadata.opt_u32(&format!("tokenizer.ggml.{name}_token_id"))?);
        }
        Ok(ids)
    }

    /// What generation_config.json says comes first, then the whole model's config, then the text model's.
    fn from_hugging_face(
        checkpoint: &Checkpoint,
        files: &HuggingFaceFiles,
        keys: &Keys<'_>,
    ) -> Result<Self, ModelError> {
        let file = files.directory.join("generation_config.json").display().to_string();
        let generation = generation_config(files, &file)?;
        let generation = Keys::of_object(checkpoint, file, &generation);
        let nested = keys.object("text_config")?;
        let mut ids = Self::default();
        for keys in [Some(&generation), Some(keys), nested.as_ref()].into_iter().flatten() {
            ids.bos = ids.bos.or(keys.ids(BOS)?.first().copied().map(TokenId));
            ids.end_with(keys.ids(EOS)?);
        }
        Ok(ids)
    }

    fn end_with(&mut self, ids: impl IntoIterator<Item = u32>) {
        for id in ids.into_iter().map(TokenId) {
            if !self.eos.contains(&id) {
                self.eos.push(id);
            }
        }
    }
}

fn generation_config(files: &HuggingFaceFiles, file: &str) -> Result<Map<String, Value>, ModelError> {
    let Some(text) = &files.generation_config else { return Ok(Map::new()) };
    gannet_json::from_slice(text.as_bytes())
        .and_then(serde_json::from_value)
        .map_err(|source| ModelError::Json { file: file.to_owned(), source })
}
