//! The families of models, a table each: how it is recognised, what its keys mean, what its tensors are called.
//!
//! A family holds no op. What differs in a forward pass is a field of [`ModelConfig`]; what differs in a file is
//! a row of [`Names`] or a field of [`Storage`]. Drafters have tables of the same kind.

mod gemma2;
mod gemma3;
mod glm4;
mod gpt_oss;
mod granite;
mod llama;
mod mistral;
mod mixtral;
mod olmo2;
mod phi3;
mod qwen2;
mod qwen2_moe;
mod qwen3;
mod qwen3_5;
mod qwen3_moe;
mod qwen3_next;
mod smollm3;

mod dflash;
mod eagle3;
mod multi_token;

mod hybrids;
mod mixtures;
mod windows;

pub(crate) use multi_token::beside;

use crate::ModelError;
use crate::config::ModelConfig;
use crate::drafter::Drafter;
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
    /// The value of `general.architecture` in GGUF; none where another family's table has it.
    pub(crate) gguf: Option<&'static str>,
    /// What checkpoints call its weights.
    pub(crate) names: &'static Names,
    /// How checkpoints store some of its weights.
    pub(crate) storage: Storage,
    /// The names of a head that predicts further tokens, where checkpoints may have one beside the model.
    pub(crate) head_beside: Option<&'static Names>,
    /// Fills the config.
    pub(crate) config: fn(&Keys<'_>) -> Result<ModelConfig, ModelError>,
}

/// Where stored weights differ from canonical ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Storage {
    /// In GGUF, rows of queries and keys alternate between the halves of a head.
    pub(crate) gguf_interleaves_rope: bool,
    /// In Hugging Face files they do.
    pub(crate) hugging_face_interleaves_rope: bool,
    /// In Hugging Face files, norm weights lack the 1 that is added to them.
    pub(crate) hugging_face_norms_lack_one: bool,
}

impl Storage {
    /// As the canonical form is.
    pub(crate) const PLAIN: Self = Self {
        gguf_interleaves_rope: false,
        hugging_face_interleaves_rope: false,
        hugging_face_norms_lack_one: false,
    };
    /// The rope of GGUF is interleaved.
    pub(crate) const GGUF_INTERLEAVED: Self = Self { gguf_interleaves_rope: true, ..Self::PLAIN };
    /// Norms of Hugging Face files lack the 1.
    pub(crate) const NORMS_LACK_ONE: Self = Self { hugging_face_norms_lack_one: true, ..Self::PLAIN };
}

/// All of them.
const FAMILIES: &[&Family] = &[
    &llama::FAMILY,
    &mistral::FAMILY,
    &mixtral::FAMILY,
    &qwen2::FAMILY,
    &qwen2_moe::FAMILY,
    &qwen3::FAMILY,
    &qwen3_moe::FAMILY,
    &qwen3_next::FAMILY,
    &qwen3_5::DENSE,
    &qwen3_5::EXPERTS,
    &gemma2::FAMILY,
    &gemma3::FAMILY,
    &gemma3::EMBEDDING,
    &phi3::FAMILY,
    &granite::FAMILY,
    &smollm3::FAMILY,
    &olmo2::FAMILY,
    &glm4::FAMILY,
    &gpt_oss::FAMILY,
];

/// What people call the families, each once.
pub fn family_names() -> impl Iterator<Item = &'static str> {
    FAMILIES.iter().map(|family| family.name)
}

/// One kind of drafter that comes as a checkpoint of its own.
pub(crate) struct DrafterFamily {
    /// Values of `architectures` in config.json.
    pub(crate) architectures: &'static [&'static str],
    /// The value of `general.architecture` in GGUF.
    pub(crate) gguf: &'static str,
    /// Reads the drafter.
    pub(crate) read: fn(&Keys<'_>) -> Result<Drafter, ModelError>,
}

const DRAFTERS: &[&DrafterFamily] = &[&dflash::FAMILY, &eagle3::FAMILY];

/// Architectures that look like one of the families and are not, with what they have that nothing here computes.
const LOOKALIKES: &[(&str, &str)] = &[
    (
        "Qwen4ExpForCausalLM",
        "it has hyper-connections, a sparse-attention indexer and n-gram embeddings, which are not supported",
    ),
    (
        "qwen4_exp",
        "it has hyper-connections, a sparse-attention indexer and n-gram embeddings, which are not supported",
    ),
    (
        "qwen4exp",
        "it has hyper-connections, a sparse-attention indexer and n-gram embeddings, which are not supported",
    ),
    ("DFlash2DraftModel", "it has convolutions within a block and a selector, which are not supported"),
];

