//! The sizes that every decoder states, read once for all families: layers, widths, heads, vocabulary.
//!
//! A family brings the defaults that its reference has for absent keys of config.json.

use crate::ModelError;
use crate::config::{
    Activation, AttentionBias, AttentionConfig, FeedForward, GatedConfig, ModelConfig, QueryKeyNorm,
    RopeIndex,
};
use crate::keys::{Key, Keys, gguf_key, json_key, key};
use crate::limits::{CONTEXT_MAX, HEAD_DIM_MAX, HEADS_MAX, LAYERS_MAX, VOCABULARY_MAX, WIDTH_MAX};
use crate::names;
use crate::rope::{RopeDefaults, Rotated};
use gannet_formats::Source;
use gannet_formats::gguf::Value;

const LAYERS: Key = key("num_hidden_layers", "block_count");
/// Layers beyond those of the model, in GGUF.
pub(crate) const NEXT_TOKEN_LAYERS: Key = gguf_key("nextn_predict_layers");
const WIDTH: Key = key("hidden_size", "embedding_length");
const FEED_FORWARD: Key = key("intermediate_size", "feed_forward_length");
const HEADS: Key = key("num_attention_heads", "attention.head_count");
const KV_HEADS: Key = key("num_key_value_heads", "attention.head_count_kv");
const HEAD_DIM: Key = key("head_dim", "attention.key_length");
const VALUE_DIM: Key = key("head_dim", "attention.value_length");
const CONTEXT: Key = key("max_position_embeddings", "context_length");
const EPSILON: Key = key("rms_norm_eps", "attention.layer_norm_rms_epsilon");
const VOCABULARY: Key = json_key("vocab_size");
const TIED: Key = json_key("tie_word_embeddings");

/// What config.json means by leaving a key out.
pub(crate) struct Defaults {
    pub(crate) vocabulary: usize,
    pub(crate) width: usize,
    /// 0 where no layer has a dense feed-forward.
    pub(crate) feed_forward: usize,
    pub(crate) layers: usize,
    pub(crate) heads: usize,
    /// As many as query heads where absent.
    pub(crate) kv_heads: Option<usize>,
    /// The width divided among the heads where absent.
    pub(crate) head_dim: Option<usize>,
    pub(crate) context_length: usize,
    pub(crate) tied_head: bool,
    /// Added to the mean square in norms.
    pub(crate) epsilon: f64,
}

impl Defaults {
    /// What most families share, to be overridden.
    pub(crate) const COMMON: Self = Self {
        vocabulary: 32000,
        width: 4096,
        feed_forward: 11008,
        layers: 32,
        heads: 32,
        kv_heads: None,
        head_dim: None,
        context_length: 2048,
        tied_head: false,
        epsilon: 1e-6,
    };
}

/// The sizes of a decoder.
pub(crate) struct Shape {
    pub(crate) vocabulary: usize,
    pub(crate) width: usize,
    pub(crate) layers: usize,
    /// Elements between the projections, a layer.
    pub(crate) feed_forward: Vec<usize>,
    /// Query heads, a layer.
    pub(crate) heads: Vec<usize>,
    /// Heads of keys and values, a layer.
    pub(crate) kv_heads: Vec<usize>,
    pub(crate) head_dim: usize,
    pub(crate) value_dim: usize,
    pub(crate) context_length: usize,
    pub(crate) epsilon: f32,
    pub(crate) tied_head: bool,
}

impl Shape {
    /// Reads the sizes and checks each against its limit and against the others.
    pub(crate) fn read(keys: &Keys<'_>, defaults: &Defaults) -> Result<Self, ModelError> {
        Self::read_nested(keys, keys, defaults)
    }

