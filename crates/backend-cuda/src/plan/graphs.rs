//! Steps as captured graphs: one for each number of rows up to 16, then coarser ones, whose rows beyond a batch's are none.
//!
//! A row names its sequence, so one graph fits every mixture of sequences with few rows, whatever their lengths: lists lie at places
//! that follow from the number of rows, and attention walks a list of items. Rows that are none write to a page of their own,
//! and what they make is not looked at. A graph belongs to the memory of a step ([`Kept`]), whose lists, scores and tokens it
//! names; it is captured again where other memory that it names has moved.

use super::CudaPlan;
use super::kept::Kept;
use super::metadata::{Fit, Metadata};
use crate::driver::{Graph, Launch};
use crate::state::CudaState;
use gannet_ops::step::PendingStep;
use gannet_ops::{Batch, DeviceError, Readiness, State};

/// Every number of rows up to this has a graph of its own, captured before the first request.
const EACH_ROWS_MAX: usize = 16;
/// Rows of the coarser graphs. Beyond, launching takes less time than the kernels.
const COARSE_ROWS: [usize; 6] = [24, 32, 48, 64, 96, 128];

/// The graphs over one step's memory.
#[derive(Default)]
pub(super) struct Graphs(Vec<Captured>);

struct Captured {
    rows: usize,
    over: Over,
    graph: Graph,
}

/// What a graph names beside the plan's own memory and its step's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Over {
    /// The number of the state.
    state: u64,
    /// How often the partial sums had moved.
    partials_moved: u64,
}

impl Graphs {
    /// Forgets all, because memory that they name is about to go.
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    fn find(&self, rows: usize, over: Over) -> Option<&Graph> {
        self.0.iter().find(|known| known.rows == rows && known.over == over).map(|known| &known.graph)
    }

    fn keep(&mut self, captured: Captured) {
        self.0.retain(|known| known.rows != captured.rows);
        self.0.push(captured);
    }
}

/// Numbers of rows that have graphs, up to `most`.
fn sizes(most: usize) -> impl Iterator<Item = usize> {
    (1..=EACH_ROWS_MAX).chain(COARSE_ROWS).filter(move |rows| *rows <= most)
}

impl CudaPlan {
    /// The most rows of a graph; `None` where steps are launched kernel by kernel.
    pub(super) fn graph_rows_max(&self) -> Option<usize> {
        let has_graphs = !self.device.no_graphs && self.device.driver.properties().has_graphs();
        has_graphs.then(|| sizes(self.limits.rows.min(self.limits.outputs)).last()).flatten()
    }

    /// How long the lists of a batch are: those of a graph where one fits it.
    pub(super) fn fit_of(&self, batch: &Batch) -> Fit {
        let groups = self.program.state.groups.len();
        let context = self.limits.context;
        let most = self.graph_rows_max().unwrap_or(0);
        // Without outputs, the last products and the scores of a graph would be for nothing.
        let is_wanted = !batch.outputs.is_empty();
        let fits = |rows: &usize| is_wanted && Metadata::fits(batch, (*rows, context), groups);
        sizes(most).find(fits).map_or(Fit::Exact, |rows| Fit::Padded { rows, context })
    }

    /// Replays the graph of so many rows; its lists were filled.
    pub(super) fn replay(&self, rows: usize, state: &CudaState, kept: &mut Kept) -> Result<(), DeviceError> {
        if self.interrupter.take() {
            return Err(DeviceError::Interrupted);
        }
        let over = self.over(state);
        if kept.graphs.find(rows, over).is_none() {
            self.capture(rows, state, kept)?;
        }
        let graph = kept.graphs.find(rows, over).expect("it was captured");
        Ok(graph.replay()?)
    }

    fn over(&self, state: &CudaState) -> Over {
        Over { state: state.number, partials_moved: self.partials_moved }
    }

    fn capture(&self, rows: usize, state: &CudaState, kept: &mut Kept) -> Result<(), DeviceError> {
        let nodes = &self.program.nodes[..self.program.sampling_start()];
        let calls = self.with_frame((rows, rows), (state, &*kept), |frame| {
            let mut calls = Vec::new();
            for node in nodes {
                calls.extend(frame.calls(node)?);
            }
            calls.extend(self.sampled.map(|logits| frame.argmax(logits, kept.tokens())));
            Ok::<_, DeviceError>(calls)
        })?;
        let launches: Vec<Launch<'_>> = calls.iter().map(|call| self.launch(call)).collect();
        let graph = Graph::capture(&self.device.driver, &launches)?;
        kept.graphs.keep(Captured { rows, over: self.over(state), graph });
        Ok(())
    }

    /// Captures the smallest graph that is missing for the next step.
    pub(super) fn capture_next(&mut self, state: &mut dyn State) -> Result<Readiness, DeviceError> {
        let state = CudaState::ours(state, &self.program)?;
        let mut pending: PendingStep<Kept> = self.spare.pop().unwrap_or_default();
        let most = self.graph_rows_max().unwrap_or(0);
        let over = self.over(state);
        let missing = sizes(most).find(|rows| pending.values.graphs.find(*rows, over).is_none());
        if let Some(rows) = missing {
            let fit = Fit::Padded { rows, context: self.limits.context };
            self.prepare((&Batch::default(), fit), state, &mut pending.values)?;
            self.capture(rows, state, &mut pending.values)?;
        }
        self.spare.push(pending);
        Ok(match missing {
            Some(rows) if rows < EACH_ROWS_MAX.min(most) => Readiness::Needed,
            Some(rows) if rows < most => Readiness::Useful,
            Some(_) | None => Readiness::Done,
        })
    }
}