/// The family of a checkpoint, and its properties.
pub(crate) fn find(checkpoint: &Checkpoint) -> Result<(&'static Family, Keys<'_>), ModelError> {
    if let Some((key, found)) = named_drafter(checkpoint)? {
        let (file, found) = (config_file(checkpoint), found.to_owned());
        return Err(ModelError::IsDrafter { file, key, found });
    }
    match &checkpoint.source {
        Source::Gguf(metadata) => {
            let architecture = metadata.str("general.architecture")?;
            let family = FAMILIES.iter().find(|family| family.gguf == Some(architecture));
            let known = FAMILIES.iter().filter_map(|family| family.gguf).collect::<Vec<_>>().join(", ");
            let family =
                family.ok_or_else(|| unknown(checkpoint, "general.architecture", architecture, known))?;
            let keys = Keys::new(checkpoint, architecture);
            if multi_token::is_alone(family, &keys)? {
                let found = format!("{architecture} without its layers");
                let file = config_file(checkpoint);
                return Err(ModelError::IsDrafter { file, key: "general.architecture", found });
            }
            Ok((family, keys))
        }
        Source::HuggingFace(_) => find_hugging_face(checkpoint),
    }
}

/// By `architectures` where config.json has it, as that says which head the checkpoint has; else by `model_type`.
fn find_hugging_face(checkpoint: &Checkpoint) -> Result<(&'static Family, Keys<'_>), ModelError> {
    let keys = Keys::new(checkpoint, "");
    let architectures = keys.texts(json_key("architectures"))?.unwrap_or_default();
    let family = if let Some(first) = architectures.first() {
        let known = FAMILIES.iter().flat_map(|family| family.architectures).copied().collect::<Vec<_>>();
        let family = FAMILIES.iter().find(|family| family.architectures.contains(first));
        family.ok_or_else(|| unknown(checkpoint, "architectures", first, known.join(", ")))?
    } else {
        let key = json_key("model_type");
        let known = FAMILIES.iter().flat_map(|family| family.model_types).copied().collect::<Vec<_>>();
        let known = known.join(", ");
        let kind = keys.text(key)?.ok_or_else(|| keys.missing(key, format!("one of {known}")))?;
        let family = FAMILIES.iter().find(|family| family.model_types.contains(&kind));
        family.ok_or_else(|| unknown(checkpoint, "model_type", kind, known))?
    };
    Ok((family, keys))
}

/// The drafter of a checkpoint, where it is one.
pub(crate) fn find_drafter(checkpoint: &Checkpoint) -> Result<Option<Drafter>, ModelError> {
    let Some((_, found)) = named_drafter(checkpoint)? else { return head_alone(checkpoint) };
    let is_named = |family: &&&DrafterFamily| family.architectures.contains(&found) || family.gguf == found;
    let Some(family) = DRAFTERS.iter().find(is_named) else { return Ok(None) };
    let keys = Keys::new(checkpoint, family.gguf);
    (family.read)(&keys).map(Some)
}

/// The head that predicts further tokens, where a GGUF file of its model's architecture holds it and not the model.
fn head_alone(checkpoint: &Checkpoint) -> Result<Option<Drafter>, ModelError> {
    let Source::Gguf(metadata) = &checkpoint.source else { return Ok(None) };
    let architecture = metadata.str("general.architecture")?;
    let keys = Keys::new(checkpoint, architecture);
    match FAMILIES.iter().find(|family| family.gguf == Some(architecture)) {
        Some(family) if multi_token::is_alone(family, &keys)? => {
            beside(family, &keys, &(family.config)(&keys)?)
        }
        Some(_) | None => Ok(None),
    }
}

/// The key and value that say that a checkpoint is a drafter.
fn named_drafter(checkpoint: &Checkpoint) -> Result<Option<(&'static str, &str)>, ModelError> {
    let named = match &checkpoint.source {
        Source::Gguf(metadata) => Some(("general.architecture", metadata.str("general.architecture")?)),
        Source::HuggingFace(_) => {
            let keys = Keys::new(checkpoint, "");
            let architectures = keys.texts(json_key("architectures"))?.unwrap_or_default();
            architectures.first().map(|first| ("architectures", *first))
        }
    };
    let is_drafter = |found: &str| {
        DRAFTERS.iter().any(|family| family.architectures.contains(&found) || family.gguf == found)
    };
    Ok(named.filter(|(_, found)| is_drafter(found)))
}

fn unknown(checkpoint: &Checkpoint, key: &'static str, found: &str, supported: String) -> ModelError {
    let (file, architecture) = (config_file(checkpoint), found.to_owned());
    match LOOKALIKES.iter().find(|(known, _)| *known == found) {
        Some((_, reason)) => ModelError::Lookalike { file, key, found: architecture, reason },
        None => ModelError::UnknownArchitecture { file, key, found: architecture, supported },
    }
}
