//! Gemma 3, the text model: four norms a layer, scaled embeddings, most layers within a window, and two ropes.
//!
//! Source: the configurations and models `gemma3` and `gemma3_text` of transformers. Files of the larger models
//! nest the text model's keys under `text_config` and leave out those that equal the defaults. The embedding's
//! scale is the float32 square root, as everything here computes in float32.

use super::windows::listed;
use super::{Family, Storage};
use crate::ModelError;
use crate::config::{
    Activation, AttentionBias, AttentionConfig, LayerConfig, LayerNorms, Mixer, ModelConfig, QueryKeyNorm,
    RopeIndex,
};
use crate::keys::{Key, Keys, gguf_key, json_key, key};
use crate::limits::{CONTEXT_MAX, LAYERS_MAX};
use crate::names::{self, Names};
use crate::rope::{LayerRope, nested_rope};
use crate::shape::{Defaults, Shape};

pub(super) const FAMILY: Family = Family {
    name: "gemma3",
    architectures: &["Gemma3ForCausalLM", "Gemma3ForConditionalGeneration"],
    model_types: &["gemma3_text", "gemma3"],
    gguf: Some("gemma3"),
    names: &NAMES,
    storage: Storage::NORMS_LACK_ONE,
    head_beside: None,
    config,
};

/// The embedding model, whose rows see each other in both directions.
pub(super) const EMBEDDING: Family = Family {
    name: "gemma3_embedding",
    architectures: &["Gemma3TextModel"],
    model_types: &[],
    gguf: Some("gemma-embedding"),
    config: embedding_config,
    ..FAMILY
};

const NAMES: Names =
    Names { layer: &[names::ATTENTION, names::AROUND_NORMS, names::GATED], outside: names::OUTSIDE };

const DEFAULTS: Defaults = Defaults {
    vocabulary: 262208,
    width: 2304,
    feed_forward: 9216,
    layers: 26,
    heads: 8,
    kv_heads: Some(4),
    head_dim: Some(256),
    context_length: 131072,
    tied_head: true,
    epsilon: 1e-6,
};

const DEFAULT_SCORE_WIDTH: f64 = 256.0;
const DEFAULT_WINDOW: usize = 4096;
const DEFAULT_PERIOD: usize = 6;

/// Every so many layers one sees all tokens; older files have the number, GGUF a number or a list.
const PERIOD: Key = key("sliding_window_pattern", "attention.sliding_window_pattern");
const BIDIRECTIONAL: Key = json_key("use_bidirectional_attention");
const WINDOW: Key = key("sliding_window", "attention.sliding_window");
const SCORE_WIDTH: Key = json_key("query_pre_attn_scalar");
const LOGIT_CAP: Key = key("final_logit_softcapping", "final_logit_softcapping");
/// The reference reads it and then doesn't compute it, so that a model with it has no one meaning.
const SCORE_CAP: Key = key("attn_logit_softcapping", "attn_logit_softcapping");

/// GGUF doesn't say how scores are scaled; the one size that differs is known by its layers.
const LAYERS_OF_27B: usize = 62;

const FULL: RopeIndex = RopeIndex(0);
const SLIDING: RopeIndex = RopeIndex(1);
const FULL_ROPE: LayerRope =
    LayerRope { kind: "full_attention", theta: key("rope_theta", "rope.freq_base"), scaled: true };
const SLIDING_ROPE: LayerRope = LayerRope {
    kind: "sliding_attention",
    theta: key("rope_local_base_freq", "rope.freq_base_swa"),
    scaled: false,
};

fn embedding_config(keys: &Keys<'_>) -> Result<ModelConfig, ModelError> {
    if keys.is_json() && keys.flag(BIDIRECTIONAL)? != Some(true) {
        return Err(keys.missing(BIDIRECTIONAL, "true, as the model without a head embeds whole texts"));
    }
    let mut config = read(keys)?;
    for layer in &mut config.layers {
        let Mixer::Attention(attention) = &mut layer.mixer else { continue };
        attention.bidirectional = true;
        // The file's number is for both sides together; here a window ends before it.
        attention.window = attention.window.map(|window| window / 2 + 1);
    }
    Ok(config)
}

fn config(outer: &Keys<'_>) -> Result<ModelConfig, ModelError> {
    outer.expect_off(BIDIRECTIONAL)?;
    read(outer)
}

fn read(outer: &Keys<'_>) -> Result<ModelConfig, ModelError> {
    let nested = outer.object("text_config")?;
    let keys = nested.as_ref().unwrap_or(outer);
    let shape = Shape::read_nested(outer, keys, &DEFAULTS)?;
    keys.expect_text(json_key("hidden_activation"), &["gelu_pytorch_tanh"])?;
    keys.expect_off(SCORE_CAP)?;
    let rope = |theta| shape.rope(theta);
    let full = nested_rope(keys, &FULL_ROPE, rope(1_000_000.0))?;
    let sliding = nested_rope(keys, &SLIDING_ROPE, rope(10_000.0))?;
    let window = window(keys)?;
    let slides = slides(keys, shape.layers)?;
    let scale = scale(keys, &shape)?;
    let biased = keys.flag(json_key("attention_bias"))?.unwrap_or(false);
    let bias = AttentionBias { query_key_value: biased, output: biased };
    let attention = |layer: usize| AttentionConfig {
        rope: Some(if slides[layer] { SLIDING } else { FULL }),
        window: slides[layer].then_some(window),
        query_key_norm: QueryKeyNorm::Head,
        scale,
        bias,
        ..shape.attention(layer)
    };
    let layer = |layer| LayerConfig {
        mixer: Mixer::Attention(attention(layer)),
        feed_forward: shape.gated(layer, Activation::GeluTanh, false),
        norms: LayerNorms::Around,
        residual_scale: None,
    };
    Ok(ModelConfig {
        embedding_scale: Some((shape.width as f64).sqrt() as f32),
        logit_soft_cap: keys.positive(LOGIT_CAP)?.map(|cap| cap as f32),
        ropes: vec![full, sliding],
        layers: (0..shape.layers).map(layer).collect(),
        ..shape.config()
    })
}

fn window(keys: &Keys<'_>) -> Result<u32, ModelError> {
    if keys.is_null(WINDOW) {
        return Err(keys.wrong(WINDOW, "null", "a number of tokens"));
    }
    keys.count_or(WINDOW, DEFAULT_WINDOW, CONTEXT_MAX).map(|tokens| tokens as u32)
}

/// Whether each layer sees a window only.
fn slides(keys: &Keys<'_>, layers: usize) -> Result<Vec<bool>, ModelError> {
    if let Some(listed) = listed(keys, layers)? {
        return Ok(listed);
    }
    if let Some(flags) = keys.flags(gguf_key("attention.sliding_window_pattern"))? {
        if flags.len() == layers {
            return Ok(flags.to_vec());
        }
        let found = format!("a list of {}", flags.len());
        return Err(keys.wrong(PERIOD, found, format!("one flag for each of {layers} layers")));
    }
    let period = keys.count(PERIOD, LAYERS_MAX)?.unwrap_or(DEFAULT_PERIOD);
    Ok((1..=layers).map(|layer| !layer.is_multiple_of(period)).collect())
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
