//! The blocks that models are made of: each takes its config and a hidden state and writes its ops.
//!
//! A block knows its formula and the canonical names of its weights. It knows no family and no file; what a
//! family does differently is a field of the block's config.

mod attention;
mod delta_net;
mod experts;
mod feed_forward;

use crate::config::{FeedForward, LayerConfig, LayerNorms, Mixer, ModelConfig};
use gannet_ops::{ProgramBuilder, RopeTable, StateId, ValueId, WeightId, WeightRole};
use std::sync::Arc;

/// A program being written from a config.
pub(crate) struct Writer<'a> {
    pub(crate) builder: ProgramBuilder,
    pub(crate) config: &'a ModelConfig,
    /// The angles of [`ModelConfig::ropes`].
    pub(crate) ropes: Vec<Arc<RopeTable>>,
    /// What the names of the config's weights begin with: nothing, or [`crate::names::DRAFT`].
    pub(crate) scope: &'static str,
}

impl Writer<'_> {
    /// One layer: both halves with their residual connections.
    pub(crate) fn layer(&mut self, number: usize, state: StateId, hidden: ValueId) -> ValueId {
        let config = self.config;
        let layer = &config.layers[number];
        let half = match &layer.mixer {
            Mixer::Attention(_) => "attention",
            Mixer::GatedDeltaNet(_) => "delta",
        };
        let scope = format!("{}layers.{number}.{half}", self.scope);
        let normed = self.normed_before(layer, &scope, hidden);
        let mixed = match &layer.mixer {
            Mixer::Attention(attention) => self.attention(&scope, state, attention, normed, config.width),
            Mixer::GatedDeltaNet(delta) => self.gated_delta_net(&scope, state, delta, normed),
        };
        let hidden = self.residual(layer, &scope, hidden, mixed);
        self.second_half(number, hidden)
    }

    /// The feed-forward of a layer with its residual connection.
    pub(crate) fn second_half(&mut self, number: usize, hidden: ValueId) -> ValueId {
        let config = self.config;
        let layer = &config.layers[number];
        let scope = format!("{}layers.{number}.feed_forward", self.scope);
        let normed = self.normed_before(layer, &scope, hidden);
        let transformed = match &layer.feed_forward {
            FeedForward::Gated(gated) => self.gated_feed_forward(&scope, gated, normed),
            FeedForward::Experts(experts) => self.experts(&scope, experts, normed),
        };
        self.residual(layer, &scope, hidden, transformed)
    }

    /// What a half of a layer reads of the stream.
    fn normed_before(&mut self, layer: &LayerConfig, scope: &str, hidden: ValueId) -> ValueId {
        match layer.norms {
            LayerNorms::Before | LayerNorms::Around => self.norm(hidden, &format!("{scope}.norm")),
            LayerNorms::After => hidden,
        }
    }

    /// The sum of the stream and a branch, which is normed and scaled first where the layer asks for it.
    pub(crate) fn residual(
        &mut self,
        layer: &LayerConfig,
        scope: &str,
        hidden: ValueId,
        branch: ValueId,
    ) -> ValueId {
        let branch = match layer.norms {
            LayerNorms::Before => branch,
            LayerNorms::After | LayerNorms::Around => self.norm(branch, &format!("{scope}.post_norm")),
        };
        let branch = layer.residual_scale.map_or(branch, |factor| self.builder.scale(branch, factor));
        self.builder.add(hidden, branch)
    }

    /// The norm of a hidden state by the weight `{name}.weight` `[width]`.
    pub(crate) fn norm(&mut self, x: ValueId, name: &str) -> ValueId {
        let weight = self.vector(&format!("{name}.weight"), self.config.width);
        self.builder.rms_norm(x, weight, self.config.norm_epsilon)
    }

    /// `x` times the transpose of `{name}.weight` `[rows, columns]`, plus `{name}.bias` `[rows]` where there is one.
    pub(crate) fn linear(&mut self, x: ValueId, name: &str, shape: [usize; 2], bias: Bias) -> ValueId {
        let weight = self.builder.weight(&format!("{name}.weight"), &shape, WeightRole::Matrix);
        let bias = match bias {
            Bias::Present => Some(self.vector(&format!("{name}.bias"), shape[0])),
            Bias::Absent => None,
        };
        self.builder.linear(x, weight, bias)
    }

    /// Declares a weight of one dimension.
    pub(crate) fn vector(&mut self, name: &str, width: usize) -> WeightId {
        self.builder.weight(name, &[width], WeightRole::Vector)
    }
}

/// Whether a linear has a bias.
#[derive(Clone, Copy)]
pub(crate) enum Bias {
    Present,
    Absent,
}

impl From<bool> for Bias {
    fn from(present: bool) -> Self {
        if present { Bias::Present } else { Bias::Absent }
    }
}
