//! The forward pass of a decoder, written once for all families: embed, layers, norm, head, sample.
//!
//! Knows the outline alone; what a layer does is in `blocks`, and how families differ is in the config.

use crate::ProgramOptions;
use crate::blocks::Writer;
use crate::config::{ModelConfig, PoolingConfig};
use crate::drafter::{Drafter, HIDDEN_CAPTURE};
use crate::layout::{state_layout, state_of};
use gannet_ops::{CaptureId, OutputKind, Program, ProgramBuilder, StateLayout, ValueId, WeightRole};
use std::sync::Arc;

/// The canonical name of the embedding, and of the head where it is tied.
const EMBEDDING: &str = "embed.weight";
/// The canonical name of a head of its own.
const HEAD: &str = "head.weight";

/// Added to the sum of squares of a pooled vector, which is far larger: the vector is brought to unit length.
const UNIT_EPSILON: f32 = 1e-24;

/// The program `target`: ids to logits, hidden states, sampled tokens and accepted rows; or to pooled vectors. With a
/// drafter it keeps what that reads, and the drafter's layers have their part of the state.
pub(crate) fn target(config: &ModelConfig, drafter: Option<&Drafter>, options: &ProgramOptions) -> Program {
    let state = Arc::new(state_layout(config, drafter.map(|drafter| &drafter.config), options));
    let mut writer = writer("target", config, state, options);
    let mut hidden = embed(&mut writer);
    let taps = drafter.map_or(&[][..], |drafter| &drafter.taps);
    capture_taps(&mut writer, taps, 0, hidden);
    for number in 0..config.layers.len() {
        hidden = writer.layer(number, state_of(number), hidden);
        capture_taps(&mut writer, taps, number + 1, hidden);
    }
    match &config.pooling {
        Some(pooling) => pool(&mut writer, pooling, hidden),
        None => finish(&mut writer, drafter.is_some_and(|drafter| drafter.reads_hidden), hidden),
    }
    writer.builder.finish()
}

/// A program of this config's weights over the state.
pub(crate) fn writer<'a>(
    name: &str,
    config: &'a ModelConfig,
    state: Arc<StateLayout>,
    options: &ProgramOptions,
) -> Writer<'a> {
    let builder = ProgramBuilder::new(name, state);
    let ropes = config.ropes.iter().map(|rope| Arc::new(rope.table(options.context))).collect();
    Writer { builder, config, ropes, scope: "" }
}

/// Keeps the stream after so many layers for each tap that wants it.
fn capture_taps(writer: &mut Writer<'_>, taps: &[usize], layers: usize, hidden: ValueId) {
    for (number, _) in taps.iter().enumerate().filter(|(_, tap)| **tap == layers) {
        writer.builder.capture(hidden, CaptureId(number as u32));
    }
}

/// `[Tokens, width]`: the scaled embedding of each token.
fn embed(writer: &mut Writer<'_>) -> ValueId {
    let hidden = embedding(writer, writer.config);
    match writer.config.embedding_scale {
        Some(factor) => writer.builder.scale(hidden, factor),
        None => hidden,
    }
}

/// `[Tokens, width]`: the row of each token of the model's embedding.
pub(crate) fn embedding(writer: &mut Writer<'_>, config: &ModelConfig) -> ValueId {
    let ids = writer.builder.ids();
    let shape = [config.vocabulary, config.width];
    let weight = writer.builder.weight(EMBEDDING, &shape, WeightRole::Embedding);
    writer.builder.embed(weight, &[ids])
}

/// The scores `[R, vocabulary]` that the model's head gives normed hidden states.
pub(crate) fn head(writer: &mut Writer<'_>, config: &ModelConfig, hidden: ValueId) -> ValueId {
    let name = if config.tied_head { EMBEDDING } else { HEAD };
    let head = writer.builder.weight(name, &[config.vocabulary, config.width], WeightRole::Matrix);
    let mut logits = writer.builder.linear(hidden, head, None);
    if let Some(factor) = config.logit_scale {
        logits = writer.builder.scale(logits, factor);
    }
    if let Some(cap) = config.logit_soft_cap {
        logits = writer.builder.soft_cap(logits, cap);
    }
    logits
}

/// The results of the rows that are asked for; a prompt's other rows end here, before the norm and the head, unless a
/// drafter reads the normed state of each.
fn finish(writer: &mut Writer<'_>, keeps_hidden: bool, hidden: ValueId) {
    let hidden = if keeps_hidden {
        let normed = writer.norm(hidden, "norm");
        writer.builder.capture(normed, HIDDEN_CAPTURE);
        writer.builder.select_outputs(normed)
    } else {
        let selected = writer.builder.select_outputs(hidden);
        writer.norm(selected, "norm")
    };
    let logits = head(writer, writer.config, hidden);
    let tokens = writer.builder.sample(logits);
    let accepted = writer.builder.accept(tokens);
    writer.builder.output(OutputKind::Logits, logits);
    writer.builder.output(OutputKind::Hidden, hidden);
    writer.builder.output(OutputKind::Tokens, tokens);
    writer.builder.output(OutputKind::Accepted, accepted);
}

/// One vector of unit length a sequence. Projections have no bias, so that pooling may give unit length before them.
fn pool(writer: &mut Writer<'_>, pooling: &PoolingConfig, hidden: ValueId) {
    if !writer.config.takes_chunks() {
        writer.builder.whole_prompt_only();
    }
    let normed = writer.norm(hidden, "norm");
    let mut pooled = writer.builder.pool(normed, pooling.kind);
    let mut columns = writer.config.width;
    for (number, &rows) in pooling.projections.iter().enumerate() {
        let name = format!("projections.{number}");
        pooled = writer.linear(pooled, &name, [rows, columns], crate::blocks::Bias::Absent);
        columns = rows;
    }
    if !pooling.projections.is_empty() {
        pooled = writer.builder.l2_norm(pooled, 1, UNIT_EPSILON, 1.0);
    }
    writer.builder.output(OutputKind::Pooled, pooled);
}
