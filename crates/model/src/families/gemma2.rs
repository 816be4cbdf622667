//! Gemma 2: four norms a layer, scaled embeddings, soft caps on scores and logits, every other layer within a window.
//!
//! Source: the configuration and model `gemma2` of transformers. The embedding's scale is the float32 square root.

use super::windows::listed;
use super::{Family, Storage};
use crate::ModelError;
use crate::config::{
    Activation, AttentionBias, AttentionConfig, LayerConfig, LayerNorms, Mixer, ModelConfig,
};
use crate::keys::{Key, Keys, json_key, key};
use crate::limits::CONTEXT_MAX;
use crate::names::{self, Names};
use crate::rope::one_rope;
use crate::shape::{Defaults, Shape};

pub(super) const FAMILY: Family = Family {
    name: "gemma2",
    architectures: &["Gemma2ForCausalLM"],
    model_types: &["gemma2"],
    gguf: Some("gemma2"),
    names: &NAMES,
    storage: Storage::NORMS_LACK_ONE,
    head_beside: None,
    config,
};

const NAMES: Names =
    Names { layer: &[names::ATTENTION, names::AROUND_NORMS, names::GATED], outside: names::OUTSIDE };

const DEFAULTS: Defaults = Defaults {
    vocabulary: 256000,
    width: 2304,
    feed_forward: 9216,
    layers: 26,
    heads: 8,
    kv_heads: Some(4),
    head_dim: Some(256),
    context_length: 8192,
    tied_head: true,
    ..Defaults::COMMON
};
const THETA: f64 = 10000.0;
const DEFAULT_WINDOW: usize = 4096;
const DEFAULT_SCORE_WIDTH: f64 = 256.0;

const WINDOW: Key = key("sliding_window", "attention.sliding_window");
const SCORE_WIDTH: Key = json_key("query_pre_attn_scalar");
const SCORE_CAP: Key = key("attn_logit_softcapping", "attn_logit_softcapping");
const LOGIT_CAP: Key = key("final_logit_softcapping", "final_logit_softcapping");

/// GGUF doesn't say how scores are scaled; the one size that differs is known by its layers.
const LAYERS_OF_27B: usize = 46;

fn config(keys: &Keys<'_>) -> Result<ModelConfig, ModelError> {
    let shape = Shape::read(keys, &DEFAULTS)?;
    keys.expect_text(json_key("hidden_activation"), &["gelu_pytorch_tanh"])?;
    keys.expect_off(json_key("use_bidirectional_attention"))?;
    let rope = one_rope(keys, shape.rope(THETA))?;
    let window = keys.count(WINDOW, CONTEXT_MAX)?.unwrap_or(DEFAULT_WINDOW) as u32;
    let slides = listed(keys, shape.layers)?;
    let slides = slides.unwrap_or_else(|| (0..shape.layers).map(|layer| layer.is_multiple_of(2)).collect());
    let (scale, soft_cap) = (scale(keys, &shape)?, cap(keys, SCORE_CAP, 50.0)?);
    let biased = keys.flag(json_key("attention_bias"))?.unwrap_or(false);
    let bias = AttentionBias { query_key_value: biased, output: biased };
    let layer = |layer: usize| {
        let window = slides[layer].then_some(window);
        let attention = AttentionConfig { window, scale, soft_cap, bias, ..shape.attention(layer) };
        let feed_forward = shape.gated(layer, Activation::GeluTanh, false);
        LayerConfig {
            norms: LayerNorms::Around,
            ..LayerConfig::plain(Mixer::Attention(attention), feed_forward)
        }
    };
    Ok(ModelConfig {
        embedding_scale: Some((shape.width as f64).sqrt() as f32),
        logit_soft_cap: cap(keys, LOGIT_CAP, 30.0)?,
        ropes: vec![rope],
        layers: (0..shape.layers).map(layer).collect(),
        ..shape.config()
    })
}

/// `null` in config.json means none, absence in either file the default.
fn cap(keys: &Keys<'_>, key: Key, default: f64) -> Result<Option<f32>, ModelError> {
    if keys.is_null(key) {
        return Ok(None);
    }
    Ok(Some(keys.positive(key)?.unwrap_or(default) as f32))
}

fn scale(keys: &Keys<'_>, shape: &Shape) -> Result<f32, ModelError> {
    let width = match keys.positive(SCORE_WIDTH)? {
        Some(width) => width,
        None if keys.is_json() => DEFAULT_SCORE_WIDTH,
        None if shape.layers == LAYERS_OF_27B => shape.width as f64 / shape.heads[0] as f64,
        None => shape.head_dim as f64,
    };
    Ok(width.powf(-0.5) as f32)
}
