//! Mixtral: Mistral's attention and, in every layer, experts in place of one feed-forward.
//!
//! Source: the configuration and model `mixtral` of transformers. GGUF has no architecture of its own for it.

use super::mixtures::LOCAL_EXPERTS;
use super::{Family, Storage};
use crate::ModelError;
use crate::config::{
    Activation, AttentionConfig, ExpertsConfig, FeedForward, GatedConfig, LayerConfig, Mixer, ModelConfig,
};
use crate::keys::{Key, Keys, json_key, key};
use crate::limits::{CONTEXT_MAX, EXPERTS_MAX};
use crate::names::{self, Form, NameRow, Names, row, stored};
use crate::rope::one_rope;
use crate::shape::{Defaults, Shape};

pub(super) const FAMILY: Family = Family {
    name: "mixtral",
    architectures: &["MixtralForCausalLM"],
    model_types: &["mixtral"],
    gguf: None,
    names: &NAMES,
    storage: Storage::PLAIN,
    head_beside: None,
    config,
};

const NAMES: Names = Names {
    layer: &[names::ATTENTION, names::PRE_NORM, OLD_EXPERTS, names::EXPERTS],
    outside: names::OUTSIDE,
};

/// The names that hub checkpoints have.
const OLD_EXPERTS: &[NameRow] = &[
    row("feed_forward.router", "block_sparse_moe.gate", ""),
    stored("feed_forward.experts.gate", "block_sparse_moe.experts.{}.w1", "", Form::EachExpert),
    stored("feed_forward.experts.up", "block_sparse_moe.experts.{}.w3", "", Form::EachExpert),
    stored("feed_forward.experts.down", "block_sparse_moe.experts.{}.w2", "", Form::EachExpert),
];

const DEFAULTS: Defaults = Defaults {
    feed_forward: 14336,
    kv_heads: Some(8),
    context_length: 4096 * 32,
    epsilon: 1e-5,
    ..Defaults::COMMON
};
const THETA: f64 = 1_000_000.0;
const TOP_K: Key = key("num_experts_per_tok", "expert_used_count");
const WINDOW: Key = json_key("sliding_window");

fn config(keys: &Keys<'_>) -> Result<ModelConfig, ModelError> {
    let shape = Shape::read(keys, &DEFAULTS)?;
    keys.expect_text(json_key("hidden_act"), &["silu", "swish"])?;
    let rope = one_rope(keys, shape.rope(THETA))?;
    let window = keys.count(WINDOW, CONTEXT_MAX)?.map(|tokens| tokens as u32);
    let experts = mixture(keys, &shape)?;
    let layer = |layer| {
        let attention = AttentionConfig { window, ..shape.attention(layer) };
        LayerConfig::plain(Mixer::Attention(attention), FeedForward::Experts(experts))
    };
    Ok(ModelConfig { ropes: vec![rope], layers: (0..shape.layers).map(layer).collect(), ..shape.config() })
}

/// Experts as wide as the feed-forward that they stand for.
pub(super) fn mixture(keys: &Keys<'_>, shape: &Shape) -> Result<ExpertsConfig, ModelError> {
    let experts = keys.count_or(LOCAL_EXPERTS, 8, EXPERTS_MAX)?;
    let top_k = keys.count_or(TOP_K, 2, EXPERTS_MAX)?;
    if top_k > experts {
        return Err(keys.wrong(TOP_K, top_k, format!("at most the {experts} experts")));
    }
    let expert = GatedConfig { width: shape.feed_forward[0], activation: Activation::Silu, bias: false };
    Ok(ExpertsConfig { experts, top_k, expert, renormalise: true, router_bias: false, shared: None })
}
