//! DFlash: a few layers that draft a block of tokens in one step, from what several of the target's layers say.
//!
//! Source: the model `dflash` of its authors and the configuration of its released drafters. Embedding and head are the
//! target's. Keys and values of certain tokens come from the target's streams and never pass through the layers.

use super::windows::listed;
use super::{DrafterFamily, Storage};
use crate::ModelError;
use crate::config::{Activation, AttentionConfig, LayerConfig, Mixer, ModelConfig, QueryKeyNorm};
use crate::drafter::{BlockConfig, Drafter, DrafterKind};
use crate::keys::{Key, Keys, gguf_key, json_key, key};
use crate::limits::{CONTEXT_MAX, LAYERS_MAX, VOCABULARY_MAX};
use crate::names::{self, NameRow, Names, Place, row};
use crate::rope::one_rope;
use crate::shape::{Defaults, Shape};
use gannet_formats::Source;
use gannet_ops::TokenId;

pub(super) const FAMILY: DrafterFamily =
    DrafterFamily { architectures: &["DFlashDraftModel"], gguf: "dflash", read };

const NAMES: Names = Names { layer: &[names::ATTENTION, names::PRE_NORM, names::GATED], outside: OUTSIDE };

const OUTSIDE: &[NameRow] = &[
    row("projection", "fc", "fc"),
    row("hidden_norm", "hidden_norm", "enc.output_norm"),
    row("norm", "norm", "output_norm"),
];

const DEFAULTS: Defaults = Defaults {
    vocabulary: 151936,
    feed_forward: 22016,
    kv_heads: Some(32),
    head_dim: Some(128),
    context_length: 32768,
    ..Defaults::COMMON
};
const THETA: f64 = 1_000_000.0;

const BLOCK: Key = key("block_size", "block_size");
const BLOCK_MAX: usize = 1024;
const LAYERS_READ: Key = json_key("target_layer_ids");
/// Counted as layers before the stream that is read.
const STREAMS_READ: Key = gguf_key("target_layers");
const MASK: Key = json_key("mask_token_id");
const CAUSAL: Key = key("causal", "attention.causal");
const WINDOW: Key = key("sliding_window", "attention.sliding_window");

fn read(keys: &Keys<'_>) -> Result<Drafter, ModelError> {
    let own = keys.object("dflash_config")?;
    let own = own.as_ref().unwrap_or(keys);
    refuse(own)?;
    let shape = Shape::read(keys, &DEFAULTS)?;
    let block = keys.count(BLOCK, BLOCK_MAX)?;
    let tokens = match block {
        Some(tokens) => tokens,
        None => own.count(BLOCK, BLOCK_MAX)?.unwrap_or(16),
    };
    let kind = DrafterKind::Block(BlockConfig { tokens, mask: mask(keys, own)? });
    Ok(Drafter {
        kind,
        config: config(keys, own, &shape)?,
        taps: taps(own)?,
        reads_hidden: false,
        own_embedding: false,
        own_head: false,
        names: &NAMES,
        storage: Storage::PLAIN,
        place: Place::Drafter,
        file: keys.file().to_owned(),
    })
}

/// What released drafters may have and nothing here computes.
fn refuse(own: &Keys<'_>) -> Result<(), ModelError> {
    for factor in ["input_embedding_scale", "output_multiplier", "attention_value_scale"] {
        own.expect_one(json_key(factor))?;
    }
    for factor in ["attention.value_scale", "logit_scale", "embedding_scale"] {
        own.expect_one(gguf_key(factor))?;
    }
    for part in ["attention_sink_bias", "has_own_lm_head", "draft_vocab_size", "use_swa"] {
        own.expect_off(json_key(part))?;
    }
    for part in ["conv_kernel_size", "selector_rank"] {
        own.expect_off(key(part, part))?;
    }
    for tensor in ["output.weight", "d2t"] {
        if !own.is_json() && own.tensor(tensor)?.is_some() {
            let what = format!("the tensor `{tensor}`");
            return Err(own.wrong_size(&what, "there", "absent, as embedding and head are the target's"));
        }
    }
    own.expect_off(key("final_logit_softcapping", "final_logit_softcapping"))
}

const PATTERN: Key = gguf_key("attention.sliding_window_pattern");

fn config(keys: &Keys<'_>, own: &Keys<'_>, shape: &Shape) -> Result<ModelConfig, ModelError> {
    keys.expect_text(json_key("hidden_act"), &["silu", "swish"])?;
    let rope = one_rope(keys, shape.rope(THETA))?;
    let slides = match keys.flags(PATTERN)? {
        Some(flags) if flags.len() == shape.layers => flags.to_vec(),
        Some(flags) => {
            let found = format!("a list of {}", flags.len());
            return Err(keys.wrong(PATTERN, found, format!("one flag for each of {} layers", shape.layers)));
        }
        None => listed(keys, shape.layers)?.unwrap_or_else(|| vec![false; shape.layers]),
    };
    let window = keys.count(WINDOW, CONTEXT_MAX)?.map(|tokens| tokens as u32);
    let stated = match keys.flag(json_key("is_causal"))? {
        Some(causal) => Some(causal),
        None => own.flag(CAUSAL)?,
    };
    let attention = |layer: usize| AttentionConfig {
        window: window.filter(|_| slides[layer]),
        query_key_norm: QueryKeyNorm::Head,
        bidirectional: !stated.unwrap_or(slides[layer]),
        ..shape.attention(layer)
    };
    let layer = |layer| {
        LayerConfig::plain(Mixer::Attention(attention(layer)), shape.gated(layer, Activation::Silu, false))
    };
    Ok(ModelConfig { ropes: vec![rope], layers: (0..shape.layers).map(layer).collect(), ..shape.config() })
}

/// The streams that are read: after so many layers.
fn taps(own: &Keys<'_>) -> Result<Vec<usize>, ModelError> {
    let (key, found) = match own.is_json() {
        true => {
            (LAYERS_READ, own.list(LAYERS_READ, LAYERS_MAX)?.map(|ids| ids.iter().map(|id| id + 1).collect()))
        }
        false => (STREAMS_READ, own.list(STREAMS_READ, LAYERS_MAX)?),
    };
    let found: Option<Vec<usize>> = found;
    let expected = "the layers of the target that the drafter reads";
    found.filter(|taps| !taps.is_empty()).ok_or_else(|| own.missing(key, expected))
}

fn mask(keys: &Keys<'_>, own: &Keys<'_>) -> Result<TokenId, ModelError> {
    let found = match &keys.checkpoint().source {
        Source::Gguf(metadata) => metadata.opt_u32("tokenizer.ggml.mask_token_id")?,
        Source::HuggingFace(_) => own.ids(MASK)?.first().copied(),
    };
    let expected = "the id of the token in the places that are drafted";
    let id = found.ok_or_else(|| own.missing(MASK, expected))?;
    if (id as usize) < VOCABULARY_MAX { Ok(TokenId(id)) } else { Err(own.wrong(MASK, id, expected)) }
}