    /// The same for a text model whose keys lie in an object of a larger model's, which says whether the head is
    /// tied.
    pub(crate) fn read_nested(
        outer: &Keys<'_>,
        keys: &Keys<'_>,
        defaults: &Defaults,
    ) -> Result<Self, ModelError> {
        let layers = layers(keys, defaults)?;
        let width = keys.count_or(WIDTH, defaults.width, WIDTH_MAX)?;
        let heads = per_layer(keys, HEADS, layers, defaults.heads, HEADS_MAX)?;
        let kv_heads = kv_heads(keys, &heads, defaults)?;
        let head_dim = head_dim(keys, width, &heads, defaults)?;
        let value_dim = keys.count(VALUE_DIM, HEAD_DIM_MAX)?.unwrap_or(head_dim);
        let shape = Self {
            vocabulary: vocabulary(keys, defaults)?,
            width,
            layers,
            feed_forward: feed_forward(keys, layers, defaults)?,
            heads,
            kv_heads,
            head_dim,
            value_dim,
            context_length: keys.count_or(CONTEXT, defaults.context_length, CONTEXT_MAX)?,
            epsilon: epsilon(keys, defaults)?,
            tied_head: tied_head(outer, keys, defaults)?,
        };
        shape.check(keys)?;
        Ok(shape)
    }

    fn check(&self, keys: &Keys<'_>) -> Result<(), ModelError> {
        for (&heads, &kv_heads) in self.heads.iter().zip(&self.kv_heads) {
            if heads % kv_heads != 0 {
                return Err(keys.wrong(KV_HEADS, kv_heads, format!("a divisor of the {heads} query heads")));
            }
            let widest = heads * self.head_dim.max(self.value_dim);
            if widest > WIDTH_MAX {
                let expected = format!("at most {WIDTH_MAX}");
                return Err(keys.wrong_size("the width of all heads together", widest, expected));
            }
        }
        if !self.head_dim.is_multiple_of(2) {
            return Err(keys.wrong(HEAD_DIM, self.head_dim, "an even number, as the rope rotates pairs"));
        }
        Ok(())
    }

    /// A config of these sizes, to which a family adds its ropes and layers.
    pub(crate) fn config(&self) -> ModelConfig {
        ModelConfig {
            vocabulary: self.vocabulary,
            width: self.width,
            context_length: self.context_length,
            norm_epsilon: self.epsilon,
            embedding_scale: None,
            logit_scale: None,
            logit_soft_cap: None,
            tied_head: self.tied_head,
            ropes: Vec::new(),
            layers: Vec::new(),
            pooling: None,
        }
    }

    /// What the sizes say about a rope of whole heads.
    pub(crate) fn rope(&self, theta: f64) -> RopeDefaults {
        let (head_dim, context_length) = (self.head_dim, self.context_length);
        RopeDefaults {
            head_dim,
            rotated: Rotated::Whole,
            context_length,
            theta,
            yarn_truncates: true,
            old_longrope_names: false,
            yarn_log_multiplier: false,
        }
    }

    /// Plain causal attention of a layer, rotated by the first rope.
    pub(crate) fn attention(&self, layer: usize) -> AttentionConfig {
        AttentionConfig {
            heads: self.heads[layer],
            kv_heads: self.kv_heads[layer],
            head_dim: self.head_dim,
            value_dim: self.value_dim,
            rope: Some(RopeIndex(0)),
            scale: (self.head_dim as f64).powf(-0.5) as f32,
            window: None,
            query_key_norm: QueryKeyNorm::Absent,
            output_gate: false,
            sinks: false,
            soft_cap: None,
            position_scale: None,
            bidirectional: false,
            bias: AttentionBias::default(),
        }
    }

    /// The gated feed-forward of a layer.
    pub(crate) fn gated(&self, layer: usize, activation: Activation, bias: bool) -> FeedForward {
        FeedForward::Gated(GatedConfig { width: self.feed_forward[layer], activation, bias })
    }
}

/// GGUF counts the layers of a head that predicts further tokens among the blocks.
fn layers(keys: &Keys<'_>, defaults: &Defaults) -> Result<usize, ModelError> {
    let blocks = keys.count_or(LAYERS, defaults.layers, LAYERS_MAX)?;
    let beside = keys.number(NEXT_TOKEN_LAYERS)?.unwrap_or(0.0) as usize;
    if beside < blocks {
        return Ok(blocks - beside);
    }
    Err(keys.wrong(NEXT_TOKEN_LAYERS, beside, format!("fewer than the {blocks} blocks")))
}

fn feed_forward(keys: &Keys<'_>, layers: usize, defaults: &Defaults) -> Result<Vec<usize>, ModelError> {
    if defaults.feed_forward == 0 {
        return Ok(vec![0; layers]);
    }
    per_layer(keys, FEED_FORWARD, layers, defaults.feed_forward, WIDTH_MAX)
}

