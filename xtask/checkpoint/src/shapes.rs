//! The shapes of models that people run, as a table.
//!
//! Source: the config.json of each model; the tests hold the numbers of parameters against those that are published.

use super::tokenizer::{self, Tokenizer};

/// The numbers that make up a model's shape.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    pub name: &'static str,
    pub family: Family,
    pub layers: usize,
    /// Elements of the residual stream.
    pub width: usize,
    /// Of the dense feed-forward, or what config.json says of one that no layer has; 0 where it says nothing.
    pub feed_forward: usize,
    pub heads: usize,
    pub kv_heads: usize,
    pub head_dim: usize,
    pub experts: Option<Experts>,
    pub delta: Option<Delta>,
    /// Rows of the embedding.
    pub vocabulary: usize,
    /// Whether the embedding is the head as well.
    pub tied: bool,
    pub epsilon: f32,
    pub theta: f32,
    /// Tokens.
    pub context: usize,
    pub tokenizer: &'static Tokenizer,
}

/// What differs in names and keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Family {
    Llama,
    Qwen2,
    Qwen2Moe,
    Qwen3,
    Qwen3Moe,
    Qwen35,
    Qwen35Moe,
}

/// A mixture of experts in every layer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Experts {
    pub count: usize,
    pub top_k: usize,
    pub width: usize,
    /// The width of the shared expert.
    pub shared: Option<usize>,
    pub renormalise: bool,
}

/// Gated delta rules in all layers but every fourth.
#[derive(Clone, Copy, Debug)]
pub(super) struct Delta {
    pub key_heads: usize,
    pub value_heads: usize,
}

impl Delta {
    /// Of keys and values.
    pub(super) const HEAD_DIM: usize = 128;
    /// Tokens that the convolution sees.
    pub(super) const KERNEL: usize = 4;
    /// Every so manieth layer is softmax attention.
    pub(super) const INTERVAL: usize = 4;

    pub(super) fn key_width(&self) -> usize {
        self.key_heads * Self::HEAD_DIM
    }

    pub(super) fn value_width(&self) -> usize {
        self.value_heads * Self::HEAD_DIM
    }

    /// The channels of the convolution: queries, keys, values.
    pub(super) fn channels(&self) -> usize {
        2 * self.key_width() + self.value_width()
    }
}

impl Shape {
    /// Whether layer `layer` is a delta rule.
    pub(super) fn is_recurrent(&self, layer: usize) -> bool {
        self.delta.is_some() && !(layer + 1).is_multiple_of(Delta::INTERVAL)
    }

    /// The dimensions of a head that rope turns.
    pub(super) fn rotated(&self) -> usize {
        if self.delta.is_some() { self.head_dim / 4 } else { self.head_dim }
    }
}

/// The shape of this name.
pub(super) fn find(name: &str) -> Result<Shape, String> {
    let known = || SHAPES.map(|shape| shape.name).join(", ");
    SHAPES.into_iter().find(|shape| shape.name == name).ok_or_else(|| format!("known are {}", known()))
}

/// The names, for `--help`.
pub(super) fn help() -> String {
    format!("The model whose shape it has: {}", SHAPES.map(|shape| shape.name).join(", "))
}

const QWEN2: Shape = Shape {
    name: "",
    family: Family::Qwen2,
    layers: 0,
    width: 0,
    feed_forward: 0,
    heads: 0,
    kv_heads: 2,
    head_dim: 128,
    experts: None,
    delta: None,
    vocabulary: 151936,
    tied: true,
    epsilon: 1e-6,
    theta: 1e6,
    context: 32768,
    tokenizer: &tokenizer::QWEN2,
};

const QWEN3: Shape =
    Shape { family: Family::Qwen3, kv_heads: 8, context: 40960, tokenizer: &tokenizer::QWEN3, ..QWEN2 };

const QWEN35: Shape = Shape {
    family: Family::Qwen35,
    head_dim: 256,
    vocabulary: 248320,
    theta: 1e7,
    context: 262144,
    tokenizer: &tokenizer::QWEN35,
    ..QWEN2
};

