//! The programs of drafters, from the blocks of their targets.

use super::{BlockConfig, CHAIN_CAPTURE, DraftPrograms, Drafter, DrafterKind, FeatureConfig};
use crate::ModelError;
use crate::ProgramOptions;
use crate::blocks::{Bias, Writer};
use crate::config::{LayerConfig, Mixer};
use crate::forward::{embedding, head, target, writer};
use crate::model::Model;
use crate::names::DRAFT;
use gannet_ops::{OutputKind, Program, StateId, StateLayout, ValueId, WeightRole};
use std::sync::Arc;

impl Model {
    /// The programs of this model with a drafter beside it, verified.
    pub fn programs(&self, drafter: &Drafter, options: &ProgramOptions) -> Result<DraftPrograms, ModelError> {
        let drafter = drafter.for_target(self)?;
        let target = target(&self.config, Some(&drafter), options);
        let draft = Drafting { model: self, drafter: &drafter, options, state: &target.state };
        let (observe, draft) = match &drafter.kind {
            DrafterKind::MultiToken => (draft.chained("observe"), draft.chained("draft")),
            DrafterKind::Block(block) => (draft.injected(), draft.block(block)),
            DrafterKind::Feature(feature) => {
                (draft.featured("observe", feature), draft.featured("draft", feature))
            }
        };
        for program in [&target, &observe, &draft] {
            gannet_ops::verify(program)?;
        }
        Ok(DraftPrograms { target, observe, draft })
    }
}

/// What the programs of a drafter are written from.
struct Drafting<'a> {
    model: &'a Model,
    drafter: &'a Drafter,
    options: &'a ProgramOptions,
    state: &'a Arc<StateLayout>,
}

