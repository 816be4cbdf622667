//! EAGLE-3: a layer over features of three of the target's layers and the token after them.
//!
//! Source: arXiv 2503.01840 and the configurations of its released drafters. The layer reads the normed embedding and
//! the normed features side by side; it may have an embedding, and a vocabulary of its own, smaller than the target's.

use super::{DrafterFamily, Storage};
use crate::ModelError;
use crate::config::{Activation, AttentionConfig, LayerConfig, Mixer, ModelConfig};
use crate::drafter::{Drafter, DrafterKind, FeatureConfig};
use crate::keys::{Key, Keys, json_key, key};
use crate::limits::{LAYERS_MAX, VOCABULARY_MAX};
use crate::names::{self, NameRow, Names, Place, row};
use crate::rope::one_rope;
use crate::shape::{Defaults, Shape};
use gannet_tensor::Format;
use std::sync::Arc;

pub(super) const FAMILY: DrafterFamily = DrafterFamily {
    architectures: &["LlamaForCausalLMEagle3", "Eagle3LlamaForCausalLM"],
    gguf: "eagle3",
    read,
};

const NAMES: Names =
    Names { layer: &[FEATURES, names::ATTENTION, names::PRE_NORM, names::GATED], outside: OUTSIDE };

const FEATURES: &[NameRow] = &[row("hidden_norm", "hidden_norm", "attn_norm_2")];

const OUTSIDE: &[NameRow] = &[
    row("projection", "fc", "fc"),
    row("norm", "norm", "output_norm"),
    row("head", "lm_head", "output"),
    row("embed", "embed_tokens", "token_embd"),
];

const THETA: f64 = 10000.0;
const VOCABULARY: Key = json_key("draft_vocab_size");
const STREAMS_READ: Key = key("eagle_aux_hidden_state_layer_ids", "target_layers");
const NORM_BEFORE_RESIDUAL: Key = key("norm_before_residual", "norm_before_residual");

fn read(keys: &Keys<'_>) -> Result<Drafter, ModelError> {
    let own = keys.object("eagle_config")?;
    let own = own.as_ref().unwrap_or(keys);
    keys.expect_text(json_key("hidden_act"), &["silu", "swish"])?;
    for part in ["norm_before_fc", "norm_output"] {
        own.expect_off(key(part, part))?;
    }
    let shape = Shape::read(keys, &Defaults::COMMON)?;
    let taps = own.list(STREAMS_READ, LAYERS_MAX)?;
    let table = vocabulary(keys, shape.vocabulary)?;
    let kind = DrafterKind::Feature(FeatureConfig {
        default_taps: taps.is_none(),
        norm_before_residual: own.flag(NORM_BEFORE_RESIDUAL)?.unwrap_or(false),
        vocabulary: table.clone(),
    });
    let stated = keys.count(VOCABULARY, VOCABULARY_MAX)?;
    let rows = table.map_or(stated.unwrap_or(shape.vocabulary), |table| table.len());
    if let Some(stated) = stated
        && stated != rows
    {
        return Err(keys.wrong(VOCABULARY, stated, format!("{rows}, as many as the table `d2t` has")));
    }
    let rope = one_rope(keys, shape.rope(THETA))?;
    let layer = |layer| {
        let attention: AttentionConfig = shape.attention(layer);
        LayerConfig::plain(Mixer::Attention(attention), shape.gated(layer, Activation::Silu, false))
    };
    let layers = (0..shape.layers).map(layer).collect();
    let has_embedding = ["embed_tokens.weight", "model.embed_tokens.weight", "token_embd.weight"];
    Ok(Drafter {
        kind,
        config: ModelConfig { vocabulary: rows, ropes: vec![rope], layers, ..shape.config() },
        taps: taps.unwrap_or_default(),
        reads_hidden: false,
        own_embedding: has_embedding.iter().any(|name| names::has_tensor(keys.checkpoint(), name)),
        own_head: true,
        names: &NAMES,
        storage: Storage::GGUF_INTERLEAVED,
        place: Place::Drafter,
        file: keys.file().to_owned(),
    })
}

/// The numbers of the table, where there is one.
fn table(keys: &Keys<'_>) -> Result<Option<Vec<i64>>, ModelError> {
    let Some(tensor) = keys.tensor("d2t")? else { return Ok(None) };
    if tensor.format != Format::I64 || tensor.shape.len() != 1 {
        let found = format!("{:?} in `{}`", tensor.shape, tensor.format);
        return Err(keys.wrong_size("the tensor `d2t`", found, "a list in `i64`"));
    }
    let bytes = tensor.bytes()?;
    let words = bytes.as_chunks::<8>().0.iter();
    Ok(Some(words.map(|word| i64::from_le_bytes(*word)).collect()))
}

/// The target's id for each of the drafter's: in config.json's world a table of offsets, in GGUF of the ids.
fn vocabulary(keys: &Keys<'_>, target: usize) -> Result<Option<Arc<[u32]>>, ModelError> {
    let Some(table) = table(keys)? else { return Ok(None) };
    let id = |(place, number): (usize, &i64)| {
        let id = if keys.is_json() { number.checked_add(place as i64) } else { Some(*number) };
        id.and_then(|id| u32::try_from(id).ok()).filter(|id| (*id as usize) < target)
    };
    let ids: Option<Arc<[u32]>> = table.iter().enumerate().map(id).collect();
    let found = || format!("an id beyond the target's {target}");
    ids.filter(|ids| !ids.is_empty()).map(Some).ok_or_else(|| {
        keys.wrong_size("an entry of the tensor `d2t`", found(), "the id of a token of the target")
    })
}
