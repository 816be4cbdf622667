//! Phi-3 and Phi-4: queries, keys and values are one projection, gate and up another; some rotate a part of a head.
//!
//! Source: the configuration and model `phi3` of transformers.

use super::{Family, Storage};
use crate::ModelError;
use crate::config::{Activation, AttentionConfig, LayerConfig, Mixer, ModelConfig};
use crate::keys::{Key, Keys, json_key, key};
use crate::limits::CONTEXT_MAX;
use crate::names::{self, Names};
use crate::rope::{RopeDefaults, Rotated, one_rope};
use crate::shape::{Defaults, Shape};

pub(super) const FAMILY: Family = Family {
    name: "phi3",
    architectures: &["Phi3ForCausalLM"],
    model_types: &["phi3"],
    gguf: Some("phi3"),
    names: &NAMES,
    storage: Storage::PLAIN,
    head_beside: None,
    config,
};

const NAMES: Names =
    Names { layer: &[names::ATTENTION, names::PRE_NORM, names::FUSED_GATED], outside: names::OUTSIDE };

const DEFAULTS: Defaults = Defaults {
    vocabulary: 32064,
    width: 3072,
    feed_forward: 8192,
    context_length: 4096,
    epsilon: 1e-5,
    ..Defaults::COMMON
};
const THETA: f64 = 10000.0;
const WINDOW: Key = key("sliding_window", "attention.sliding_window");

fn config(keys: &Keys<'_>) -> Result<ModelConfig, ModelError> {
    let shape = Shape::read(keys, &DEFAULTS)?;
    keys.expect_text(json_key("hidden_act"), &["silu", "swish"])?;
    let rope = RopeDefaults { rotated: Rotated::Part(1.0), old_longrope_names: true, ..shape.rope(THETA) };
    let rope = one_rope(keys, rope)?;
    let window = keys.count(WINDOW, CONTEXT_MAX)?.map(|tokens| tokens as u32);
    let layer = |layer| {
        let attention = AttentionConfig { window, ..shape.attention(layer) };
        LayerConfig::plain(Mixer::Attention(attention), shape.gated(layer, Activation::Silu, false))
    };
    Ok(ModelConfig { ropes: vec![rope], layers: (0..shape.layers).map(layer).collect(), ..shape.config() })
}
