//! Small models that guess a larger one's next tokens: what they are, what they read of it, and their programs.
//!
//! A drafter reads what its target captured: the normed hidden state of each row, or the stream after some layers
//! (its taps). Its state lies in the same layout, after the target's layers. Two programs run it: `observe` takes in
//! rows that are certain, `draft` guesses on. Where both are the same, what is observed last gives the first draft.
//!
//! Knows no family: `families` recognises drafters and fills their configs.

mod programs;

use crate::ModelError;
use crate::canonical::{CanonicalWeights, Reading};
use crate::config::ModelConfig;
use crate::families::Storage;
use crate::model::Model;
use crate::names::{Names, Place};
use gannet_formats::Checkpoint;
use gannet_ops::{CaptureId, Program, TokenId, WeightUse};
use std::sync::Arc;

/// The normed hidden state of each row of the target, where its drafter reads that.
pub const HIDDEN_CAPTURE: CaptureId = CaptureId(1000);
/// The hidden state of each row of a drafter, on which its next draft is made.
pub const CHAIN_CAPTURE: CaptureId = CaptureId(1001);

/// A drafter.
#[derive(Clone, Debug)]
pub struct Drafter {
    /// How it drafts.
    pub kind: DrafterKind,
    /// Its own layers and sizes; embedding and head are the target's where it has none.
    pub config: ModelConfig,
    /// What it reads: the target's stream after so many layers, in this order. Captured under its place here.
    pub taps: Vec<usize>,
    /// It reads the target's normed hidden state.
    pub reads_hidden: bool,
    /// It has an embedding of its own.
    pub own_embedding: bool,
    /// It has a head of its own, over [`ModelConfig::vocabulary`] of its config.
    pub own_head: bool,
    pub(crate) names: &'static Names,
    pub(crate) storage: Storage,
    pub(crate) place: Place,
    /// The file, for errors.
    pub(crate) file: String,
}

/// How a drafter drafts.
#[derive(Clone, Debug, PartialEq)]
pub enum DrafterKind {
    /// A layer over the target's hidden state and the token after it; one draft a step, chained.
    MultiToken,
    /// A block of mask tokens, all drafted in one step (block diffusion).
    Block(BlockConfig),
    /// A layer over features of several of the target's layers and the token after them; chained.
    Feature(FeatureConfig),
}

/// A block drafter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockConfig {
    /// Tokens of a block, the certain one at its front included.
    pub tokens: usize,
    /// The token in the places that are drafted.
    pub mask: TokenId,
}

/// A drafter over features.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FeatureConfig {
    /// Taps are the target's early, middle and late layer, as the file names none.
    pub default_taps: bool,
    /// The residual connection starts from the normed features.
    pub norm_before_residual: bool,
    /// For each id of its own vocabulary the target's, where it has one of its own.
    pub vocabulary: Option<Arc<[u32]>>,
}

/// The programs of a target and its drafter, over one state.
#[derive(Clone, Debug)]
pub struct DraftPrograms {
    /// The target, which captures what the drafter reads.
    pub target: Program,
    /// Takes in rows that are certain.
    pub observe: Program,
    /// Guesses on.
    pub draft: Program,
}

impl DraftPrograms {
    /// All weights that any of the programs reads, each once.
    pub fn weights(&self) -> Vec<WeightUse> {
        let mut uses = self.target.weights.clone();
        for wanted in self.observe.weights.iter().chain(&self.draft.weights) {
            if !uses.iter().any(|known| known.name == wanted.name) {
                uses.push(wanted.clone());
            }
        }
        uses
    }
}

impl DrafterKind {
    /// What people call it.
    pub const fn name(&self) -> &'static str {
        match self {
            DrafterKind::MultiToken => "mtp",
            DrafterKind::Block(_) => "dflash",
            DrafterKind::Feature(_) => "eagle3",
        }
    }
}

impl Drafter {
    /// The drafter with its taps where they follow from the target, checked against it.
    pub(crate) fn for_target(&self, target: &Model) -> Result<Self, ModelError> {
        let layers = target.config.layers.len();
        let mut drafter = self.clone();
        if let DrafterKind::Feature(FeatureConfig { default_taps: true, .. }) = &self.kind {
            drafter.taps = vec![2, layers / 2, layers.saturating_sub(3)];
        }
        let wrong = |what: &str, found: usize, expected: String| ModelError::WrongSize {
            file: self.file.clone(),
            what: what.to_owned(),
            found: found.to_string(),
            expected,
        };
        if let Some(tap) = drafter.taps.iter().find(|tap| **tap > layers) {
            return Err(wrong(
                "a layer that the drafter reads",
                *tap,
                format!("at most {layers}, the target's"),
            ));
        }
        let (width, expected) = (self.config.width, target.config.width);
        if width != expected {
            return Err(wrong(
                "the drafter's width",
                width,
                format!("{expected}, the target's, whose embedding it shares"),
            ));
        }
        if self.config.layers.len() != 1 && !matches!(self.kind, DrafterKind::Block(_)) {
            let found = self.config.layers.len();
            return Err(wrong(
                "the drafter's number of layers",
                found,
                "1, as chained drafts go through one".into(),
            ));
        }
        Ok(drafter)
    }

    /// The weights of a drafter's own checkpoint that these programs read under its names.
    pub fn weights<'a>(
        &self,
        checkpoint: &'a Checkpoint,
        uses: &[WeightUse],
    ) -> Result<CanonicalWeights<'a>, ModelError> {
        let own = uses.iter().filter(|wanted| wanted.name.starts_with(crate::names::DRAFT)).cloned();
        CanonicalWeights::new(checkpoint, &own.collect::<Vec<_>>(), &[self.reading()], &[])
    }

    /// Elements of its own weights beside a target of these sizes.
    pub fn parameters(&self, target: &Model) -> Result<u64, ModelError> {
        let options = target.size_options();
        let uses = target.programs(self, &options)?.weights();
        let own = uses.iter().filter(|wanted| wanted.name.starts_with(crate::names::DRAFT));
        Ok(own.map(|wanted| wanted.shape.iter().map(|&length| length as u64).product::<u64>()).sum())
    }

    pub(crate) fn reading(&self) -> Reading<'_> {
        Reading {
            names: self.names,
            storage: self.storage,
            layers: &self.config.layers,
            ropes: &self.config.ropes,
            place: self.place,
        }
    }
}
