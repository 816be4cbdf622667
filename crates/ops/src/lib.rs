//! The narrow waist: the operations of a language model, programs over them, and what a backend must do.
//!
//! A model's forward pass is a straight-line [`Program`] of [`Op`]s over symbolic row counts. `model` builds
//! it, the [`reference`] interpreter gives it its meaning, and each backend is held against that meaning.
//! A step runs a program over a [`Batch`]; prefill, decode, mixed and speculative steps differ in the batch alone.
//!
//! Knows no model, no file, no request and no device.

mod backend;
mod batch;
mod builder;
pub mod cost;
mod fusion;
pub mod int8;
mod layout;
pub mod math;
pub mod numerics;
mod op;
pub mod placement;
mod print;
mod program;
pub mod reference;
pub mod sampling;
pub mod step;
mod verify;
mod weights;

pub use backend::{
    Backend, BatchLimits, Budget, DeviceError, DeviceUse, Interrupter, NodeObserver, NodeTime, OutputResult,
    Plan, PlanBytes, Readiness, SampleRows, State, StateBytes, StepOutput, Team, TokenLogprobs,
};
pub use batch::{
    Batch, BatchError, Handed, Length, Output, PageTable, RecurrentBank, RecurrentUse, RecurrentWrite, Row,
    RowKind, STEPS_REMEMBERED, SequenceRows, TokenSource, Want,
};
pub use builder::ProgramBuilder;
pub use fusion::{Fusion, GatedExperts, GatedLinear, Linear, QueryKeyValue, fuse, unfuse};
pub use layout::{
    ConvLayout, DeltaLayout, KvFormat, PAGE_TOKENS, PageGroup, PageLifetime, PagedLayout, RecurrentLayout,
    Rollback, SamplerLayout, StateEntry, StateLayout,
};
pub use op::{
    Attention, DeltaRule, ExpertLinear, FusedKind, HeadMap, Mask, Op, PoolKind, Rope, RopeTable, Router,
};
pub use print::print;
pub use program::{
    CaptureId, Element, GroupId, InputKind, Node, OutputKind, PageId, Program, Rows, SamplerSlot, SnapshotId,
    StateId, StepId, TokenId, Value, ValueId, WeightId,
};
pub use verify::{ProgramError, verify};
pub use weights::{WeightError, WeightRole, WeightSource, WeightTensor, WeightUse, Weights};