/// A hybrid with so many value heads.
const fn hybrid(value_heads: usize) -> Option<Delta> {
    Some(Delta { key_heads: 16, value_heads })
}

/// All of them.
pub(super) const SHAPES: [Shape; 15] = [
    Shape { name: "qwen3-0.6b", layers: 28, width: 1024, feed_forward: 3072, heads: 16, ..QWEN3 },
    Shape { name: "qwen3-1.7b", layers: 28, width: 2048, feed_forward: 6144, heads: 16, ..QWEN3 },
    Shape { name: "qwen3-4b", layers: 36, width: 2560, feed_forward: 9728, heads: 32, ..QWEN3 },
    Shape { name: "qwen3-8b", layers: 36, width: 4096, feed_forward: 12288, heads: 32, tied: false, ..QWEN3 },
    Shape {
        name: "qwen3-30b-a3b",
        family: Family::Qwen3Moe,
        layers: 48,
        width: 2048,
        feed_forward: 6144,
        heads: 32,
        kv_heads: 4,
        experts: Some(Experts { count: 128, top_k: 8, width: 768, shared: None, renormalise: true }),
        tied: false,
        ..QWEN3
    },
    Shape {
        name: "qwen1.5-moe-a2.7b",
        family: Family::Qwen2Moe,
        layers: 24,
        width: 2048,
        feed_forward: 5632,
        heads: 16,
        kv_heads: 16,
        experts: Some(Experts { count: 60, top_k: 4, width: 1408, shared: Some(5632), renormalise: false }),
        tied: false,
        context: 8192,
        ..QWEN2
    },
    Shape {
        name: "qwen2.5-0.5b",
        layers: 24,
        width: 896,
        feed_forward: 4864,
        heads: 14,
        head_dim: 64,
        ..QWEN2
    },
    Shape { name: "qwen2.5-1.5b", layers: 28, width: 1536, feed_forward: 8960, heads: 12, ..QWEN2 },
    Shape {
        name: "deepseek-r1-distill-qwen-1.5b",
        layers: 28,
        width: 1536,
        feed_forward: 8960,
        heads: 12,
        tied: false,
        theta: 1e4,
        context: 131072,
        tokenizer: &tokenizer::DEEPSEEK,
        ..QWEN2
    },
    Shape {
        name: "llama-3.1-8b",
        family: Family::Llama,
        layers: 32,
        width: 4096,
        feed_forward: 14336,
        heads: 32,
        kv_heads: 8,
        vocabulary: 128256,
        tied: false,
        epsilon: 1e-5,
        theta: 5e5,
        context: 131072,
        tokenizer: &tokenizer::LLAMA3,
        ..QWEN2
    },
    Shape {
        name: "qwen3.5-0.8b",
        layers: 24,
        width: 1024,
        feed_forward: 3584,
        heads: 8,
        delta: hybrid(16),
        ..QWEN35
    },
    Shape {
        name: "qwen3.5-4b",
        layers: 32,
        width: 2560,
        feed_forward: 9216,
        heads: 16,
        kv_heads: 4,
        delta: hybrid(32),
        ..QWEN35
    },
    Shape {
        name: "qwen3.5-9b",
        layers: 32,
        width: 4096,
        feed_forward: 12288,
        heads: 16,
        kv_heads: 4,
        delta: hybrid(32),
        tied: false,
        ..QWEN35
    },
    Shape {
        name: "qwen3.5-27b",
        layers: 64,
        width: 5120,
        feed_forward: 17408,
        heads: 24,
        kv_heads: 4,
        delta: hybrid(48),
        tied: false,
        ..QWEN35
    },
    Shape {
        name: "qwen3.5-35b-a3b",
        family: Family::Qwen35Moe,
        layers: 40,
        width: 2048,
        heads: 16,
        experts: Some(Experts { count: 256, top_k: 8, width: 512, shared: Some(512), renormalise: true }),
        delta: hybrid(32),
        tied: false,
        ..QWEN35
    },
];
