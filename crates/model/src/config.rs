//! What a forward pass needs to know of a model, whatever family and file it comes from.
//!
//! A family fills a [`ModelConfig`]; `blocks` turn it into ops. Every field here is read by a block: a property
//! that no block computes has no field, and a family that meets it in a file refuses the file.

use crate::rope::RopeConfig;
use gannet_ops::{HeadMap, PoolKind};

/// A decoder: embedding, layers, norm, head.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelConfig {
    /// Entries of the vocabulary; rows of the embedding and of the head.
    pub vocabulary: usize,
    /// Elements of a hidden state.
    pub width: usize,
    /// Tokens that the model was made for.
    pub context_length: usize,
    /// Added to the mean square in every norm.
    pub norm_epsilon: f32,
    /// Multiplies the embedding.
    pub embedding_scale: Option<f32>,
    /// Multiplies the scores.
    pub logit_scale: Option<f32>,
    /// Scores s become `cap * tanh(s / cap)`.
    pub logit_soft_cap: Option<f32>,
    /// The head is the embedding.
    pub tied_head: bool,
    /// Rotary embeddings that layers name.
    pub ropes: Vec<RopeConfig>,
    /// The layers, in order.
    pub layers: Vec<LayerConfig>,
    /// The model gives a vector a sequence, and no scores.
    pub pooling: Option<PoolingConfig>,
}

/// How the hidden states of a sequence become its vector: pooled, projected, brought to unit length.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolingConfig {
    /// Which rows count.
    pub kind: PoolKind,
    /// The widths that projections take the pooled vector to, in order; none has a bias.
    pub projections: Vec<usize>,
}

/// One layer: `x + mixer(norm(x))`, then `x + feed_forward(norm(x))`.
#[derive(Clone, Debug, PartialEq)]
pub struct LayerConfig {
    /// How it moves information between positions.
    pub mixer: Mixer,
    /// How it transforms each position.
    pub feed_forward: FeedForward,
    /// Where the norms of a branch stand.
    pub norms: LayerNorms,
    /// Multiplies each branch before it is added.
    pub residual_scale: Option<f32>,
}

impl LayerConfig {
    /// A layer with a norm before each half and nothing else.
    pub fn plain(mixer: Mixer, feed_forward: FeedForward) -> Self {
        Self { mixer, feed_forward, norms: LayerNorms::Before, residual_scale: None }
    }
}

/// Where the norms of a layer's branches stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LayerNorms {
    /// Before the mixer and before the feed-forward.
    Before,
    /// After each, before it is added.
    After,
    /// Before and after each.
    Around,
}

/// How a layer moves information between positions.
#[derive(Clone, Debug, PartialEq)]
pub enum Mixer {
    /// Softmax attention over keys and values.
    Attention(AttentionConfig),
    /// A matrix a head, which each token decays and corrects.
    GatedDeltaNet(DeltaNetConfig),
}

/// Softmax attention with grouped heads.
#[derive(Clone, Debug, PartialEq)]
pub struct AttentionConfig {
    /// Query heads.
    pub heads: usize,
    /// Heads of keys and values; divides `heads`.
    pub kv_heads: usize,
    /// Elements of a query or key head.
    pub head_dim: usize,
    /// Elements of a value head.
    pub value_dim: usize,
    /// Where positions enter, if they do.
    pub rope: Option<RopeIndex>,
    /// Multiplies the scores.
    pub scale: f32,
    /// Keys that a row sees, itself included; all before it where absent.
    pub window: Option<u32>,
    /// How queries and keys are normed, before the rope.
    pub query_key_norm: QueryKeyNorm,
    /// Each query head brings a gate, whose sigmoid multiplies what the head attended to.
    pub output_gate: bool,
    /// Each head has a score without a value.
    pub sinks: bool,
    /// Scores s become `cap * tanh(s / cap)`.
    pub soft_cap: Option<f32>,
    /// A row sees the rows after it as well; the window then reaches to both sides.
    pub bidirectional: bool,
    /// Queries grow with their position, after the rope.
    pub position_scale: Option<PositionScale>,
    /// Which projections have a bias.
    pub bias: AttentionBias,
}

/// A factor of `1 + slope * ln(1 + floor(position / period))`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PositionScale {
    /// How fast it grows.
    pub slope: f32,
    /// Positions of one factor.
    pub period: u32,
}

