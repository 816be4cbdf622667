//! A model that was recognised: its config, and what turns it into a program and a checkpoint into its weights.

use crate::ModelError;
use crate::canonical::CanonicalWeights;
use crate::canonical::Reading;
use crate::config::{ModelConfig, PoolingConfig};
use crate::drafter::Drafter;
use crate::families::{self, Storage};
use crate::forward;
use crate::names::{Names, Place};
use crate::pooling;
use crate::rope::{OverrideKind, RopeOverride};
use crate::tokens::TokenIds;
use gannet_formats::Checkpoint;
use gannet_ops::{KvFormat, PoolKind, Program, Rollback, WeightUse};
use std::sync::Arc;

/// A model of a known family.
#[derive(Clone, Debug)]
pub struct Model {
    /// What its forward pass needs.
    pub config: ModelConfig,
    /// What people call its family.
    pub family: &'static str,
    /// The ids that begin and end its texts.
    pub tokens: TokenIds,
    /// The head that predicts further tokens, where the checkpoint has one beside the model.
    pub drafter: Option<Drafter>,
    /// Projections of an embedding model that lie in folders of their own, in order.
    pub(crate) projections: Vec<Arc<Checkpoint>>,
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
    /// How a drafted row is taken back from recurrent state.
    pub rollback: Rollback,
}

/// Recognises the model of a checkpoint and reads its config; tensors are not looked at beyond small tables.
pub fn recognise(checkpoint: &Checkpoint) -> Result<Model, ModelError> {
    let (family, keys) = families::find(checkpoint)?;
    let mut config = (family.config)(&keys)?;
    let pooling = pooling::read(checkpoint, &keys)?;
    let (pooling, projections) =
        pooling.map_or((None, Vec::new()), |(config, folders)| (Some(config), folders));
    config.pooling = pooling;
    if config.pooling.is_none() && !config.takes_chunks() {
        let expected = "one, as rows that see the rows after them can't be continued";
        return Err(keys.wrong_size("the number of ways to pool", 0, expected));
    }
    Ok(Model {
        drafter: families::beside(family, &keys, &config)?,
        config,
        family: family.name,
        tokens: TokenIds::read(checkpoint, &keys)?,
        projections,
        names: family.names,
        storage: family.storage,
    })
}

/// Recognises a drafter that is a checkpoint of its own; `None` where the checkpoint is none.
pub fn recognise_drafter(checkpoint: &Checkpoint) -> Result<Option<Drafter>, ModelError> {
    families::find_drafter(checkpoint)
}

impl Model {
    /// The forward pass, verified.
    pub fn program(&self, options: &ProgramOptions) -> Result<Program, ModelError> {
        let program = forward::target(&self.config, None, options);
        gannet_ops::verify(&program)?;
        Ok(program)
    }

    /// The weights of a checkpoint of this model, found and measured.
    pub fn weights<'a>(&'a self, checkpoint: &'a Checkpoint) -> Result<CanonicalWeights<'a>, ModelError> {
        self.weights_of(checkpoint, &self.weight_uses())
    }

    /// The weights that programs of this model, and of the head beside it, read from its checkpoint.
    pub fn weights_of<'a>(
        &'a self,
        checkpoint: &'a Checkpoint,
        uses: &[WeightUse],
    ) -> Result<CanonicalWeights<'a>, ModelError> {
        let own = Reading {
            names: self.names,
            storage: self.storage,
            layers: &self.config.layers,
            ropes: &self.config.ropes,
            place: Place::Target,
        };
        let beside = self.drafter.as_ref().map(Drafter::reading);
        let readings: Vec<Reading<'_>> = [Some(own), beside].into_iter().flatten().collect();
        CanonicalWeights::new(checkpoint, uses, &readings, &self.projections)
    }

    /// Stretches the rope as was asked for, and with it [`Model::context_limit`]; what the file says about it is
    /// replaced.
    ///
    /// # Errors
    /// A model without a rope, and one whose file states a scaling that can't be taken back.
    pub fn scale_rope(&mut self, asked: &RopeOverride) -> Result<(), ModelError> {
        let context_length = self.config.context_length;
        let refused = |reason: String| ModelError::WrongScaling { asked: asked.to_string(), reason };
        // The first rope is that of the layers that see everything; windows don't grow with the context.
        let rope = self.config.ropes.first_mut();
        let rope = rope.ok_or_else(|| refused("the model has no rope".to_owned()))?;
        rope.scale(asked, context_length).map_err(refused)
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

    /// The context where none is asked for: the one that the model was made for, or as far as an asked scaling of its
    /// rope stretches that.
    pub fn default_context(&self, asked: Option<&RopeOverride>) -> usize {
        let trained = self.config.context_length;
        match asked {
            Some(RopeOverride { kind: OverrideKind::Dynamic, factor }) => (trained as f64 * factor) as usize,
            Some(_) => self.context_limit(),
            None => trained,
        }
    }

    /// Makes vectors of texts by these rows, with the projections that the files have; a model that makes text loses its
    /// head.
    pub fn pool_by(&mut self, kind: PoolKind) {
        let projections = self.config.pooling.take().map_or(Vec::new(), |pooling| pooling.projections);
        self.config.pooling = Some(PoolingConfig { kind, projections });
    }

    /// What was chosen from the context for ropes that depend on it, a sentence each.
    pub fn rope_choices(&self, context: usize) -> Vec<String> {
        self.config.ropes.iter().filter_map(|rope| rope.choice(context)).collect()
    }

    /// The weights that the program reads, which depend on no option.
    fn weight_uses(&self) -> Vec<WeightUse> {
        forward::target(&self.config, None, &self.size_options()).weights
    }

    /// Options for what depends on none.
    pub(crate) fn size_options(&self) -> ProgramOptions {
        let context = self.config.context_length;
        ProgramOptions { context, kv_format: KvFormat::F32, rollback: Rollback::Replay }
    }
}
