//! Mixtures of experts as the keys of many families describe them.

use crate::ModelError;
use crate::config::{Activation, ExpertsConfig, FeedForward, GatedConfig, SharedExpertConfig};
use crate::keys::{Key, Keys, json_key, key};
use crate::limits::{EXPERTS_MAX, LAYERS_MAX, WIDTH_MAX};
use crate::shape::Shape;

pub(super) const EXPERTS: Key = key("num_experts", "expert_count");
/// The same in configs of older design.
pub(super) const LOCAL_EXPERTS: Key = key("num_local_experts", "expert_count");
const TOP_K: Key = key("num_experts_per_tok", "expert_used_count");
const WIDTH: Key = key("moe_intermediate_size", "expert_feed_forward_length");
const SHARED_WIDTH: Key = key("shared_expert_intermediate_size", "expert_shared_feed_forward_length");
const RENORMALISE: Key = key("norm_topk_prob", "expert_weights_norm");
const SPARSE_STEP: Key = json_key("decoder_sparse_step");
const DENSE_LAYERS: Key = json_key("mlp_only_layers");

/// What config.json means by leaving keys out.
pub(super) struct MixtureDefaults {
    pub(super) experts: usize,
    pub(super) top_k: usize,
    pub(super) width: usize,
    /// The shared expert's; none where the family has none.
    pub(super) shared_width: Option<usize>,
    pub(super) renormalise: bool,
    /// What GGUF means by leaving the key out.
    pub(super) gguf_renormalises: bool,
}

/// The mixture of a family that names the number of its experts by `count`.
pub(super) fn mixture(
    keys: &Keys<'_>,
    count: Key,
    defaults: &MixtureDefaults,
) -> Result<ExpertsConfig, ModelError> {
    let experts = keys.count_or(count, defaults.experts, EXPERTS_MAX)?;
    let top_k = keys.count_or(TOP_K, defaults.top_k, EXPERTS_MAX)?;
    if top_k > experts {
        return Err(keys.wrong(TOP_K, top_k, format!("at most the {experts} experts")));
    }
    let gated = |width| GatedConfig { width, activation: Activation::Silu, bias: false };
    let shared = match defaults.shared_width {
        Some(width) => {
            Some(SharedExpertConfig { expert: gated(keys.count_or(SHARED_WIDTH, width, WIDTH_MAX)?) })
        }
        None => None,
    };
    let default = if keys.is_json() { defaults.renormalise } else { defaults.gguf_renormalises };
    let width = keys.count_or(WIDTH, defaults.width, WIDTH_MAX)?;
    let renormalise = keys.flag(RENORMALISE)?.unwrap_or(default);
    Ok(ExpertsConfig { experts, top_k, expert: gated(width), renormalise, router_bias: false, shared })
}

/// The feed-forward of each layer, where config.json may leave some dense.
pub(super) fn feed_forwards(
    keys: &Keys<'_>,
    shape: &Shape,
    experts: ExpertsConfig,
) -> Result<Vec<FeedForward>, ModelError> {
    let step = keys.count(SPARSE_STEP, LAYERS_MAX)?.unwrap_or(1);
    let dense = keys.list(DENSE_LAYERS, LAYERS_MAX)?.unwrap_or_default();
    let layer = |layer: usize| match (layer + 1).is_multiple_of(step) && !dense.contains(&layer) {
        true => FeedForward::Experts(experts),
        false => shape.gated(layer, Activation::Silu, false),
    };
    Ok((0..shape.layers).map(layer).collect())
}
