//! Qwen1.5 and Qwen2, the mixtures: the dense model's attention, experts and a shared one whose gate is a sigmoid.
//!
//! Source: the configuration and model `qwen2_moe` of transformers.

use super::mixtures::{self, MixtureDefaults};
use super::windows::alternate_layers;
use super::{Family, Storage};
use crate::ModelError;
use crate::config::{AttentionBias, AttentionConfig, LayerConfig, Mixer, ModelConfig};
use crate::keys::{Keys, json_key};
use crate::names;
use crate::rope::one_rope;
use crate::shape::{Defaults, Shape};

pub(super) const FAMILY: Family = Family {
    name: "qwen2_moe",
    architectures: &["Qwen2MoeForCausalLM"],
    model_types: &["qwen2_moe"],
    gguf: Some("qwen2moe"),
    names: &names::PLAIN,
    storage: Storage::PLAIN,
    head_beside: None,
    config,
};

const DEFAULTS: Defaults = Defaults {
    vocabulary: 151936,
    width: 2048,
    feed_forward: 5632,
    layers: 24,
    heads: 16,
    kv_heads: Some(16),
    context_length: 32768,
    ..Defaults::COMMON
};
const MIXTURE: MixtureDefaults = MixtureDefaults {
    experts: 60,
    top_k: 4,
    width: 1408,
    shared_width: Some(5632),
    renormalise: false,
    gguf_renormalises: false,
};
const THETA: f64 = 10000.0;

fn config(keys: &Keys<'_>) -> Result<ModelConfig, ModelError> {
    let shape = Shape::read(keys, &DEFAULTS)?;
    keys.expect_text(json_key("hidden_act"), &["silu", "swish"])?;
    let rope = one_rope(keys, shape.rope(THETA))?;
    let experts = mixtures::mixture(keys, mixtures::EXPERTS, &MIXTURE)?;
    let feed_forwards = mixtures::feed_forwards(keys, &shape, experts)?;
    let query_key_value = match keys.is_json() {
        true => keys.flag(json_key("qkv_bias"))?.unwrap_or(true),
        false => true,
    };
    let bias = AttentionBias { query_key_value, output: false };
    let windows = alternate_layers(keys, &shape)?;
    let attention = |layer: usize| AttentionConfig { window: windows[layer], bias, ..shape.attention(layer) };
    let layers = feed_forwards
        .into_iter()
        .enumerate()
        .map(|(layer, feed_forward)| LayerConfig::plain(Mixer::Attention(attention(layer)), feed_forward));
    Ok(ModelConfig { ropes: vec![rope], layers: layers.collect(), ..shape.config() })
}