/// A number a layer; config.json may leave it out, GGUF may not.
fn per_layer(
    keys: &Keys<'_>,
    key: Key,
    layers: usize,
    default: usize,
    max: usize,
) -> Result<Vec<usize>, ModelError> {
    match keys.counts(key, layers, max)? {
        Some(counts) => Ok(counts),
        None => keys.count_or(key, default, max).map(|count| vec![count; layers]),
    }
}

fn kv_heads(keys: &Keys<'_>, heads: &[usize], defaults: &Defaults) -> Result<Vec<usize>, ModelError> {
    if let Some(counts) = keys.counts(KV_HEADS, heads.len(), HEADS_MAX)? {
        return Ok(counts);
    }
    match defaults.kv_heads {
        Some(count) if keys.is_json() && !keys.is_null(KV_HEADS) => Ok(vec![count; heads.len()]),
        Some(_) | None => Ok(heads.to_vec()),
    }
}

fn head_dim(
    keys: &Keys<'_>,
    width: usize,
    heads: &[usize],
    defaults: &Defaults,
) -> Result<usize, ModelError> {
    if let Some(head_dim) = keys.count(HEAD_DIM, HEAD_DIM_MAX)? {
        return Ok(head_dim);
    }
    if let (Some(head_dim), true) = (defaults.head_dim, keys.is_json()) {
        return Ok(head_dim);
    }
    match heads {
        [first, rest @ ..] if width.is_multiple_of(*first) && rest.iter().all(|heads| heads == first) => {
            Ok(width / first)
        }
        _ => {
            Err(keys.missing(HEAD_DIM, format!("it, as the width {width} can't be divided among the heads")))
        }
    }
}

/// GGUF may cut the embedding to the tokenizer's vocabulary, so that its rows are what counts.
fn vocabulary(keys: &Keys<'_>, defaults: &Defaults) -> Result<usize, ModelError> {
    if keys.is_json() {
        return keys.count_or(VOCABULARY, defaults.vocabulary, VOCABULARY_MAX);
    }
    let embedding = keys.tensor(names::GGUF_EMBEDDING)?;
    let rows = match embedding.and_then(|tensor| tensor.shape.first().copied()) {
        Some(rows) => rows,
        // Drafters share their target's, and its tokenizer comes with them.
        None => tokenizer_tokens(keys),
    };
    if (1..=VOCABULARY_MAX).contains(&rows) {
        return Ok(rows);
    }
    let what = format!("the number of rows of the tensor `{}`", names::GGUF_EMBEDDING);
    Err(keys.wrong_size(&what, rows, format!("1 to {VOCABULARY_MAX}")))
}

/// Entries of the tokenizer in GGUF metadata.
fn tokenizer_tokens(keys: &Keys<'_>) -> usize {
    let tokens = match &keys.checkpoint().source {
        Source::Gguf(metadata) => metadata.get("tokenizer.ggml.tokens"),
        Source::HuggingFace(_) => None,
    };
    match tokens {
        Some(Value::Array(tokens)) => tokens.len(),
        Some(_) | None => 0,
    }
}

fn epsilon(keys: &Keys<'_>, defaults: &Defaults) -> Result<f32, ModelError> {
    match keys.positive(EPSILON)? {
        Some(epsilon) if epsilon < 1.0 => Ok(epsilon as f32),
        Some(epsilon) => Err(keys.wrong(EPSILON, epsilon, "a number between 0 and 1")),
        None if keys.is_json() => Ok(defaults.epsilon as f32),
        None => Err(keys.missing(EPSILON, "a number between 0 and 1")),
    }
}

/// Where nothing is said, a checkpoint without a head has a tied one.
fn tied_head(outer: &Keys<'_>, keys: &Keys<'_>, defaults: &Defaults) -> Result<bool, ModelError> {
    let stated = match outer.flag(TIED)? {
        Some(stated) => Some(stated),
        None => keys.flag(TIED)?,
    };
    let has_head = names::has_head(keys.checkpoint());
    Ok(stated.unwrap_or(!has_head || (keys.is_json() && defaults.tied_head)))
}
