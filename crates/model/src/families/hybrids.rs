//! What the hybrids of gated delta rules and gated attention have in common: their keys and their layers.

use crate::ModelError;
use crate::config::{
    AttentionConfig, DeltaNetConfig, FeedForward, LayerConfig, Mixer, ModelConfig, QueryKeyNorm,
};
use crate::keys::{Key, Keys, gguf_key, json_key, key};
use crate::limits::{HEAD_DIM_MAX, HEADS_MAX, KERNEL_MAX, LAYERS_MAX, WIDTH_MAX};
use crate::names::{self, NameRow, Names, row};
use crate::rope::{RopeDefaults, Rotated, one_rope};
use crate::shape::Shape;
use gannet_ops::HeadMap;

/// The names of a hybrid's layers.
pub(super) const NAMES: Names = Names {
    layer: &[names::DELTA, names::ATTENTION, SECOND_NORM, names::GATED, names::EXPERTS],
    outside: names::OUTSIDE,
};

const SECOND_NORM: &[NameRow] =
    &[row("feed_forward.norm", "post_attention_layernorm", "post_attention_norm")];

const KERNEL: Key = key("linear_conv_kernel_dim", "ssm.conv_kernel");
const KEY_DIM: Key = key("linear_key_head_dim", "ssm.state_size");
const KEY_HEADS: Key = key("linear_num_key_heads", "ssm.group_count");
const VALUE_HEADS: Key = key("linear_num_value_heads", "ssm.time_step_rank");
const VALUE_DIM: Key = json_key("linear_value_head_dim");
const VALUE_WIDTH: Key = gguf_key("ssm.inner_size");

const LAYER_TYPES: Key = json_key("layer_types");
const RECURRENT_LAYERS: Key = gguf_key("attention.recurrent_layers");
const INTERVAL: Key = key("full_attention_interval", "full_attention_interval");
const DEFAULT_INTERVAL: usize = 4;

const ROTATED_PART: f64 = 0.25;
const THETA: f64 = 10000.0;

/// The model of these sizes and feed-forwards; `gguf_heads` is the order of value heads in GGUF.
pub(super) fn config(
    keys: &Keys<'_>,
    shape: &Shape,
    feed_forwards: Vec<FeedForward>,
    gguf_heads: HeadMap,
) -> Result<ModelConfig, ModelError> {
    keys.expect_text(json_key("hidden_act"), &["silu", "swish"])?;
    keys.expect_text(json_key("output_gate_type"), &["silu", "swish"])?;
    keys.expect_off(json_key("attention_bias"))?;
    keys.expect_off(json_key("layer_scale"))?;
    if keys.flag(OUTPUT_GATE)? == Some(false) {
        return Err(keys.wrong(OUTPUT_GATE, false, "true, as attention without a gate is another model"));
    }
    let rope = RopeDefaults { rotated: Rotated::Part(ROTATED_PART), ..shape.rope(THETA) };
    let rope = one_rope(keys, rope)?;
    let head_map = if keys.is_json() { HeadMap::Grouped } else { gguf_heads };
    let delta = delta(keys, head_map)?;
    let recurrent = recurrent(keys, shape.layers)?;
    let mixer = |layer: usize| match recurrent[layer] {
        true => Mixer::GatedDeltaNet(delta),
        false => Mixer::Attention(AttentionConfig {
            query_key_norm: QueryKeyNorm::Head,
            output_gate: true,
            ..shape.attention(layer)
        }),
    };
    let layers = feed_forwards.into_iter().enumerate();
    let layers = layers.map(|(layer, feed_forward)| LayerConfig::plain(mixer(layer), feed_forward));
    Ok(ModelConfig { ropes: vec![rope], layers: layers.collect(), ..shape.config() })
}

const OUTPUT_GATE: Key = json_key("attn_output_gate");

fn delta(keys: &Keys<'_>, head_map: HeadMap) -> Result<DeltaNetConfig, ModelError> {
    let key_heads = keys.count_or(KEY_HEADS, 16, HEADS_MAX)?;
    let value_heads = keys.count_or(VALUE_HEADS, 32, HEADS_MAX)?;
    if !value_heads.is_multiple_of(key_heads) {
        let expected = format!("a multiple of the {key_heads} key heads");
        return Err(keys.wrong(VALUE_HEADS, value_heads, expected));
    }
    let key_dim = keys.count_or(KEY_DIM, 128, HEAD_DIM_MAX)?;
    let value_dim = value_dim(keys, value_heads)?;
    let kernel = keys.count_or(KERNEL, 4, KERNEL_MAX)?;
    let delta = DeltaNetConfig { key_heads, value_heads, key_dim, value_dim, kernel, head_map };
    if delta.channels() > WIDTH_MAX {
        let expected = format!("at most {WIDTH_MAX}");
        return Err(keys.wrong_size("the channels of the convolution", delta.channels(), expected));
    }
    Ok(delta)
}

fn value_dim(keys: &Keys<'_>, value_heads: usize) -> Result<usize, ModelError> {
    if keys.is_json() {
        return keys.count_or(VALUE_DIM, 128, HEAD_DIM_MAX);
    }
    let width = keys.count_or(VALUE_WIDTH, 0, WIDTH_MAX)?;
    if width.is_multiple_of(value_heads) {
        return Ok(width / value_heads);
    }
    Err(keys.wrong(VALUE_WIDTH, width, format!("a multiple of the {value_heads} value heads")))
}

/// Whether each layer is a delta rule: listed, or all but every so manieth.
fn recurrent(keys: &Keys<'_>, layers: usize) -> Result<Vec<bool>, ModelError> {
    if let Some(types) = keys.texts(LAYER_TYPES)? {
        if types.len() != layers {
            let found = format!("a list of {}", types.len());
            return Err(keys.wrong(LAYER_TYPES, found, format!("one kind for each of {layers} layers")));
        }
        let is_recurrent = types.into_iter().map(|kind| match kind {
            "linear_attention" => Ok(true),
            "full_attention" => Ok(false),
            other => {
                let expected = "`linear_attention` or `full_attention`";
                Err(keys.wrong(LAYER_TYPES, format!("a list with `{other}`"), expected))
            }
        });
        return is_recurrent.collect();
    }
    if let Some(flags) = keys.flags(RECURRENT_LAYERS)? {
        // Blocks of a head that predicts further tokens are counted as well.
        return match flags.get(..layers) {
            Some(flags) => Ok(flags.to_vec()),
            None => {
                let found = format!("a list of {}", flags.len());
                Err(keys.wrong(RECURRENT_LAYERS, found, format!("one flag for each of {layers} layers")))
            }
        };
    }
    keys.expect_off(RECURRENT_LAYERS)?;
    let interval = keys.count(INTERVAL, LAYERS_MAX)?.unwrap_or(DEFAULT_INTERVAL);
    Ok((1..=layers).map(|layer| !layer.is_multiple_of(interval)).collect())
}
