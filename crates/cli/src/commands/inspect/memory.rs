//! How much memory a model needs at a context length.

use crate::failure::Failure;
use crate::quantity::{bytes, entry};
use gannet_formats::Checkpoint;
use gannet_loader::{LoadError, LoadOptions, MemoryPlan};
use gannet_model::Model;
use gannet_ops::KvFormat;
use serde::Serialize;

/// The memory of a model that runs.
#[derive(Debug, Serialize)]
pub(crate) struct MemoryFacts {
    /// Tokens of the longest sequence.
    pub(crate) context: usize,
    weight_bytes: u64,
    /// Of keys, values and other state.
    state_bytes: u64,
    /// Of the values of the largest step.
    scratch_bytes: u64,
    total_bytes: u64,
    available_bytes: u64,
    /// How keys and values are kept; F16 where nothing was planned.
    #[serde(skip)]
    pub(crate) kv_format: KvFormat,
}

impl MemoryFacts {
    /// What is needed, whether or not it is there.
    pub(crate) fn plan(
        model: &Model,
        checkpoint: &Checkpoint,
        options: &LoadOptions,
    ) -> Result<Self, Failure> {
        match MemoryPlan::new(model, checkpoint, options) {
            Ok(plan) => Ok(Self {
                context: plan.context,
                weight_bytes: plan.weight_bytes,
                state_bytes: plan.state_bytes,
                scratch_bytes: plan.scratch_bytes,
                total_bytes: sum([plan.weight_bytes, plan.state_bytes, plan.scratch_bytes]),
                available_bytes: plan.available_bytes,
                kv_format: plan.kv_format,
            }),
            Err(LoadError::OutOfMemory { weights, state, scratch, context, available }) => Ok(Self {
                context,
                weight_bytes: weights,
                state_bytes: state,
                scratch_bytes: scratch,
                total_bytes: sum([weights, state, scratch]),
                available_bytes: available,
                kv_format: KvFormat::F16,
            }),
            Err(error) => Err(error.into()),
        }
    }

    /// That it doesn't fit.
    pub(crate) fn warning(&self) -> Option<String> {
        let lacks = self.total_bytes > self.available_bytes;
        lacks.then(|| format!("not enough memory: {} are available", bytes(self.available_bytes)))
    }

    pub(crate) fn lines(&self) -> Vec<String> {
        let [total, weights, state, scratch] =
            [self.total_bytes, self.weight_bytes, self.state_bytes, self.scratch_bytes].map(bytes);
        let context = self.context;
        vec![entry(
            "memory",
            &format!(
                "{total} at a context of {context}: weights {weights}, keys and values {state}, scratch {scratch}"
            ),
        )]
    }
}

fn sum(parts: [u64; 3]) -> u64 {
    parts.into_iter().fold(0, u64::saturating_add)
}
