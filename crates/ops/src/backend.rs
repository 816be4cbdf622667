//! What a backend must do: hold weights and state, compile a program, and run steps of it.
//!
//! Calls on a plan and on a state take effect in the order in which they are made, across all plans of one
//! backend; a call may return before its effect, and only [`Plan::wait`] waits. So a next step can be submitted
//! before the last one's tokens are read.

use crate::sampling::{History, Running, SampleRow};
use crate::{
    Batch, BatchError, Fusion, GroupId, Node, PageId, Program, Rollback, SamplerSlot, SnapshotId,
    StateLayout, StepId, TokenId, WeightError, WeightSource, WeightUse, Weights,
};
use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// One device of one process: owns threads, streams and memory; engines share it.
pub trait Backend: Send + Sync {
    /// The name that people choose it by: `cpu`, `reference`.
    fn name(&self) -> &'static str;

    /// What the order and rounding of its arithmetic depend on beside the formats: instruction set or architecture.
    fn numerics(&self) -> String;

    /// The rewrites whose kernels it has, in the order to apply them.
    fn fusions(&self) -> &[Fusion];

    /// Steps that are worth having in flight: 1 where a step is computed by the time it is submitted, 2 where a device computes it.
    fn steps_in_flight(&self) -> usize;

    /// Rows of the largest step that is worth its memory.
    fn step_rows(&self) -> usize {
        512
    }

    /// Bytes that drawing takes of the device's memory, beside what states and plans are said to take.
    fn draw_bytes(&self, _vocabulary: usize, _sequences: usize) -> u64 {
        0
    }

    /// How it takes back drafted rows from recurrent state; their inputs take less memory than the state after each.
    fn rollback(&self) -> Rollback {
        Rollback::Replay
    }

    /// Bytes that are free in the device's own memory; `None` where it computes in the machine's.
    fn free_bytes(&self) -> Option<u64>;

    /// Brings weights into the device's memory and arrangement, once; target and drafters share them.
    fn upload(&self, source: &dyn WeightSource, uses: &[WeightUse]) -> Result<Arc<dyn Weights>, DeviceError>;

    /// Allocates the state that the layout describes.
    fn allocate(&self, layout: &StateLayout, budget: &Budget) -> Result<Box<dyn State>, DeviceError>;

    /// Makes a program ready to run over these weights.
    fn compile(
        &self,
        program: &Program,
        weights: &Arc<dyn Weights>,
        limits: &BatchLimits,
    ) -> Result<Box<dyn Plan>, DeviceError>;
}

/// What [`Plan::make_ready`] leaves to be done before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Readiness {
    /// Something that the first steps would wait for.
    Needed,
    /// Something that rare steps would wait for.
    Useful,
    /// Nothing.
    Done,
}

/// Threads that a backend lends while it has nothing to compute.
pub trait Team: Send + Sync {
    /// Calls `work` with each number below `parts`, each once, on several threads, the caller's among them; returns when all
    /// are done. A panic of `work` reaches the caller.
    fn each(&self, parts: usize, work: &(dyn Fn(usize) + Sync));
}

/// A program that is ready to run.
pub trait Plan: Send {
    /// The threads that stand idle between the forward pass of a step and its draws; none where a device is still computing
    /// when [`Plan::submit`] returns.
    fn team(&self) -> Option<&dyn Team> {
        None
    }

    /// Does a piece of what later steps over this state would else wait for, once. For the time before the first step, and
    /// for idle moments.
    fn make_ready(&mut self, _state: &mut dyn State) -> Result<Readiness, DeviceError> {
        Ok(Readiness::Done)
    }

    /// Takes back what [`Plan::wait`] gave, so that a later step can use its memory.
    fn reuse(&mut self, output: StepOutput) {
        drop(output);
    }

    /// Runs the forward pass of a batch. May return at once.
    fn submit(&mut self, batch: &Batch, state: &mut dyn State) -> Result<StepId, DeviceError>;

    /// As [`Plan::submit`], and shows each node's values as they are made; for comparing backends and for debugging.
    ///
    /// Returns when all nodes before [`Program::sampling_start`] were shown, in order; the others are not shown.
    /// The step is like any other: it is sampled and waited for. A value keeps its id through [`crate::fuse`], so
    /// two backends that fuse differently are compared by [`crate::Node::outputs`].
    ///
    /// A plan that computes nothing, as measurements and tests have, shows nothing.
    fn submit_traced(
        &mut self,
        batch: &Batch,
        state: &mut dyn State,
        observe: &mut NodeObserver<'_>,
    ) -> Result<StepId, DeviceError> {
        let _ = observe;
        self.submit(batch, state)
    }

