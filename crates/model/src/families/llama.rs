//! Llama 2 and 3, SmolLM2, and Mistral, which differs in defaults and in its sliding window.
//!
//! Source: the configurations and models `llama` and `mistral` of transformers; GGUF has `llama` for both.

use super::{Family, Storage};
use crate::ModelError;
use crate::config::{Activation, AttentionBias, AttentionConfig, LayerConfig, Mixer, ModelConfig};
use crate::keys::{Key, Keys, json_key, key};
use crate::limits::CONTEXT_MAX;
use crate::names;
use crate::rope::{RopeDefaults, one_rope};
use crate::shape::{Defaults, Shape};

pub(super) const FAMILY: Family = Family {
    name: "llama",
    architectures: &["LlamaForCausalLM", "MistralForCausalLM"],
    model_types: &["llama", "mistral"],
    gguf: "llama",
    names: &names::PLAIN,
    storage: Storage { gguf_interleaves_rope: true, hugging_face_norms_lack_one: false },
    config,
};

const LLAMA: Defaults = Defaults {
    vocabulary: 32000,
    width: 4096,
    feed_forward: 11008,
    layers: 32,
    heads: 32,
    kv_heads: None,
    head_dim: None,
    context_length: 2048,
    tied_head: false,
};

const MISTRAL: Defaults =
    Defaults { feed_forward: 14336, kv_heads: Some(8), context_length: 4096 * 32, ..LLAMA };
const MISTRAL_WINDOW: usize = 4096;

const THETA: f64 = 10000.0;
const ACTIVATION: Key = json_key("hidden_act");
const WINDOW: Key = key("sliding_window", "attention.sliding_window");

fn config(keys: &Keys<'_>) -> Result<ModelConfig, ModelError> {
    let mistral = is_mistral(keys)?;
    let shape = Shape::read(keys, if mistral { &MISTRAL } else { &LLAMA })?;
    keys.expect_text(ACTIVATION, &["silu", "swish"])?;
    keys.expect_off(json_key("layer_types"))?;
    keys.expect_off(key("num_local_experts", "expert_count"))?;
    let defaults = RopeDefaults { dims: shape.head_dim, context_length: shape.context_length, theta: THETA };
    let rope = one_rope(keys, defaults)?;
    let window = window(keys, mistral)?;
    let bias = AttentionBias {
        query_key_value: keys.bias("attention_bias", "blk.0.attn_q.bias")?,
        output: keys.bias("attention_bias", "blk.0.attn_output.bias")?,
    };
    let feed_forward_bias = keys.bias("mlp_bias", "blk.0.ffn_gate.bias")?;
    let layer = |layer| LayerConfig {
        mixer: Mixer::Attention(AttentionConfig { window, bias, ..shape.attention(layer) }),
        feed_forward: shape.gated(layer, Activation::Silu, feed_forward_bias),
        post_norms: false,
    };
    Ok(ModelConfig { ropes: vec![rope], layers: (0..shape.layers).map(layer).collect(), ..shape.config() })
}

fn is_mistral(keys: &Keys<'_>) -> Result<bool, ModelError> {
    let kind = keys.text(json_key("model_type"))?;
    let architectures = keys.texts(json_key("architectures"))?.unwrap_or_default();
    Ok(kind == Some("mistral") || architectures.first() == Some(&"MistralForCausalLM"))
}

/// Of all layers alike. Files of Llama may carry the key without meaning; those of Mistral mean 4,096 without it.
fn window(keys: &Keys<'_>, mistral: bool) -> Result<Option<u32>, ModelError> {
    if keys.is_json() && !mistral {
        return Ok(None);
    }
    let stated = keys.count(WINDOW, CONTEXT_MAX)?;
    let default = (mistral && !keys.is_null(WINDOW)).then_some(MISTRAL_WINDOW);
    Ok(stated.or(default).map(|tokens| tokens as u32))
}
