//! gpt-oss: experts with biases and a bounded gate, attention with sinks, every other layer within a window.
//!
//! Source: the configuration and model `gpt_oss` of transformers. Hub checkpoints hold the experts in blocks of 4 bits,
//! or in 16 bits and then transposed; gate and up alternate in either.

use super::mixtures::LOCAL_EXPERTS;
use super::windows::listed;
use super::{Family, Storage};
use crate::ModelError;
use crate::config::{
    Activation, AttentionBias, AttentionConfig, ExpertsConfig, FeedForward, GatedConfig, LayerConfig, Mixer,
    ModelConfig,
};
use crate::keys::{Key, Keys, json_key, key};
use crate::limits::{CONTEXT_MAX, EXPERTS_MAX, WIDTH_MAX};
use crate::names::{self, Form, NameRow, Names, Part, exact, row};
use crate::rope::{RopeDefaults, one_rope};
use crate::shape::{Defaults, Shape};

pub(super) const FAMILY: Family = Family {
    name: "gpt_oss",
    architectures: &["GptOssForCausalLM"],
    model_types: &["gpt_oss"],
    gguf: Some("gpt-oss"),
    names: &NAMES,
    storage: Storage::PLAIN,
    head_beside: None,
    config,
};

const NAMES: Names = Names { layer: &[names::ATTENTION, LAYER], outside: names::OUTSIDE };

const LAYER: &[NameRow] = &[
    exact("attention.sinks.weight", "self_attn.sinks", "attn_sinks.weight", Form::Whole),
    row("feed_forward.norm", "post_attention_layernorm", "post_attention_norm"),
    row("feed_forward.router", "mlp.router", "ffn_gate_inp"),
    row("feed_forward.experts.gate", "", "ffn_gate_exps"),
    row("feed_forward.experts.up", "", "ffn_up_exps"),
    row("feed_forward.experts.down", "", "ffn_down_exps"),
    exact("feed_forward.experts.gate.weight", GATE_UP, "", Form::Transposed(Part::EvenRows)),
    exact("feed_forward.experts.up.weight", GATE_UP, "", Form::Transposed(Part::OddRows)),
    exact("feed_forward.experts.down.weight", "mlp.experts.down_proj", "", Form::Transposed(Part::All)),
    exact("feed_forward.experts.gate.bias", GATE_UP_BIAS, "", Form::Elements(Part::EvenRows)),
    exact("feed_forward.experts.up.bias", GATE_UP_BIAS, "", Form::Elements(Part::OddRows)),
    exact("feed_forward.experts.down.bias", "mlp.experts.down_proj_bias", "", Form::Whole),
];
const GATE_UP: &str = "mlp.experts.gate_up_proj";
const GATE_UP_BIAS: &str = "mlp.experts.gate_up_proj_bias";

const DEFAULTS: Defaults = Defaults {
    vocabulary: 201088,
    width: 2880,
    feed_forward: 2880,
    layers: 36,
    heads: 64,
    kv_heads: Some(8),
    head_dim: Some(64),
    context_length: 131072,
    epsilon: 1e-5,
    ..Defaults::COMMON
};
const THETA: f64 = 150_000.0;
const WINDOW: Key = key("sliding_window", "attention.sliding_window");
const DEFAULT_WINDOW: usize = 128;
const TOP_K: Key = key("num_experts_per_tok", "expert_used_count");
const ALPHA: Key = json_key("swiglu_alpha");
const LIMIT: Key = json_key("swiglu_limit");

fn config(keys: &Keys<'_>) -> Result<ModelConfig, ModelError> {
    let shape = Shape::read(keys, &DEFAULTS)?;
    keys.expect_text(json_key("hidden_act"), &["silu", "swish"])?;
    let rope = one_rope(keys, RopeDefaults { yarn_truncates: false, ..shape.rope(THETA) })?;
    let window = keys.count(WINDOW, CONTEXT_MAX)?.unwrap_or(DEFAULT_WINDOW) as u32;
    let slides = listed(keys, shape.layers)?;
    let slides = slides.unwrap_or_else(|| (0..shape.layers).map(|layer| layer.is_multiple_of(2)).collect());
    let biased = match keys.is_json() {
        true => keys.flag(json_key("attention_bias"))?.unwrap_or(true),
        false => true,
    };
    let bias = AttentionBias { query_key_value: biased, output: biased };
    let experts = FeedForward::Experts(mixture(keys, &shape)?);
    let layer = |layer: usize| {
        let window = slides[layer].then_some(window);
        let attention = AttentionConfig { window, sinks: true, bias, ..shape.attention(layer) };
        LayerConfig::plain(Mixer::Attention(attention), experts.clone())
    };
    Ok(ModelConfig { ropes: vec![rope], layers: (0..shape.layers).map(layer).collect(), ..shape.config() })
}

/// The softmax is over the chosen experts alone, which is the same as to renormalise one over all.
fn mixture(keys: &Keys<'_>, shape: &Shape) -> Result<ExpertsConfig, ModelError> {
    let experts = keys.count_or(LOCAL_EXPERTS, 128, EXPERTS_MAX)?;
    let top_k = keys.count_or(TOP_K, 4, EXPERTS_MAX)?;
    if top_k > experts {
        return Err(keys.wrong(TOP_K, top_k, format!("at most the {experts} experts")));
    }
    let width = keys.count(key("intermediate_size", "expert_feed_forward_length"), WIDTH_MAX)?;
    let activation = Activation::Clamped {
        alpha: keys.positive(ALPHA)?.unwrap_or(1.702) as f32,
        limit: keys.positive(LIMIT)?.unwrap_or(7.0) as f32,
    };
    let expert = GatedConfig { width: width.unwrap_or(shape.feed_forward[0]), activation, bias: true };
    Ok(ExpertsConfig { experts, top_k, expert, renormalise: true, router_bias: true, shared: None })
}
