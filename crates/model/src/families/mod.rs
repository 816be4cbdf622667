//! The families of models, a table each: how it is recognised, what its keys mean, what its tensors are called.
//!
//! A family holds no op. What differs in a forward pass is a field of [`ModelConfig`]; what differs in a file is
//! a row of [`Names`] or a field of [`Storage`].

mod gemma3;
mod llama;
mod qwen2;
mod qwen3;
mod windows;

use crate::ModelError;
use crate::config::ModelConfig;
use crate::keys::{Keys, config_file, json_key};
use crate::names::Names;
use gannet_formats::{Checkpoint, Source};

/// One family.
pub(crate) struct Family {
    /// What people call it.
    pub(crate) name: &'static str,
    /// Values of `architectures` in config.json.
    pub(crate) architectures: &'static [&'static str],
    /// Values of `model_type` in config.json.
    pub(crate) model_types: &'static [&'static str],
    /// The value of `general.architecture` in GGUF.
    pub(crate) gguf: &'static str,
    /// What checkpoints call its weights.
    pub(crate) names: &'static Names,
    /// How checkpoints store some of its weights.
    pub(crate) storage: Storage,
    /// Fills the config.
    pub(crate) config: fn(&Keys<'_>) -> Result<ModelConfig, ModelError>,
}

/// Where stored weights differ from canonical ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Storage {
    /// In GGUF, rows of queries and keys alternate between the halves of a head.
    pub(crate) gguf_interleaves_rope: bool,
    /// In Hugging Face files, norm weights lack the 1 that is added to them.
    pub(crate) hugging_face_norms_lack_one: bool,
}

/// All of them.
const FAMILIES: [&Family; 4] = [&llama::FAMILY, &qwen2::FAMILY, &qwen3::FAMILY, &gemma3::FAMILY];

/// The family of a checkpoint, and its properties.
pub(crate) fn find(checkpoint: &Checkpoint) -> Result<(&'static Family, Keys<'_>), ModelError> {
    match &checkpoint.source {
        Source::Gguf(metadata) => {
            let architecture = metadata.str("general.architecture")?;
            let family = FAMILIES.into_iter().find(|family| family.gguf == architecture);
            let known = FAMILIES.map(|family| family.gguf).join(", ");
            let family =
                family.ok_or_else(|| unknown(checkpoint, "general.architecture", architecture, known))?;
            Ok((family, Keys::new(checkpoint, architecture)))
        }
        Source::HuggingFace(_) => find_hugging_face(checkpoint),
    }
}

/// By `architectures` where config.json has it, as that says which head the checkpoint has; else by `model_type`.
fn find_hugging_face(checkpoint: &Checkpoint) -> Result<(&'static Family, Keys<'_>), ModelError> {
    let keys = Keys::new(checkpoint, "");
    let architectures = keys.texts(json_key("architectures"))?.unwrap_or_default();
    let family = if let Some(first) = architectures.first() {
        let known = FAMILIES.map(|family| family.architectures.join(", ")).join(", ");
        let family = FAMILIES.into_iter().find(|family| family.architectures.contains(first));
        family.ok_or_else(|| unknown(checkpoint, "architectures", first, known))?
    } else {
        let key = json_key("model_type");
        let known = FAMILIES.map(|family| family.model_types.join(", ")).join(", ");
        let kind = keys.text(key)?.ok_or_else(|| keys.missing(key, format!("one of {known}")))?;
        let family = FAMILIES.into_iter().find(|family| family.model_types.contains(&kind));
        family.ok_or_else(|| unknown(checkpoint, "model_type", kind, known))?
    };
    Ok((family, keys))
}

fn unknown(checkpoint: &Checkpoint, key: &'static str, found: &str, supported: String) -> ModelError {
    let (file, found) = (config_file(checkpoint), found.to_owned());
    ModelError::UnknownArchitecture { file, key, found, supported }
}
