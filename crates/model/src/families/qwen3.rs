//! Qwen3, the dense models: queries and keys are normed a head.
//!
//! Source: the configuration and model `qwen3` of transformers.

use super::windows::upper_layers;
use super::{Family, Storage};
use crate::ModelError;
use crate::config::{
    Activation, AttentionBias, AttentionConfig, LayerConfig, Mixer, ModelConfig, QueryKeyNorm,
};
use crate::keys::{Keys, json_key};
use crate::names;
use crate::rope::one_rope;
use crate::shape::{Defaults, Shape};

pub(super) const FAMILY: Family = Family {
    name: "qwen3",
    architectures: &["Qwen3ForCausalLM"],
    model_types: &["qwen3"],
    gguf: Some("qwen3"),
    names: &names::PLAIN,
    storage: Storage::PLAIN,
    head_beside: None,
    config,
};

const DEFAULTS: Defaults = Defaults {
    vocabulary: 151936,
    width: 4096,
    feed_forward: 22016,
    layers: 32,
    heads: 32,
    kv_heads: Some(32),
    head_dim: Some(128),
    context_length: 32768,
    tied_head: false,
    epsilon: 1e-6,
};

const THETA: f64 = 10000.0;

fn config(keys: &Keys<'_>) -> Result<ModelConfig, ModelError> {
    let shape = Shape::read(keys, &DEFAULTS)?;
    keys.expect_text(json_key("hidden_act"), &["silu", "swish"])?;
    let rope = one_rope(keys, shape.rope(THETA))?;
    let windows = upper_layers(keys, &shape)?;
    let bias = AttentionBias {
        query_key_value: keys.bias("attention_bias", "blk.0.attn_q.bias")?,
        output: keys.bias("attention_bias", "blk.0.attn_output.bias")?,
    };
    let attention = |layer| {
        let window: Option<u32> = windows[layer];
        AttentionConfig { window, bias, query_key_norm: QueryKeyNorm::Head, ..shape.attention(layer) }
    };
    let layer = |layer| {
        LayerConfig::plain(Mixer::Attention(attention(layer)), shape.gated(layer, Activation::Silu, false))
    };
    Ok(ModelConfig { ropes: vec![rope], layers: (0..shape.layers).map(layer).collect(), ..shape.config() })
}
