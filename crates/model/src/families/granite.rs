//! Granite: embedding, scores, branches and logits are multiplied by constants.
//!
//! Source: the configuration and model `granite` of transformers.

use super::{Family, Storage};
use crate::ModelError;
use crate::config::{Activation, AttentionBias, AttentionConfig, LayerConfig, Mixer, ModelConfig};
use crate::keys::{Key, Keys, json_key, key};
use crate::names;
use crate::rope::one_rope;
use crate::shape::{Defaults, Shape};

pub(super) const FAMILY: Family = Family {
    name: "granite",
    architectures: &["GraniteForCausalLM"],
    model_types: &["granite"],
    gguf: Some("granite"),
    names: &names::PLAIN,
    storage: Storage::GGUF_INTERLEAVED,
    head_beside: None,
    config,
};

const THETA: f64 = 10000.0;
const EMBEDDING: Key = key("embedding_multiplier", "embedding_scale");
const SCORES: Key = key("attention_multiplier", "attention.scale");
const BRANCHES: Key = key("residual_multiplier", "residual_scale");
/// Logits are divided by it.
const LOGITS: Key = key("logits_scaling", "logit_scale");

fn config(keys: &Keys<'_>) -> Result<ModelConfig, ModelError> {
    let shape = Shape::read(keys, &Defaults::COMMON)?;
    keys.expect_text(json_key("hidden_act"), &["silu", "swish"])?;
    keys.expect_off(key("num_local_experts", "expert_count"))?;
    let rope = one_rope(keys, shape.rope(THETA))?;
    let factor = |key| Ok::<_, ModelError>(keys.positive(key)?.map(|factor| factor as f32));
    let plain = shape.attention(0).scale;
    let scale = factor(SCORES)?.unwrap_or(if keys.is_json() { 1.0 } else { plain });
    let residual_scale = factor(BRANCHES)?.filter(|factor| *factor != 1.0);
    let bias = AttentionBias {
        query_key_value: keys.bias("attention_bias", "blk.0.attn_q.bias")?,
        output: keys.bias("attention_bias", "blk.0.attn_output.bias")?,
    };
    let feed_forward_bias = keys.bias("mlp_bias", "blk.0.ffn_gate.bias")?;
    let layer = |layer| {
        let attention = AttentionConfig { bias, scale, ..shape.attention(layer) };
        let feed_forward = shape.gated(layer, Activation::Silu, feed_forward_bias);
        LayerConfig { residual_scale, ..LayerConfig::plain(Mixer::Attention(attention), feed_forward) }
    };
    Ok(ModelConfig {
        embedding_scale: factor(EMBEDDING)?.filter(|factor| *factor != 1.0),
        logit_scale: factor(LOGITS)?.filter(|factor| *factor != 1.0).map(|factor| 1.0 / factor),
        ropes: vec![rope],
        layers: (0..shape.layers).map(layer).collect(),
        ..shape.config()
    })
}
