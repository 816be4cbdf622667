//! The forward pass of a decoder, written once for all families: embed, layers, norm, head, sample.
//!
//! Knows the outline alone; what a layer does is in `blocks`, and how families differ is in the config.

use crate::ProgramOptions;
use crate::blocks::Writer;
use crate::config::ModelConfig;
use crate::layout::state_layout;
use gannet_ops::{OutputKind, Program, ProgramBuilder, ValueId, WeightRole};
use std::sync::Arc;

/// The canonical name of the embedding, and of the head where it is tied.
const EMBEDDING: &str = "embed.weight";
/// The canonical name of a head of its own.
const HEAD: &str = "head.weight";

/// The program `target`: ids to logits, hidden states, sampled tokens and accepted rows.
pub(crate) fn target(config: &ModelConfig, options: &ProgramOptions) -> Program {
    let builder = ProgramBuilder::new("target", Arc::new(state_layout(config, options)));
    let ropes = config.ropes.iter().map(|rope| Arc::new(rope.table(options.context))).collect();
    let mut writer = Writer { builder, config, ropes };
    let mut hidden = embed(&mut writer);
    for (number, layer) in config.layers.iter().enumerate() {
        hidden = writer.layer(number, layer, hidden);
    }
    finish(&mut writer, hidden);
    writer.builder.finish()
}

/// `[Tokens, width]`: the scaled embedding of each token.
fn embed(writer: &mut Writer<'_>) -> ValueId {
    let config = writer.config;
    let ids = writer.builder.ids();
    let shape = [config.vocabulary, config.width];
    let weight = writer.builder.weight(EMBEDDING, &shape, WeightRole::Embedding);
    let hidden = writer.builder.embed(weight, &[ids]);
    match config.embedding_scale {
        Some(factor) => writer.builder.scale(hidden, factor),
        None => hidden,
    }
}

/// The results of the rows that are asked for; a prompt's other rows end here, before the norm and the head.
fn finish(writer: &mut Writer<'_>, hidden: ValueId) {
    let config = writer.config;
    let selected = writer.builder.select_outputs(hidden);
    let hidden = writer.norm(selected, "norm");
    let name = if config.tied_head { EMBEDDING } else { HEAD };
    let head = writer.builder.weight(name, &[config.vocabulary, config.width], WeightRole::Matrix);
    let mut logits = writer.builder.linear(hidden, head, None);
    if let Some(cap) = config.logit_soft_cap {
        logits = writer.builder.soft_cap(logits, cap);
    }
    let tokens = writer.builder.sample(logits);
    let accepted = writer.builder.accept(tokens);
    writer.builder.output(OutputKind::Logits, logits);
    writer.builder.output(OutputKind::Hidden, hidden);
    writer.builder.output(OutputKind::Tokens, tokens);
    writer.builder.output(OutputKind::Accepted, accepted);
}