impl<'a> Drafting<'a> {
    fn writer(&self, name: &str) -> Writer<'a> {
        let writer = writer(name, &self.drafter.config, self.state.clone(), self.options);
        Writer { scope: DRAFT, ..writer }
    }

    /// The state of one of the drafter's layers.
    fn state_of(&self, layer: usize) -> StateId {
        StateId((self.model.config.layers.len() + layer) as u32)
    }

    /// The embedding of each token, from the target's table or its own.
    fn embedding(&self, writer: &mut Writer<'_>) -> ValueId {
        if !self.drafter.own_embedding {
            return embedding(writer, &self.model.config);
        }
        let ids = writer.builder.ids();
        let shape = [self.model.config.vocabulary, self.drafter.config.width];
        let weight = writer.builder.weight(&format!("{DRAFT}embed.weight"), &shape, WeightRole::Embedding);
        writer.builder.embed(weight, &[ids])
    }

    /// The scores of normed hidden states, from the target's head or its own.
    fn scores(&self, writer: &mut Writer<'_>, hidden: ValueId) -> ValueId {
        if !self.drafter.own_head {
            return head(writer, &self.model.config, hidden);
        }
        let shape = [self.drafter.config.vocabulary, self.drafter.config.width];
        writer.linear(hidden, &format!("{DRAFT}head"), shape, Bias::Absent)
    }

    /// The target's streams of each row side by side.
    fn taps(&self, writer: &mut Writer<'_>) -> ValueId {
        let width = self.model.config.width;
        let tap = |number: usize| {
            let handed = writer.builder.handed(number as u32, width);
            writer.builder.gather_rows(handed, number as u32)
        };
        let taps: Vec<ValueId> = (0..self.drafter.taps.len()).map(tap).collect();
        writer.builder.concat(&taps)
    }

    /// The taps projected to the drafter's width.
    fn features(&self, writer: &mut Writer<'_>) -> ValueId {
        let taps = self.taps(writer);
        let columns = self.drafter.taps.len() * self.model.config.width;
        writer.linear(taps, &format!("{DRAFT}projection"), [self.drafter.config.width, columns], Bias::Absent)
    }

    /// The hidden state at a position and the token after it -> the hidden state one on, kept, and its scores.
    fn chained(&self, name: &str) -> Program {
        let (mut writer, width) = (self.writer(name), self.drafter.config.width);
        let embedded = self.embedding(&mut writer);
        let token = writer.norm(embedded, &format!("{DRAFT}embed_norm"));
        let handed = writer.builder.handed(0, width);
        let hidden = writer.builder.gather_rows(handed, 0);
        let hidden = writer.norm(hidden, &format!("{DRAFT}hidden_norm"));
        let both = writer.builder.concat(&[token, hidden]);
        let projected = writer.linear(both, &format!("{DRAFT}projection"), [width, 2 * width], Bias::Absent);
        let mixed = writer.layer(0, self.state_of(0), projected);
        let hidden = writer.norm(mixed, &format!("{DRAFT}norm"));
        writer.builder.capture(hidden, CHAIN_CAPTURE);
        let selected = writer.builder.select_outputs(hidden);
        let logits = self.scores(&mut writer, selected);
        let tokens = writer.builder.sample(logits);
        writer.builder.output(OutputKind::Logits, logits);
        writer.builder.output(OutputKind::Tokens, tokens);
        writer.builder.finish()
    }

    /// Keys and values of committed rows, from what the target's layers said of them.
    fn injected(&self) -> Program {
        let mut writer = self.writer("observe");
        let features = self.features(&mut writer);
        let context = writer.norm(features, &format!("{DRAFT}hidden_norm"));
        for (number, layer) in self.drafter.config.layers.iter().enumerate() {
            let Mixer::Attention(attention) = &layer.mixer else { continue };
            let scope = format!("{DRAFT}layers.{number}.attention");
            let (key, value) = writer.key_and_value(&scope, attention, context);
            writer.builder.write_kv(key, value, self.state_of(number));
        }
        writer.builder.finish()
    }

    /// All drafts of a block at once; its rows see the context and each other, and are not kept.
    fn block(&self, _: &BlockConfig) -> Program {
        let mut writer = self.writer("draft");
        let mut hidden = self.embedding(&mut writer);
        for (number, layer) in self.drafter.config.layers.iter().enumerate() {
            hidden = self.block_layer(&mut writer, number, layer, hidden);
        }
        let selected = writer.builder.select_outputs(hidden);
        let normed = writer.norm(selected, &format!("{DRAFT}norm"));
        let logits = self.scores(&mut writer, normed);
        let tokens = writer.builder.sample(logits);
        writer.builder.output(OutputKind::Logits, logits);
        writer.builder.output(OutputKind::Tokens, tokens);
        writer.builder.finish()
    }

    fn block_layer(
        &self,
        writer: &mut Writer<'_>,
        number: usize,
        layer: &LayerConfig,
        hidden: ValueId,
    ) -> ValueId {
        let Mixer::Attention(attention) = &layer.mixer else { return hidden };
        let scope = format!("{DRAFT}layers.{number}.attention");
        let normed = writer.norm(hidden, &format!("{scope}.norm"));
        let mixed = writer.block_attention(&scope, self.state_of(number), attention, normed);
        let hidden = writer.residual(layer, &scope, hidden, mixed);
        writer.second_half(number, hidden)
    }

    /// Features of a position and the token after it -> the feature one on, kept, and scores over the drafter's own
    /// vocabulary. What is observed has its features from the target, what is drafted from the step before.
    fn featured(&self, name: &str, config: &FeatureConfig) -> Program {
        let mut writer = self.writer(name);
        let width = self.drafter.config.width;
        let embedded = self.embedding(&mut writer);
        let features = if name == "observe" {
            self.features(&mut writer)
        } else {
            let handed = writer.builder.handed(0, width);
            writer.builder.gather_rows(handed, 0)
        };
        let hidden = self.featured_layer(&mut writer, config, embedded, features);
        writer.builder.capture(hidden, CHAIN_CAPTURE);
        let selected = writer.builder.select_outputs(hidden);
        let normed = writer.norm(selected, &format!("{DRAFT}norm"));
        let logits = self.scores(&mut writer, normed);
        let mut tokens = writer.builder.sample(logits);
        if let Some(table) = &config.vocabulary {
            tokens = writer.builder.map_ids(tokens, table.clone());
        }
        writer.builder.output(OutputKind::Logits, logits);
        writer.builder.output(OutputKind::Tokens, tokens);
        writer.builder.finish()
    }

    /// A layer whose attention reads the normed embedding and the normed features side by side.
    fn featured_layer(
        &self,
        writer: &mut Writer<'_>,
        config: &FeatureConfig,
        embedded: ValueId,
        features: ValueId,
    ) -> ValueId {
        let layer = &self.drafter.config.layers[0];
        let scope = format!("{DRAFT}layers.0.attention");
        let token = writer.norm(embedded, &format!("{scope}.norm"));
        let normed = writer.norm(features, &format!("{DRAFT}layers.0.hidden_norm"));
        let both = writer.builder.concat(&[token, normed]);
        let Mixer::Attention(attention) = &layer.mixer else { return both };
        let columns = 2 * self.drafter.config.width;
        let mixed = writer.attention(&scope, self.state_of(0), attention, both, columns);
        let stream = if config.norm_before_residual { normed } else { features };
        let hidden = writer.residual(layer, &scope, stream, mixed);
        writer.second_half(0, hidden)
    }
}