/// How queries and keys are normed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueryKeyNorm {
    /// Not at all.
    Absent,
    /// Each head by one weight for all.
    Head,
    /// All heads together.
    Whole,
}

/// A gated delta rule over convolved projections (arXiv 2412.06464).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeltaNetConfig {
    /// Heads of queries and keys; divides `value_heads`.
    pub key_heads: usize,
    /// Heads of values, each with a matrix.
    pub value_heads: usize,
    /// Elements of a query or key head.
    pub key_dim: usize,
    /// Elements of a value head.
    pub value_dim: usize,
    /// Taps of the convolution.
    pub kernel: usize,
    /// Which key head a value head reads, in the order in which the checkpoint stores them.
    pub head_map: HeadMap,
}

/// Which projections of an attention have a bias.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AttentionBias {
    /// Queries, keys and values.
    pub query_key_value: bool,
    /// The output.
    pub output: bool,
}

/// A place in [`ModelConfig::ropes`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RopeIndex(pub usize);

/// How a layer transforms each position.
#[derive(Clone, Debug, PartialEq)]
pub enum FeedForward {
    /// `down(activation(gate(x)) * up(x))`.
    Gated(GatedConfig),
    /// Of many such, each token goes through a few.
    Experts(ExpertsConfig),
}

/// The sizes of a gated feed-forward.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GatedConfig {
    /// Elements between the projections.
    pub width: usize,
    /// What the gate goes through.
    pub activation: Activation,
    /// All three projections have a bias.
    pub bias: bool,
}

/// A mixture of gated feed-forwards.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ExpertsConfig {
    /// How many there are.
    pub experts: usize,
    /// How many a token goes through.
    pub top_k: usize,
    /// The sizes of each.
    pub expert: GatedConfig,
    /// The chosen experts' weights are divided by their sum.
    pub renormalise: bool,
    /// The router has a bias.
    pub router_bias: bool,
    /// One that every token goes through.
    pub shared: Option<SharedExpertConfig>,
}

/// The expert that every token goes through, weighed by the sigmoid of a projection to one number.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SharedExpertConfig {
    /// Its sizes.
    pub expert: GatedConfig,
}

/// What the gate of a feed-forward goes through.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Activation {
    /// `x * sigmoid(x)`.
    Silu,
    /// The Gaussian error unit by its tanh approximation.
    GeluTanh,
    /// `g * sigmoid(alpha * g) * (up + 1)`, with g at most and up within `limit`.
    Clamped {
        /// The slope of the sigmoid.
        alpha: f32,
        /// The bound.
        limit: f32,
    },
}

impl ModelConfig {
    /// Whether a prompt may come in pieces: no row reads one that comes after it.
    pub fn takes_chunks(&self) -> bool {
        let sees_ahead = |layer: &LayerConfig| match &layer.mixer {
            Mixer::Attention(attention) => attention.bidirectional,
            Mixer::GatedDeltaNet(_) => false,
        };
        let reads_all = self.pooling.as_ref().is_some_and(|pooling| pooling.kind != PoolKind::Last);
        !reads_all && !self.layers.iter().any(sees_ahead)
    }
}

impl DeltaNetConfig {
    /// Elements of all query heads, and of all key heads.
    pub fn key_width(&self) -> usize {
        self.key_heads * self.key_dim
    }

    /// Elements of all value heads.
    pub fn value_width(&self) -> usize {
        self.value_heads * self.value_dim
    }

    /// Channels of the convolution: queries, keys and values.
    pub fn channels(&self) -> usize {
        2 * self.key_width() + self.value_width()
    }
}

impl AttentionConfig {
    /// Rows of the query projection: all query heads, each with its gate where there is one.
    pub fn query_rows(&self) -> usize {
        let parts = if self.output_gate { 2 } else { 1 };
        parts * self.query_width()
    }

    /// Elements of all query heads.
    pub fn query_width(&self) -> usize {
        self.heads * self.head_dim
    }

    /// Elements of all key heads.
    pub fn key_width(&self) -> usize {
        self.kv_heads * self.head_dim
    }

    /// Elements of all value heads.
    pub fn value_width(&self) -> usize {
        self.kv_heads * self.value_dim
    }
}
