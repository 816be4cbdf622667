//! GLM-4, the dense models: norms around each branch, half of a head rotated, in interleaved pairs.
//!
//! Source: the configuration and model `glm4` of transformers.

use super::{Family, Storage};
use crate::ModelError;
use crate::config::{
    Activation, AttentionBias, AttentionConfig, LayerConfig, LayerNorms, Mixer, ModelConfig,
};
use crate::keys::{Keys, json_key};
use crate::names::{self, NameRow, Names, row};
use crate::rope::{RopeDefaults, Rotated, one_rope};
use crate::shape::{Defaults, Shape};

pub(super) const FAMILY: Family = Family {
    name: "glm4",
    architectures: &["Glm4ForCausalLM"],
    model_types: &["glm4"],
    gguf: Some("glm4"),
    names: &NAMES,
    storage: Storage { gguf_interleaves_rope: true, hugging_face_interleaves_rope: true, ..Storage::PLAIN },
    head_beside: None,
    config,
};

const NAMES: Names =
    Names { layer: &[names::ATTENTION, AROUND, names::FUSED_GATED], outside: names::OUTSIDE };

const AROUND: &[NameRow] = &[
    row("attention.post_norm", "post_self_attn_layernorm", "post_attention_norm"),
    row("feed_forward.norm", "post_attention_layernorm", "ffn_norm"),
    row("feed_forward.post_norm", "post_mlp_layernorm", "post_ffw_norm"),
];

const DEFAULTS: Defaults = Defaults {
    vocabulary: 151552,
    feed_forward: 13696,
    layers: 40,
    kv_heads: Some(2),
    head_dim: Some(128),
    context_length: 131072,
    epsilon: 1.5625e-7,
    ..Defaults::COMMON
};
const THETA: f64 = 10000.0;
const ROTATED_PART: f64 = 0.5;

fn config(keys: &Keys<'_>) -> Result<ModelConfig, ModelError> {
    let shape = Shape::read(keys, &DEFAULTS)?;
    keys.expect_text(json_key("hidden_act"), &["silu", "swish"])?;
    let rope = RopeDefaults { rotated: Rotated::Part(ROTATED_PART), ..shape.rope(THETA) };
    let rope = one_rope(keys, rope)?;
    let query_key_value = match keys.is_json() {
        true => keys.flag(json_key("attention_bias"))?.unwrap_or(true),
        false => keys.bias("attention_bias", "blk.0.attn_q.bias")?,
    };
    let bias = AttentionBias { query_key_value, output: false };
    let layer = |layer| {
        let attention = AttentionConfig { bias, ..shape.attention(layer) };
        let feed_forward = shape.gated(layer, Activation::Silu, false);
        LayerConfig {
            norms: LayerNorms::Around,
            ..LayerConfig::plain(Mixer::Attention(attention), feed_forward)
        }
    };
    Ok(ModelConfig { ropes: vec![rope], layers: (0..shape.layers).map(layer).collect(), ..shape.config() })
}
