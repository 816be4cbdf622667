//! Qwen3-Next: a hybrid whose delta-rule projections are stored grouped a key head, with experts.
//!
//! Source: the configuration and model `qwen3_next` of transformers.

use super::mixtures::{self, MixtureDefaults};
use super::{Family, Storage, hybrids, multi_token};
use crate::ModelError;
use crate::config::ModelConfig;
use crate::keys::Keys;
use crate::shape::{Defaults, Shape};
use gannet_ops::HeadMap;

pub(super) const FAMILY: Family = Family {
    name: "qwen3_next",
    architectures: &["Qwen3NextForCausalLM"],
    model_types: &["qwen3_next"],
    gguf: Some("qwen3next"),
    names: &hybrids::NAMES,
    storage: Storage::NORMS_LACK_ONE,
    head_beside: Some(&multi_token::NAMES),
    config,
};

const DEFAULTS: Defaults = Defaults {
    vocabulary: 151936,
    width: 2048,
    feed_forward: 5632,
    layers: 48,
    heads: 16,
    kv_heads: Some(2),
    head_dim: Some(256),
    context_length: 32768,
    ..Defaults::COMMON
};
const MIXTURE: MixtureDefaults = MixtureDefaults {
    experts: 512,
    top_k: 10,
    width: 512,
    shared_width: Some(512),
    renormalise: true,
    gguf_renormalises: true,
};

fn config(keys: &Keys<'_>) -> Result<ModelConfig, ModelError> {
    let shape = Shape::read(keys, &DEFAULTS)?;
    let experts = mixtures::mixture(keys, mixtures::EXPERTS, &MIXTURE)?;
    let feed_forwards = mixtures::feed_forwards(keys, &shape, experts)?;
    hybrids::config(keys, &shape, feed_forwards, HeadMap::Grouped)
}
