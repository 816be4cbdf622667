//! OLMo-2: branches are normed after themselves and not before, queries and keys over all heads together.
//!
//! Source: the configuration and model `olmo2` of transformers.

use super::{Family, Storage};
use crate::ModelError;
use crate::config::{
    Activation, AttentionBias, AttentionConfig, LayerConfig, LayerNorms, Mixer, ModelConfig, QueryKeyNorm,
};
use crate::keys::{Keys, gguf_key, json_key};
use crate::names::{self, NameRow, Names, row};
use crate::rope::one_rope;
use crate::shape::{Defaults, Shape};

pub(super) const FAMILY: Family = Family {
    name: "olmo2",
    architectures: &["Olmo2ForCausalLM"],
    model_types: &["olmo2"],
    gguf: Some("olmo2"),
    names: &NAMES,
    storage: Storage::PLAIN,
    head_beside: None,
    config,
};

const NAMES: Names = Names { layer: &[names::ATTENTION, AFTER, names::GATED], outside: names::OUTSIDE };

const AFTER: &[NameRow] = &[
    row("attention.post_norm", "post_attention_layernorm", "post_attention_norm"),
    row("feed_forward.post_norm", "post_feedforward_layernorm", "post_ffw_norm"),
];

const DEFAULTS: Defaults = Defaults { vocabulary: 50304, epsilon: 1e-5, ..Defaults::COMMON };
const THETA: f64 = 10000.0;

fn config(keys: &Keys<'_>) -> Result<ModelConfig, ModelError> {
    let shape = Shape::read(keys, &DEFAULTS)?;
    keys.expect_text(json_key("hidden_act"), &["silu", "swish"])?;
    keys.expect_off(gguf_key("attention.sliding_window"))?;
    let rope = one_rope(keys, shape.rope(THETA))?;
    let bias = AttentionBias {
        query_key_value: keys.bias("attention_bias", "blk.0.attn_q.bias")?,
        output: keys.bias("attention_bias", "blk.0.attn_output.bias")?,
    };
    let layer = |layer| {
        let attention =
            AttentionConfig { bias, query_key_norm: QueryKeyNorm::Whole, ..shape.attention(layer) };
        let feed_forward = shape.gated(layer, Activation::Silu, false);
        LayerConfig {
            norms: LayerNorms::After,
            ..LayerConfig::plain(Mixer::Attention(attention), feed_forward)
        }
    };
    Ok(ModelConfig { ropes: vec![rope], layers: (0..shape.layers).map(layer).collect(), ..shape.config() })
}
