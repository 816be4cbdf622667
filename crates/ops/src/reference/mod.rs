//! The meaning of each op: a naive float32 interpreter of programs.
//!
//! Every op is a plain function over rows in the file of its family; what happens to a batch before the first op,
//! and from `sample` on, is the same for all backends and lives in [`crate::step`].
//! Reductions run from left to right over one row, one head or one sequence, so that a row's bits depend on its
//! own sequence alone. Elementary functions are the platform's, which other backends meet within tolerances.
//!
//! The functions of ops whose state is none, or a row's own, are open to those who simulate a device.
//!
//! Nothing overlaps: a call has taken effect when it returns, and [`crate::Plan::wait`] only hands over.
//! Knows no speed.

mod run; // a program's nodes, one after the other

mod attention; // write_kv, attention
pub mod experts; // route_experts, expert_linear, combine_experts
pub mod gates; // silu_gate, gelu_gate, clamped_gate, sigmoid_gate, decay_gate, soft_cap, scale, add
pub mod linear; // linear
pub mod norms; // rms_norm, head_norm, gated_norm, l2_norm
pub mod position_scale; // position_scale
pub mod recurrent; // causal_conv, gated_delta_rule
pub mod rope; // rope
pub mod rows; // embed, select_outputs, pool, gather_rows, slice, concat

mod plan;
mod state;
pub mod values;
mod weights;

pub use plan::ReferencePlan;
pub use state::ReferenceState;
pub use weights::ReferenceWeights;

use crate::{
    Backend, BatchLimits, Budget, DeviceError, Fusion, Plan, Program, State, StateLayout, WeightSource,
    WeightUse, Weights,
};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// The backend that the others are held against.
#[derive(Debug, Default)]
pub struct ReferenceBackend {
    steps: Arc<AtomicU64>,
    precision: WeightPrecision,
}

/// What weights become before anything is multiplied with them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WeightPrecision {
    /// What the checkpoint holds, in float32.
    #[default]
    Stored,
    /// Matrices rounded to bf16 once, as devices multiply with those that are codes.
    Bf16,
}

impl ReferenceBackend {
    /// A backend whose steps are numbered from 0.
    pub fn new() -> Self {
        Self::default()
    }

    /// The same, whose matrices are rounded to bf16.
    pub fn as_bf16() -> Self {
        Self { precision: WeightPrecision::Bf16, ..Self::default() }
    }
}

impl Backend for ReferenceBackend {
    fn name(&self) -> &'static str {
        "reference"
    }

    fn numerics(&self) -> String {
        format!("{}-{}", std::env::consts::ARCH, std::env::consts::OS)
    }

    fn fusions(&self) -> &[Fusion] {
        &[]
    }

    fn steps_in_flight(&self) -> usize {
        1
    }

    fn free_bytes(&self) -> Option<u64> {
        None
    }

    fn upload(&self, source: &dyn WeightSource, uses: &[WeightUse]) -> Result<Arc<dyn Weights>, DeviceError> {
        Ok(Arc::new(ReferenceWeights::decode(source, uses, self.precision)?))
    }

    fn allocate(&self, layout: &StateLayout, budget: &Budget) -> Result<Box<dyn State>, DeviceError> {
        Ok(Box::new(ReferenceState::new(layout, budget)?))
    }

    fn compile(
        &self,
        program: &Program,
        weights: &Arc<dyn Weights>,
        _limits: &BatchLimits,
    ) -> Result<Box<dyn Plan>, DeviceError> {
        Ok(Box::new(ReferencePlan::new(program, weights.as_ref(), &self.steps)?))
    }
}

/// The error for something that isn't there.
fn unknown(what: &'static str, number: impl Into<u64>, reason: impl Into<String>) -> DeviceError {
    DeviceError::Unknown { what, number: number.into(), reason: reason.into() }
}

/// The error for something that no backend could do.
fn unsupported(op: &str, reason: impl Into<String>) -> DeviceError {
    DeviceError::Unsupported { backend: "reference", op: op.to_owned(), reason: reason.into() }
}
