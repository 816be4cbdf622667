//! Mistral, Mistral-Small and Ministral: a plain decoder whose layers may slide.
//!
//! Source: the configurations and models `mistral` and `ministral` of transformers. Files of GGUF have the architecture
//! of an older family, or one of their own. Checkpoints that see images nest the text model's keys under `text_config`.

use super::windows::listed;
use super::{Family, Storage};
use crate::ModelError;
use crate::config::{Activation, AttentionConfig, LayerConfig, Mixer, ModelConfig};
use crate::keys::{Key, Keys, gguf_key, json_key, key};
use crate::limits::CONTEXT_MAX;
use crate::names;
use crate::rope::one_rope;
use crate::shape::{Defaults, Shape};

pub(super) const FAMILY: Family = Family {
    name: "mistral",
    architectures: &["MistralForCausalLM", "MinistralForCausalLM", "Mistral3ForConditionalGeneration"],
    model_types: &["mistral", "ministral", "mistral3"],
    gguf: Some("mistral3"),
    names: &names::PLAIN,
    storage: Storage::GGUF_INTERLEAVED,
    head_beside: None,
    config,
};

const DEFAULTS: Defaults =
    Defaults { feed_forward: 14336, kv_heads: Some(8), context_length: 4096 * 32, ..Defaults::COMMON };
const WINDOW: Key = key("sliding_window", "attention.sliding_window");
const DEFAULT_WINDOW: usize = 4096;
const THETA: f64 = 10000.0;

fn config(outer: &Keys<'_>) -> Result<ModelConfig, ModelError> {
    let nested = outer.object("text_config")?;
    let keys = nested.as_ref().unwrap_or(outer);
    let shape = Shape::read_nested(outer, keys, &DEFAULTS)?;
    keys.expect_text(json_key("hidden_act"), &["silu", "swish"])?;
    refuse_growing_scores(keys)?;
    let rope = one_rope(keys, shape.rope(THETA))?;
    let window = window(keys)?;
    let slides = listed(keys, shape.layers)?.unwrap_or_else(|| vec![true; shape.layers]);
    let layer = |layer: usize| {
        let attention =
            AttentionConfig { window: window.filter(|_| slides[layer]), ..shape.attention(layer) };
        LayerConfig::plain(Mixer::Attention(attention), shape.gated(layer, Activation::Silu, false))
    };
    Ok(ModelConfig { ropes: vec![rope], layers: (0..shape.layers).map(layer).collect(), ..shape.config() })
}

/// Later models scale queries by their position, which no block computes.
fn refuse_growing_scores(keys: &Keys<'_>) -> Result<(), ModelError> {
    keys.expect_off(gguf_key("attention.temperature_scale"))?;
    match keys.object("rope_parameters")? {
        Some(parameters) => parameters.expect_off(json_key("llama_4_scaling_beta")),
        None => Ok(()),
    }
}

/// Config files mean 4,096 by leaving the key out and none by `null`; GGUF says what it means.
fn window(keys: &Keys<'_>) -> Result<Option<u32>, ModelError> {
    let stated = keys.count(WINDOW, CONTEXT_MAX)?;
    let default = (keys.is_json() && !keys.is_null(WINDOW)).then_some(DEFAULT_WINDOW);
    Ok(stated.or(default).map(|tokens| tokens as u32))
}
