//! Qwen3.5, which 3.6 and 3.8 are as well: hybrids of gated delta rules and gated attention, dense or of experts.
//!
//! Source: the configurations and models `qwen3_5` and `qwen3_5_moe` of transformers. Checkpoints that see images nest
//! the text model's keys under `text_config`; text positions are the same on all three axes of their rope, so that it
//! is a plain one.

use super::mixtures::{self, MixtureDefaults};
use super::{Family, Storage, hybrids, multi_token};
use crate::ModelError;
use crate::config::{Activation, FeedForward, ModelConfig};
use crate::keys::Keys;
use crate::shape::{Defaults, Shape};
use gannet_ops::HeadMap;

pub(super) const DENSE: Family = Family {
    name: "qwen3_5",
    architectures: &["Qwen3_5ForConditionalGeneration", "Qwen3_5ForCausalLM"],
    model_types: &["qwen3_5", "qwen3_5_text"],
    gguf: Some("qwen35"),
    names: &hybrids::NAMES,
    storage: Storage::NORMS_LACK_ONE,
    head_beside: Some(&multi_token::NAMES),
    config: dense,
};

pub(super) const EXPERTS: Family = Family {
    name: "qwen3_5_moe",
    architectures: &["Qwen3_5MoeForConditionalGeneration", "Qwen3_5MoeForCausalLM"],
    model_types: &["qwen3_5_moe", "qwen3_5_moe_text"],
    gguf: Some("qwen35moe"),
    config: experts,
    ..DENSE
};

const DENSE_DEFAULTS: Defaults = Defaults {
    vocabulary: 248320,
    feed_forward: 12288,
    heads: 16,
    kv_heads: Some(4),
    head_dim: Some(256),
    context_length: 32768,
    ..Defaults::COMMON
};
const EXPERTS_DEFAULTS: Defaults =
    Defaults { width: 2048, feed_forward: 0, layers: 40, kv_heads: Some(2), ..DENSE_DEFAULTS };
const MIXTURE: MixtureDefaults = MixtureDefaults {
    experts: 256,
    top_k: 8,
    width: 512,
    shared_width: Some(512),
    renormalise: true,
    gguf_renormalises: true,
};

fn dense(outer: &Keys<'_>) -> Result<ModelConfig, ModelError> {
    let nested = outer.object("text_config")?;
    let keys = nested.as_ref().unwrap_or(outer);
    let shape = Shape::read_nested(outer, keys, &DENSE_DEFAULTS)?;
    let feed_forwards = (0..shape.layers).map(|layer| shape.gated(layer, Activation::Silu, false)).collect();
    hybrids::config(keys, &shape, feed_forwards, HeadMap::Tiled)
}

fn experts(outer: &Keys<'_>) -> Result<ModelConfig, ModelError> {
    let nested = outer.object("text_config")?;
    let keys = nested.as_ref().unwrap_or(outer);
    let shape = Shape::read_nested(outer, keys, &EXPERTS_DEFAULTS)?;
    let experts = mixtures::mixture(keys, mixtures::EXPERTS, &MIXTURE)?;
    hybrids::config(keys, &shape, vec![FeedForward::Experts(experts); shape.layers], HeadMap::Tiled)
}