    /// As [`Plan::submit`], and says when each node before [`Program::sampling_start`] began and ended, in order: a
    /// time each, by the device's own clock where it has one. Returns when they are done.
    ///
    /// A plan without clocks refuses.
    fn submit_timed(
        &mut self,
        _batch: &Batch,
        _state: &mut dyn State,
        _times: &mut Vec<NodeTime>,
    ) -> Result<StepId, DeviceError> {
        let reason = "this plan can't tell the times of its nodes".to_owned();
        Err(DeviceError::Unsupported { backend: "plan", op: "a timed step".to_owned(), reason })
    }

    /// From now on, or no longer, looks at when the device works on steps; says what was seen where that ends. `None` from a plan
    /// whose device has no clock of its own.
    fn watch(&mut self, _is_on: bool) -> Result<Option<DeviceUse>, DeviceError> {
        Ok(None)
    }

    /// Draws the tokens that a submitted step asks for: a row for each output that wants a token, in order.
    fn sample(&mut self, step: StepId, rows: &SampleRows, state: &mut dyn State) -> Result<(), DeviceError>;

    /// Waits for a step and returns what was asked for. Each step is waited for once.
    fn wait(&mut self, step: StepId) -> Result<StepOutput, DeviceError>;

    /// A handle for another thread, to give up the running step between two ops.
    fn interrupter(&self) -> Interrupter;

    /// What lies in memory of it, weights aside; as [`State::bytes`].
    fn bytes(&self) -> PlanBytes;
}

/// How long a device had steps, by its own clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceUse {
    /// From the first step's beginning to the last one's end.
    pub whole: Duration,
    /// What of it went into kernels that compute and draw; copies are no work.
    pub working: Duration,
}

/// Bytes of a plan.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PlanBytes {
    /// Values of steps.
    pub scratch: u64,
    /// Captured graphs.
    pub graphs: u64,
}

/// Bytes of a state, by what they are for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StateBytes {
    /// Keys and values.
    pub pages: u64,
    /// Banks of recurrent slots.
    pub slots: u64,
    /// What drafted rows left whose fate is not decided.
    pub candidates: u64,
    /// Recurrent snapshots.
    pub snapshots: u64,
}

impl StateBytes {
    /// All of them.
    pub fn total(&self) -> u64 {
        let Self { pages, slots, candidates, snapshots } = *self;
        [slots, candidates, snapshots].into_iter().fold(pages, u64::saturating_add)
    }
}

/// When a node ran, from the step's beginning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeTime {
    /// When it began.
    pub start: Duration,
    /// When it ended.
    pub end: Duration,
}

/// Is shown a node: its place in [`Program::nodes`], the node, and each of its outputs as `[rows, width]` float32,
/// row-major; ids are shown as the numbers that they are.
pub type NodeObserver<'a> = dyn FnMut(usize, &Node, &[&[f32]]) + 'a;

/// State of all sequences: pages, recurrent slots, sampling histories. Each call is ordered with the steps.
pub trait State: Any + Send {
    /// Copies pages within a group: from the first to the second of each pair.
    fn copy_pages(&mut self, group: GroupId, copies: &[(PageId, PageId)]) -> Result<(), DeviceError>;

    /// The pages are not read before they are written again, so their memory may go back to the system until then. A device
    /// that can't part with some of its memory keeps it.
    fn forget_pages(&mut self, _group: GroupId, _pages: &[PageId]) -> Result<(), DeviceError> {
        Ok(())
    }

    /// Says how many rows of each sequence of a step stand, so that its recurrent candidates become state.
    fn accept(&mut self, step: StepId, rows: &[u32]) -> Result<(), DeviceError>;

    /// Copies a bank of recurrent state.
    fn snapshot(&mut self, bank: crate::RecurrentBank) -> Result<SnapshotId, DeviceError>;

    /// Copies a snapshot into a bank.
    fn restore(&mut self, snapshot: SnapshotId, bank: crate::RecurrentBank) -> Result<(), DeviceError>;

    /// Frees a snapshot.
    fn forget(&mut self, snapshot: SnapshotId) -> Result<(), DeviceError>;

    /// Starts a sampling history: the tokens of the prompt, those generated so far, and what the last draw left.
    fn start_history(&mut self, slot: SamplerSlot, history: History) -> Result<(), DeviceError>;

    /// What lies in memory of it. Where the system gives memory when it is first touched, that is what was touched.
    fn bytes(&self) -> StateBytes;

