//! Qwen3, the mixtures: the dense model's attention, experts in most layers, no shared expert.
//!
//! Source: the configuration and model `qwen3_moe` of transformers.

use super::mixtures::{self, MixtureDefaults};
use super::windows::every_layer;
use super::{Family, Storage};
use crate::ModelError;
use crate::config::{AttentionBias, AttentionConfig, LayerConfig, Mixer, ModelConfig, QueryKeyNorm};
use crate::keys::{Keys, json_key};
use crate::names;
use crate::rope::one_rope;
use crate::shape::{Defaults, Shape};

pub(super) const FAMILY: Family = Family {
    name: "qwen3_moe",
    architectures: &["Qwen3MoeForCausalLM"],
    model_types: &["qwen3_moe"],
    gguf: Some("qwen3moe"),
    names: &names::PLAIN,
    storage: Storage::PLAIN,
    head_beside: None,
    config,
};

const DEFAULTS: Defaults = Defaults {
    vocabulary: 151936,
    width: 2048,
    feed_forward: 6144,
    layers: 24,
    kv_heads: Some(4),
    context_length: 32768,
    ..Defaults::COMMON
};
const MIXTURE: MixtureDefaults = MixtureDefaults {
    experts: 128,
    top_k: 8,
    width: 768,
    shared_width: None,
    renormalise: false,
    gguf_renormalises: true,
};
const THETA: f64 = 10000.0;

fn config(keys: &Keys<'_>) -> Result<ModelConfig, ModelError> {
    let shape = Shape::read(keys, &DEFAULTS)?;
    keys.expect_text(json_key("hidden_act"), &["silu", "swish"])?;
    let rope = one_rope(keys, shape.rope(THETA))?;
    let bias = AttentionBias {
        query_key_value: keys.bias("attention_bias", "blk.0.attn_q.bias")?,
        output: keys.bias("attention_bias", "blk.0.attn_output.bias")?,
    };
    let experts = mixtures::mixture(keys, mixtures::EXPERTS, &MIXTURE)?;
    let feed_forwards = mixtures::feed_forwards(keys, &shape, experts)?;
    let window = every_layer(keys, &shape)?;
    let attention = |layer: usize| AttentionConfig {
        window,
        bias,
        query_key_norm: QueryKeyNorm::Head,
        ..shape.attention(layer)
    };
    let layers = feed_forwards
        .into_iter()
        .enumerate()
        .map(|(layer, feed_forward)| LayerConfig::plain(Mixer::Attention(attention(layer)), feed_forward));
    Ok(ModelConfig { ropes: vec![rope], layers: layers.collect(), ..shape.config() })
}
