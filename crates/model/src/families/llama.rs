//! Llama 2 and 3, SmolLM2 and distilled models of the same design.
//!
//! Source: the configuration and model `llama` of transformers. GGUF has the same architecture for other families that
//! differ in a window or in experts.

use super::{Family, Storage, mixtral};
use crate::ModelError;
use crate::config::{
    Activation, AttentionBias, AttentionConfig, ExpertsConfig, FeedForward, LayerConfig, Mixer, ModelConfig,
};
use crate::keys::{Key, Keys, gguf_key, json_key, key};
use crate::limits::CONTEXT_MAX;
use crate::names;
use crate::rope::one_rope;
use crate::shape::{Defaults, Shape};

pub(super) const FAMILY: Family = Family {
    name: "llama",
    architectures: &["LlamaForCausalLM"],
    model_types: &["llama"],
    gguf: Some("llama"),
    names: &names::PLAIN,
    storage: Storage::GGUF_INTERLEAVED,
    head_beside: None,
    config,
};

const THETA: f64 = 10000.0;
const ACTIVATION: Key = json_key("hidden_act");
const WINDOW: Key = gguf_key("attention.sliding_window");

fn config(keys: &Keys<'_>) -> Result<ModelConfig, ModelError> {
    let shape = Shape::read(keys, &Defaults::COMMON)?;
    keys.expect_text(ACTIVATION, &["silu", "swish"])?;
    keys.expect_off(json_key("layer_types"))?;
    let mixture = mixture(keys, &shape)?;
    let rope = one_rope(keys, shape.rope(THETA))?;
    let window = window(keys)?;
    let bias = AttentionBias {
        query_key_value: keys.bias("attention_bias", "blk.0.attn_q.bias")?,
        output: keys.bias("attention_bias", "blk.0.attn_output.bias")?,
    };
    let feed_forward_bias = keys.bias("mlp_bias", "blk.0.ffn_gate.bias")?;
    let feed_forward = |layer| match mixture {
        Some(experts) => FeedForward::Experts(experts),
        None => shape.gated(layer, Activation::Silu, feed_forward_bias),
    };
    let layer = |layer| {
        let attention = AttentionConfig { window, bias, ..shape.attention(layer) };
        LayerConfig::plain(Mixer::Attention(attention), feed_forward(layer))
    };
    Ok(ModelConfig { ropes: vec![rope], layers: (0..shape.layers).map(layer).collect(), ..shape.config() })
}

/// GGUF has the same architecture for the mixtures of this design.
fn mixture(keys: &Keys<'_>, shape: &Shape) -> Result<Option<ExpertsConfig>, ModelError> {
    let count = key("num_local_experts", "expert_count");
    if keys.is_json() || keys.number(count)?.unwrap_or(0.0) == 0.0 {
        keys.expect_off(count)?;
        return Ok(None);
    }
    mixtral::mixture(keys, shape).map(Some)
}

/// Config files may carry the key without meaning; GGUF has it of families that slide and share the architecture.
fn window(keys: &Keys<'_>) -> Result<Option<u32>, ModelError> {
    Ok(keys.count(WINDOW, CONTEXT_MAX)?.map(|tokens| tokens as u32))
}