    /// For the backend that made it.
    fn as_any(&self) -> &dyn Any;

    /// For the backend that made it.
    fn as_any_mut(&mut self) -> &mut dyn Any;
}

/// How much state to allocate.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Budget {
    /// Pages of each group.
    pub pages: Vec<u32>,
    /// Recurrent slots, each of two banks.
    pub recurrent_slots: u32,
    /// Recurrent snapshots.
    pub snapshots: u32,
    /// Sampling histories.
    pub sampler_slots: u32,
    /// Sequences, over all steps in flight, whose rows may fall; 0 where nothing drafts.
    pub candidates: u32,
    /// Rows of each of them in a step, the first included that stands in any case.
    pub candidate_rows: u32,
}

/// The largest batch that a plan is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchLimits {
    /// Rows.
    pub rows: usize,
    /// Sequences.
    pub sequences: usize,
    /// Rows whose result is asked for.
    pub outputs: usize,
    /// Tokens of one sequence, those of the batch included.
    pub context: usize,
}

/// How to draw each token that a step asks for.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SampleRows {
    /// One for each output that wants a token, in order.
    pub rows: Vec<SampleRow>,
}

/// What a step found.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StepOutput {
    /// One for each output that was asked for, in order.
    pub outputs: Vec<OutputResult>,
    /// Rows of each sequence that stand, where the program accepts drafts.
    pub accepted: Vec<u32>,
}

/// What was asked for of one row.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OutputResult {
    /// The sampled token.
    pub token: Option<TokenId>,
    /// Log-probabilities before any filter.
    pub logprobs: Option<TokenLogprobs>,
    /// All scores, `[vocabulary]`.
    pub logits: Option<Vec<f32>>,
    /// The hidden state, `[width]`.
    pub hidden: Option<Vec<f32>>,
    /// The pooled vector of the row's sequence, `[width]`.
    pub pooled: Option<Vec<f32>>,
    /// The running parameter after the token, where a sampler steers.
    pub running: Option<Running>,
    /// Whether any score was not a finite number; the token is then not to be used.
    pub not_finite: bool,
}

/// Log-probabilities of one row.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TokenLogprobs {
    /// Of the sampled token, where there is one.
    pub sampled: Option<f32>,
    /// The most likely tokens, most likely first, ties to the lower id.
    pub top: Vec<(TokenId, f32)>,
}

/// Tells a running step, from another thread, to give up between two ops.
#[derive(Clone, Debug, Default)]
pub struct Interrupter(Arc<AtomicBool>);

impl Interrupter {
    /// Asks the plan to give up; the step in progress fails with [`DeviceError::Interrupted`].
    pub fn interrupt(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether that was asked since the last call; for plans.
    pub fn take(&self) -> bool {
        self.0.swap(false, Ordering::Relaxed)
    }
}

/// Why a device can't do what it was asked to.
#[derive(Debug, thiserror::Error)]
pub enum DeviceError {
    /// A weight can't be had.
    #[error(transparent)]
    Weight(#[from] WeightError),
    /// The batch contradicts itself or the layout.
    #[error("the batch is malformed: {0}")]
    Batch(#[from] BatchError),
    /// The backend has no kernel for an operation.
    #[error("backend `{backend}` can't run `{op}`: {reason}")]
    Unsupported {
        /// The backend.
        backend: &'static str,
        /// The operation.
        op: String,
        /// What exactly is missing.
        reason: String,
    },
    /// There isn't enough memory.
    #[error("out of memory: {what} needs {needed} bytes")]
    OutOfMemory {
        /// What it was for.
        what: String,
        /// How much it needs.
        needed: u64,
    },
    /// A page, slot, step or capture that doesn't exist, or no longer.
    #[error("{what} {number} does not exist: {reason}")]
    Unknown {
        /// What was named.
        what: &'static str,
        /// Its number.
        number: u64,
        /// What exists.
        reason: String,
    },
    /// An id that the vocabulary doesn't have.
    #[error("token id {id} is outside of the vocabulary of {vocabulary}")]
    UnknownToken {
        /// The id.
        id: u32,
        /// Entries of the vocabulary.
        vocabulary: usize,
    },
    /// The device failed, or its driver did; what it holds is lost.
    #[error("backend `{backend}` failed: {reason}")]
    Failed {
        /// The backend.
        backend: &'static str,
        /// What the driver said, and where.
        reason: String,
    },
    /// The step was told to give up.
    #[error("the step was interrupted")]
    Interrupted,
}
