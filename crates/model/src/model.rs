//! A model that was recognised: its config, and what turns it into a program and a checkpoint into its weights.

use crate::ModelError;
use crate::canonical::CanonicalWeights;
use crate::config::ModelConfig;
use crate::families::{self, Storage};
use crate::forward;
use crate::names::Names;
use crate::tokens::TokenIds;
use gannet_formats::Checkpoint;
use gannet_ops::{KvFormat, Program, WeightUse};

/// A model of a known family.
#[derive(Clone, Debug)]
pub struct Model {
    /// What its forward pass needs.
    pub config: ModelConfig,
    /// What people call its family.
    pub family: &'static str,
    /// The ids that begin and end its texts.
    pub tokens: TokenIds,
    pub(crate) names: &'static Names,
    pub(crate) storage: Storage,
}

/// What a program is made for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProgramOptions {
    /// Tokens of the longest sequence; some ropes follow from it.
    pub context: usize,
    /// How keys and values are kept.
    pub kv_format: KvFormat,
}

/// Recognises the model of a checkpoint and reads its config; tensors are not looked at beyond small tables.
pub fn recognise(checkpoint: &Checkpoint) -> Result<Model, ModelError> {
    let (family, keys) = families::find(checkpoint)?;
    Ok(Model {
        config: (family.config)(&keys)?,
        family: family.name,
        tokens: TokenIds::read(checkpoint, &keys)?,
        names: family.names,
        storage: family.storage,
    })
}

impl Model {
    /// The forward pass, verified.
    pub fn program(&self, options: &ProgramOptions) -> Result<Program, ModelError> {
        let program = forward::target(&self.config, options);
        gannet_ops::verify(&program)?;
        Ok(program)
    }

    /// The weights of a checkpoint of this model, found and measured.
    pub fn weights<'a>(&self, checkpoint: &'a Checkpoint) -> Result<CanonicalWeights<'a>, ModelError> {
        CanonicalWeights::new(self, checkpoint, &self.weight_uses())
    }

    /// Elements of all weights, a tied head counted once.
    pub fn parameters(&self) -> u64 {
        let elements = |used: &WeightUse| used.shape.iter().map(|&length| length as u64).product::<u64>();
        self.weight_uses().iter().map(elements).sum()
    }

    /// The longest context that can be asked for: the one that the model was made for, or as far as the scaling of its
    /// ropes reaches.
    pub fn context_limit(&self) -> usize {
        let trained = self.config.context_length;
        self.config.ropes.iter().map(|rope| rope.reach(trained)).max().unwrap_or(trained)
    }

    /// What was chosen from the context for ropes that depend on it, a sentence each.
    pub fn rope_choices(&self, context: usize) -> Vec<String> {
        self.config.ropes.iter().filter_map(|rope| rope.choice(context)).collect()
    }

    /// The weights that the program reads, which depend on no option.
    fn weight_uses(&self) -> Vec<WeightUse> {
        let options = ProgramOptions { context: self.config.context_length, kv_format: KvFormat::F32 };
        forward::target(&self.config, &options).weights
    }
}
