//! Qwen2 and Qwen2.5: biases on queries, keys and values.
//!
//! Source: the configuration and model `qwen2` of transformers.

use super::windows::upper_layers;
use super::{Family, Storage};
use crate::ModelError;
use crate::config::{Activation, AttentionBias, AttentionConfig, LayerConfig, Mixer, ModelConfig};
use crate::keys::{Keys, json_key};
use crate::names;
use crate::rope::one_rope;
use crate::shape::{Defaults, Shape};

pub(super) const FAMILY: Family = Family {
    name: "qwen2",
    architectures: &["Qwen2ForCausalLM"],
    model_types: &["qwen2"],
    gguf: Some("qwen2"),
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
    head_dim: None,
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
    let bias = AttentionBias { query_key_value: true, output: false };
    let attention = |layer: usize| AttentionConfig { window: windows[layer], bias, ..shape.attention(layer) };
    let layer = |layer| {
        LayerConfig::plain(Mixer::Attention(attention(layer)), shape.gated(layer, Activation::Silu, false))
    };
    Ok(ModelConfig { ropes: vec![rope], layers: (0..shape.layers).map(layer).collect(), ..shape.config() })
}
