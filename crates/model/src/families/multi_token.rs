//! The head that predicts further tokens, as hybrids have it beside their layers: `mtp.*`, in GGUF `nextn.*`.
//!
//! A layer like the model's attention layers reads the normed hidden state and the normed embedding of the token after
//! it. Embedding and head are the model's, and in GGUF the norm as well, unless a file has others for it.

use super::{Family, hybrids};
use crate::ModelError;
use crate::config::{LayerConfig, Mixer, ModelConfig};
use crate::drafter::{Drafter, DrafterKind};
use crate::keys::{Keys, json_key};
use crate::limits::LAYERS_MAX;
use crate::names::{self, NameRow, Names, Place, row};
use crate::shape::NEXT_TOKEN_LAYERS;

pub(super) const NAMES: Names = Names { layer: hybrids::NAMES.layer, outside: OUTSIDE };

const OWN_EMBEDDING: &str = "nextn.embed_tokens";
const OWN_HEAD: &str = "nextn.shared_head_head";

const OUTSIDE: &[NameRow] = &[
    row("embed_norm", "pre_fc_norm_embedding", "nextn.enorm"),
    row("hidden_norm", "pre_fc_norm_hidden", "nextn.hnorm"),
    row("projection", "fc", "nextn.eh_proj"),
    row("norm", "norm", "nextn.shared_head_norm"),
    row("norm", "", "output_norm"),
    row("embed", "", OWN_EMBEDDING),
    row("head", "", OWN_HEAD),
];

/// The head beside a model, where its checkpoint has one.
pub(crate) fn beside(
    family: &Family,
    keys: &Keys<'_>,
    config: &ModelConfig,
) -> Result<Option<Drafter>, ModelError> {
    let Some(names) = family.head_beside else { return Ok(None) };
    let layers = layers(keys)?;
    let Some(layer) = config.layers.iter().rev().find(|layer| is_attention(layer)).filter(|_| layers > 0)
    else {
        return Ok(None);
    };
    let place = Place::BesideTarget { layers: config.layers.len() };
    let has_own = |stem: &str| {
        let name = format!("blk.{}.{stem}.weight", config.layers.len());
        !keys.is_json() && names::has_tensor(keys.checkpoint(), &name)
    };
    Ok(Some(Drafter {
        kind: DrafterKind::MultiToken,
        config: ModelConfig { layers: vec![layer.clone(); layers], ..config.clone() },
        taps: Vec::new(),
        reads_hidden: true,
        own_embedding: has_own(OWN_EMBEDDING),
        own_head: has_own(OWN_HEAD),
        names,
        storage: family.storage,
        place,
        file: keys.file().to_owned(),
    }))
}

/// Whether a file has the head and no layer of the model, as GGUF files for other engines' drafters do.
pub(super) fn is_alone(family: &Family, keys: &Keys<'_>) -> Result<bool, ModelError> {
    if keys.is_json() || family.head_beside.is_none() || layers(keys)? == 0 {
        return Ok(false);
    }
    Ok(!keys.checkpoint().tensors().any(|tensor| tensor.name.starts_with("blk.0.")))
}

fn is_attention(layer: &LayerConfig) -> bool {
    match &layer.mixer {
        Mixer::Attention(_) => true,
        Mixer::GatedDeltaNet(_) => false,
    }
}

/// Config files may state a head that the checkpoint was stripped of, so there the tensors count.
fn layers(keys: &Keys<'_>) -> Result<usize, ModelError> {
    if !keys.is_json() {
        return Ok(keys
            .count(NEXT_TOKEN_LAYERS, LAYERS_MAX)
            .or_else(
                |error| {
                    if keys.number(NEXT_TOKEN_LAYERS)? == Some(0.0) { Ok(None) } else { Err(error) }
                },
            )?
            .unwrap_or(0));
    }
    if let Some(nested) = keys.object("text_config")? {
        nested.expect_off(json_key("mtp_use_dedicated_embeddings"))?;
    }
    keys.expect_off(json_key("mtp_use_dedicated_embeddings"))?;
    let has = |layer: usize| {
        let name = format!("mtp.layers.{layer}.input_layernorm.weight");
        names::has_tensor(keys.checkpoint(), &name)
            || names::has_tensor(keys.checkpoint(), &format!("model.{name}"))
    };
    Ok((0..LAYERS_MAX).take_while(|layer| has(*layer)).count())
}
