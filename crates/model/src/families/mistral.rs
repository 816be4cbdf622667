//! Mistral, Mistral-Small and Ministral: a plain decoder whose layers may slide, and whose queries may grow with their
//! position.
//!
//! Source: the configurations and models `mistral`, `ministral` and `ministral3` of transformers. Files of GGUF have the
//! architecture of an older family, or one of their own. Checkpoints that see images nest the text model's keys under
//! `text_config`, whose `model_type` says which it is.

use super::windows::listed;
use super::{Family, Storage};
use crate::ModelError;
use crate::config::{Activation, AttentionConfig, LayerConfig, Mixer, ModelConfig, PositionScale};
use crate::keys::{Key, Keys, gguf_key, json_key, key};
use crate::limits::CONTEXT_MAX;
use crate::names;
use crate::rope::{RopeDefaults, one_rope};
use crate::shape::{Defaults, Shape};

pub(super) const FAMILY: Family = Family {
    name: "mistral",
    architectures: &[
        "MistralForCausalLM",
        "MinistralForCausalLM",
        "Ministral3ForCausalLM",
        "Mistral3ForConditionalGeneration",
    ],
    model_types: &["mistral", "ministral", "ministral3", "mistral3"],
    gguf: Some("mistral3"),
    names: &names::PLAIN,
    storage: Storage::GGUF_INTERLEAVED,
    head_beside: None,
    config,
};

/// What differs between the members where config.json leaves keys out.
struct Member {
    defaults: Defaults,
    window: Option<usize>,
}

const EARLIER: Member = Member {
    defaults: Defaults {
        feed_forward: 14336,
        kv_heads: Some(8),
        context_length: 4096 * 32,
        ..Defaults::COMMON
    },
    window: Some(4096),
};
const THIRD: Member = Member {
    defaults: Defaults {
        vocabulary: 131072,
        feed_forward: 14336,
        layers: 34,
        kv_heads: Some(8),
        head_dim: Some(128),
        context_length: 262144,
        epsilon: 1e-5,
        ..Defaults::COMMON
    },
    window: None,
};
const WINDOW: Key = key("sliding_window", "attention.sliding_window");
const THETA: f64 = 10000.0;
const MODEL_TYPE: Key = json_key("model_type");
const ROPES: [&str; 2] = ["rope_scaling", "rope_parameters"];
const SLOPE: Key = json_key("llama_4_scaling_beta");
const PERIOD: Key = json_key("original_max_position_embeddings");
const GGUF_SLOPE: Key = gguf_key("attention.temperature_scale");
const GGUF_PERIOD: Key = gguf_key("rope.scaling.original_context_length");

fn config(outer: &Keys<'_>) -> Result<ModelConfig, ModelError> {
    let nested = outer.object("text_config")?;
    let keys = nested.as_ref().unwrap_or(outer);
    let member = member(keys)?;
    let shape = Shape::read_nested(outer, keys, &member.defaults)?;
    keys.expect_text(json_key("hidden_act"), &["silu", "swish"])?;
    let rope = one_rope(keys, RopeDefaults { yarn_log_multiplier: true, ..shape.rope(THETA) })?;
    let window = window(keys, member.window)?;
    let slides = listed(keys, shape.layers)?.unwrap_or_else(|| vec![true; shape.layers]);
    let position_scale = position_scale(keys)?;
    let layer = |layer: usize| {
        let window = window.filter(|_| slides[layer]);
        let attention = AttentionConfig { window, position_scale, ..shape.attention(layer) };
        LayerConfig::plain(Mixer::Attention(attention), shape.gated(layer, Activation::Silu, false))
    };
    Ok(ModelConfig { ropes: vec![rope], layers: (0..shape.layers).map(layer).collect(), ..shape.config() })
}

fn member(keys: &Keys<'_>) -> Result<&'static Member, ModelError> {
    match keys.text(MODEL_TYPE)? {
        None | Some("mistral" | "ministral" | "mistral3") => Ok(&EARLIER),
        Some("ministral3") if ropes(keys)?.is_none() => {
            Err(keys
                .missing(json_key(ROPES[1]), "an object, as this model's rope and queries are scaled by it"))
        }
        Some("ministral3") => Ok(&THIRD),
        Some(other) => {
            Err(keys.wrong(MODEL_TYPE, format!("`{other}`"), "`mistral`, `ministral` or `ministral3`"))
        }
    }
}

fn ropes<'a>(keys: &Keys<'a>) -> Result<Option<Keys<'a>>, ModelError> {
    for name in ROPES {
        if let Some(parameters) = keys.object(name)? {
            return Ok(Some(parameters));
        }
    }
    Ok(None)
}

/// The growth of queries, where the file has any; its period is the context that the rope was first trained for.
fn position_scale(keys: &Keys<'_>) -> Result<Option<PositionScale>, ModelError> {
    let parameters = ropes(keys)?;
    let (keys, slope, period) = match &parameters {
        _ if !keys.is_json() => (keys, GGUF_SLOPE, GGUF_PERIOD),
        Some(parameters) => (parameters, SLOPE, PERIOD),
        None => return Ok(None),
    };
    let Some(found) = keys.number(slope)?.filter(|slope| *slope != 0.0) else { return Ok(None) };
    let length = keys.count(period, CONTEXT_MAX)?;
    let length = length.ok_or_else(|| keys.missing(period, "the number of positions of one factor"))?;
    Ok(Some(PositionScale { slope: found as f32, period: length as u32 }))
}

/// Config files mean the member's by leaving the key out and none by `null`; GGUF says what it means.
fn window(keys: &Keys<'_>, default: Option<usize>) -> Result<Option<u32>, ModelError> {
    let stated = keys.count(WINDOW, CONTEXT_MAX)?;
    let default = default.filter(|_| keys.is_json() && !keys.is_null(WINDOW));
    Ok(stated.or(default).map(|tokens| tokens as u32))
}
