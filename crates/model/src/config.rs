//! What a forward pass needs to know of a model, whatever family and file it comes from.
//!
//! A family fills a [`ModelConfig`]; `blocks` turn it into ops. Every field here is read by a block: a property
//! that no block computes has no field, and a family that meets it in a file refuses the file.

use crate::rope::RopeConfig;

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
    /// Scores s become `cap * tanh(s / cap)`.
    pub logit_soft_cap: Option<f32>,
    /// The head is the embedding.
    pub tied_head: bool,
    /// Rotary embeddings that layers name.
    pub ropes: Vec<RopeConfig>,
    /// The layers, in order.
    pub layers: Vec<LayerConfig>,
}

/// One layer: `x + mixer(norm(x))`, then `x + feed_forward(norm(x))`.
#[derive(Clone, Debug, PartialEq)]
pub struct LayerConfig {
    /// How it moves information between positions.
    pub mixer: Mixer,
    /// How it transforms each position.
    pub feed_forward: FeedForward,
    /// Each branch is normed once more before it is added.
    pub post_norms: bool,
}

/// How a layer moves information between positions.
#[derive(Clone, Debug, PartialEq)]
pub enum Mixer {
    /// Softmax attention over keys and values.
    Attention(AttentionConfig),
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
    /// Queries and keys are normed a head, before the rope.
    pub query_key_norm: bool,
    /// Which projections have a bias.
    pub bias: AttentionBias,
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
}

/// The sizes of a gated feed-forward.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GatedConfig {
    /// Elements between the projections.
    pub width: usize,
    /// What the gate goes through.
    pub activation: Activation,
    /// All three projections have a bias.
    pub bias: bool,
}

/// A nonlinear function of one element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activation {
    /// `x * sigmoid(x)`.
    Silu,
    /// The Gaussian error unit by its tanh approximation.
    GeluTanh,
}

impl AttentionConfig {
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
