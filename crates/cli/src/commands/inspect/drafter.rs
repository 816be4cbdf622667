//! What a drafter is: one that is a checkpoint of its own, or the head beside a model.

use crate::quantity::{self, entry, plural};
use gannet_formats::Checkpoint;
use gannet_model::{Drafter, DrafterKind, FeedForward, Mixer};
use serde::Serialize;

/// A drafter in sizes.
#[derive(Debug, Serialize)]
pub(crate) struct DrafterFacts {
    kind: &'static str,
    layers: usize,
    width: usize,
    heads: usize,
    kv_heads: usize,
    head_dim: usize,
    /// Elements between the projections; null for experts.
    feed_forward: Option<usize>,
    vocabulary: usize,
    /// The target's normed hidden state is read.
    reads_hidden: bool,
    /// The target's stream is read after so many layers.
    reads_after_layers: Vec<usize>,
    /// Tokens of a block, the certain one included; null where drafts are chained.
    block_tokens: Option<usize>,
}

/// A checkpoint that is a drafter and no model.
#[derive(Debug, Serialize)]
pub(crate) struct DrafterInspection {
    path: String,
    drafter: DrafterFacts,
    weight_bytes: u64,
}

impl DrafterFacts {
    pub(crate) fn new(drafter: &Drafter) -> Self {
        let config = &drafter.config;
        let first = config.layers.first();
        let (heads, kv_heads, head_dim) = match first.map(|layer| &layer.mixer) {
            Some(Mixer::Attention(attention)) => (attention.heads, attention.kv_heads, attention.head_dim),
            Some(Mixer::GatedDeltaNet(_)) | None => (0, 0, 0),
        };
        let feed_forward = match first.map(|layer| &layer.feed_forward) {
            Some(FeedForward::Gated(gated)) => Some(gated.width),
            Some(FeedForward::Experts(_)) | None => None,
        };
        let block_tokens = match &drafter.kind {
            DrafterKind::Block(block) => Some(block.tokens),
            DrafterKind::MultiToken | DrafterKind::Feature(_) => None,
        };
        Self {
            kind: drafter.kind.name(),
            layers: config.layers.len(),
            width: config.width,
            heads,
            kv_heads,
            head_dim,
            feed_forward,
            vocabulary: config.vocabulary,
            reads_hidden: drafter.reads_hidden,
            reads_after_layers: drafter.taps.clone(),
            block_tokens,
        }
    }

    pub(crate) fn text(&self) -> String {
        let feed_forward =
            self.feed_forward.map_or("experts".to_owned(), |width| format!("a feed-forward of {width}"));
        let block = self.block_tokens.map_or(String::new(), |tokens| format!(", blocks of {tokens} tokens"));
        format!(
            "{}, {} of width {}, {} heads of {}, {} of keys and values, and {feed_forward}{block}",
            self.kind,
            plural(self.layers, "layer"),
            self.width,
            self.heads,
            self.head_dim,
            self.kv_heads
        )
    }
}

impl DrafterInspection {
    pub(crate) fn new(checkpoint: &Checkpoint, drafter: &Drafter) -> Self {
        Self {
            path: checkpoint.path().display().to_string(),
            drafter: DrafterFacts::new(drafter),
            weight_bytes: checkpoint.tensor_bytes() as u64,
        }
    }

    pub(crate) fn text(&self) -> String {
        let reads = match self.drafter.reads_after_layers[..] {
            [] if self.drafter.reads_hidden => "its target's normed hidden state".to_owned(),
            [] => "an early, a middle and a late layer of its target".to_owned(),
            _ => format!("its target's stream after layers {:?}", self.drafter.reads_after_layers),
        };
        let lines = [
            entry("drafter", &self.path),
            entry("kind", &self.drafter.text()),
            entry("weights", &quantity::bytes(self.weight_bytes)),
            entry("reads", &reads),
            entry("vocabulary", &self.drafter.vocabulary.to_string()),
        ];
        lines.join("\n") + "\n"
    }
}
