//! SmolLM3: every fourth layer has no rope.
//!
//! Source: the configuration and model `smollm3` of transformers.

use super::{Family, Storage};
use crate::ModelError;
use crate::config::{Activation, AttentionBias, AttentionConfig, LayerConfig, Mixer, ModelConfig, RopeIndex};
use crate::keys::{Key, Keys, json_key};
use crate::limits::LAYERS_MAX;
use crate::names;
use crate::rope::one_rope;
use crate::shape::{Defaults, Shape};

pub(super) const FAMILY: Family = Family {
    name: "smollm3",
    architectures: &["SmolLM3ForCausalLM"],
    model_types: &["smollm3"],
    gguf: Some("smollm3"),
    names: &names::PLAIN,
    storage: Storage::GGUF_INTERLEAVED,
    head_beside: None,
    config,
};

const DEFAULTS: Defaults = Defaults {
    vocabulary: 128256,
    width: 2048,
    layers: 36,
    heads: 16,
    kv_heads: Some(4),
    context_length: 32768,
    tied_head: true,
    ..Defaults::COMMON
};
const THETA: f64 = 2_000_000.0;

/// 1 for a layer with a rope, 0 for one without.
const WITH_ROPE: Key = json_key("no_rope_layers");
/// Of so many layers the last has no rope; GGUF always means 4.
const INTERVAL: Key = json_key("no_rope_layer_interval");
const DEFAULT_INTERVAL: usize = 4;

fn config(keys: &Keys<'_>) -> Result<ModelConfig, ModelError> {
    let shape = Shape::read(keys, &DEFAULTS)?;
    keys.expect_text(json_key("hidden_act"), &["silu", "swish"])?;
    keys.expect_off(json_key("use_sliding_window"))?;
    let rope = one_rope(keys, shape.rope(THETA))?;
    let bias = AttentionBias {
        query_key_value: keys.bias("attention_bias", "blk.0.attn_q.bias")?,
        output: keys.bias("attention_bias", "blk.0.attn_output.bias")?,
    };
    let feed_forward_bias = keys.bias("mlp_bias", "blk.0.ffn_gate.bias")?;
    let with_rope = with_rope(keys, shape.layers)?;
    let layer = |layer: usize| {
        let rope = with_rope[layer].then_some(RopeIndex(0));
        let attention = AttentionConfig { bias, rope, ..shape.attention(layer) };
        LayerConfig::plain(
            Mixer::Attention(attention),
            shape.gated(layer, Activation::Silu, feed_forward_bias),
        )
    };
    Ok(ModelConfig { ropes: vec![rope], layers: (0..shape.layers).map(layer).collect(), ..shape.config() })
}

fn with_rope(keys: &Keys<'_>, layers: usize) -> Result<Vec<bool>, ModelError> {
    if let Some(listed) = keys.list(WITH_ROPE, 1)? {
        let enough = listed.get(..layers).ok_or_else(|| {
            keys.wrong(
                WITH_ROPE,
                format!("a list of {}", listed.len()),
                format!("0 or 1 for each of {layers} layers"),
            )
        })?;
        return Ok(enough.iter().map(|with_rope| *with_rope == 1).collect());
    }
    let interval = keys.count(INTERVAL, LAYERS_MAX)?.unwrap_or(DEFAULT_INTERVAL);
    Ok((1..=layers).map(|layer| !layer.is_multiple_of(interval)).collect())
}
