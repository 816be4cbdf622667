//! Steps as captured graphs: one for each number of rows up to 16, then coarser ones, whose rows beyond a batch's are none. Sequences
//! with several rows have graphs of their own, whose items of attention take more memory of a multiprocessor.
//!
//! A row names its sequence, so one graph fits every mixture of sequences with few rows, whatever their lengths: lists lie at places
//! that follow from the number of rows, and attention walks a list of items. Rows that are none write to a page of their own,
//! and what they make is not looked at. A graph belongs to the memory of a step ([`Kept`]), whose lists, scores and tokens it
//! names; it is captured again where other memory that it names has moved.

use super::CudaPlan;
use super::kept::Kept;
use super::metadata::{Fit, Metadata, Padding};
use super::work::SPLIT_ROWS_MAX;
use crate::backend::STEPS_IN_FLIGHT;
use crate::driver::{Graph, Launch};
use crate::state::CudaState;
use crate::units::Uses;
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
    padding: Padding,
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

    fn find(&self, padding: Padding, over: Over) -> Option<&Graph> {
        self.0.iter().find(|known| known.padding == padding && known.over == over).map(|known| &known.graph)
    }

    fn keep(&mut self, captured: Captured) {
        self.0.retain(|known| known.padding != captured.padding);
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

    /// The sizes of all graphs, in the order in which they are wanted.
    fn paddings(&self) -> impl Iterator<Item = Padding> + use<> {
        let (most, context) = (self.graph_rows_max().unwrap_or(0), self.limits.context);
        [1, SPLIT_ROWS_MAX].into_iter().flat_map(move |sequence_rows| {
            let sizes = sizes(most).filter(move |rows| *rows > 1 || sequence_rows == 1);
            sizes.map(move |rows| Padding { rows, sequence_rows, context })
        })
    }

    /// The graph whose lists are the longest; `None` where there are no graphs.
    pub(super) fn largest_padding(&self) -> Option<Padding> {
        self.paddings().last()
    }

    /// How long the lists of a batch are: those of a graph where one fits it.
    pub(super) fn fit_of(&self, batch: &Batch) -> Fit {
        let groups = self.program.state.groups.len();
        // Without outputs, the last products and the scores of a graph would be for nothing.
        let is_wanted = !batch.outputs.is_empty();
        let fits = |padding: &Padding| is_wanted && Metadata::fits(batch, *padding, groups);
        self.paddings().find(fits).map_or(Fit::Exact, Fit::Padded)
    }

    /// Replays the graph of these sizes; its lists were filled.
    pub(super) fn replay(
        &self,
        padding: Padding,
        state: &CudaState,
        kept: &mut Kept,
    ) -> Result<(), DeviceError> {
        if self.interrupter.take() {
            return Err(DeviceError::Interrupted);
        }
        let over = self.over(state);
        if kept.graphs.find(padding, over).is_none() {
            self.capture(padding, state, kept)?;
        }
        let graph = kept.graphs.find(padding, over).expect("it was captured");
        Ok(graph.replay()?)
    }

    fn over(&self, state: &CudaState) -> Over {
        Over { state: state.number, partials_moved: self.partials_moved }
    }

    fn capture(&self, padding: Padding, state: &CudaState, kept: &mut Kept) -> Result<(), DeviceError> {
        let nodes = &self.program.nodes[..self.program.sampling_start()];
        let folds = Some(&self.folds);
        let calls = self.with_frame((padding.rows, padding.rows), (state, &*kept), folds, |frame| {
            let mut calls = Vec::new();
            for node in nodes {
                calls.extend(frame.calls(node)?);
            }
            calls.extend(self.sampled.into_iter().flat_map(|logits| frame.argmax(logits, kept.greedy())));
            Ok::<_, DeviceError>(calls)
        })?;
        let launches: Vec<Launch<'_>> = calls.iter().map(|call| self.launch(call)).collect();
        let graph = Graph::capture(&self.device.driver, &launches)?;
        kept.graphs.keep(Captured { padding, over: self.over(state), graph });
        Ok(())
    }

    /// Captures the first graph that is missing over the memory of the steps that may be in flight.
    pub(super) fn capture_next(&mut self, state: &mut dyn State) -> Result<Readiness, DeviceError> {
        let state = CudaState::ours(state, &self.program)?;
        let missing_steps = STEPS_IN_FLIGHT.saturating_sub(self.spare.len() + self.flights.len());
        self.spare.extend((0..missing_steps).map(|_| PendingStep::default()));
        let over = self.over(state);
        let of_each = |padding: Padding| (0..self.spare.len()).map(move |spare| (padding, spare));
        let mut missing = self
            .paddings()
            .flat_map(of_each)
            .filter(|(padding, spare)| self.spare[*spare].values.graphs.find(*padding, over).is_none());
        let (now, next) = (missing.next(), missing.next());
        drop(missing);
        if let Some((padding, spare)) = now {
            let mut pending = self.spare.remove(spare);
            let captured = self
                .prepare(
                    (&Batch::default(), Fit::Padded(padding)),
                    (state, &Uses::default()),
                    &mut pending.values,
                )
                .and_then(|()| self.capture(padding, state, &mut pending.values));
            self.spare.insert(spare, pending);
            captured?;
        }
        Ok(match next {
            Some((Padding { rows: ..=EACH_ROWS_MAX, sequence_rows: 1, .. }, _)) => Readiness::Needed,
            Some(_) => Readiness::Useful,
            None => Readiness::Done,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{CudaBackend, CudaOptions};
    use gannet_ops::*;
    use gannet_tensor::Format;
    use std::borrow::Cow;
    use std::sync::Arc;

    /// The program's only matrix: row i is i at every place.
    struct Table;

    impl WeightSource for Table {
        fn weight(&self, _name: &str) -> Result<WeightTensor<'_>, WeightError> {
            let numbers = (0..10u8).flat_map(|row| [f32::from(row); 8]);
            let bytes: Vec<u8> = numbers.flat_map(f32::to_le_bytes).collect();
            Ok(WeightTensor { format: Format::F32, shape: vec![10, 8], bytes: Cow::Owned(bytes) })
        }
    }

    fn batch(ids: &[u32]) -> Batch {
        let rows = ids.iter().enumerate().map(|(number, id)| Row {
            sequence: number as u32,
            token: TokenSource::Known(TokenId(*id)),
            index: 0,
            position: [0; 3],
            kind: RowKind::Prompt,
        });
        let sequence = |number: u32| SequenceRows {
            rows: number..number + 1,
            length: Length::Exact(0),
            tables: Vec::new(),
            recurrent: None,
            sampler: None,
            adapter: None,
        };
        let want = Want { logits: true, ..Want::default() };
        let count = ids.len() as u32;
        Batch {
            rows: rows.collect(),
            sequences: (0..count).map(sequence).collect(),
            outputs: (0..count).map(|row| Output { row, want }).collect(),
            ..Batch::default()
        }
    }

    #[test]
    fn graphs_are_captured_once_before_the_first_step_and_serve_all_numbers_of_rows() {
        let layout = StateLayout { groups: Vec::new(), entries: Vec::new(), sampler: None };
        let mut b = ProgramBuilder::new("target", Arc::new(layout));
        let ids = b.ids();
        let table = b.weight("table", &[10, 8], WeightRole::TiedEmbedding);
        let x = b.embed(table, &[ids]);
        let x = b.select_outputs(x);
        let logits = b.linear(x, table, None);
        b.output(OutputKind::Logits, logits);
        let program = b.finish();
        let backend = CudaBackend::simulated(&CudaOptions::default());
        let weights = backend.upload(&Table, &program.weights).expect("they can be uploaded");
        let mut state = backend.allocate(&program.state, &Budget::default()).expect("it is empty");
        let limits = BatchLimits { rows: 40, sequences: 40, outputs: 40, context: 64 };
        let mut plan = backend.plan(&program, weights.as_ref(), &limits).expect("it can be compiled");
        let mut found = Vec::new();
        while found.last() != Some(&Readiness::Done) {
            found.push(plan.make_ready(state.as_mut()).expect("it can be captured"));
        }
        let (needed, useful) = (vec![Readiness::Needed; 31], vec![Readiness::Useful; 38]);
        assert_eq!(found, [needed, useful, vec![Readiness::Done]].concat());
        let kept: Vec<usize> = plan.spare.iter().map(|step| step.values.graphs.0.len()).collect();
        assert_eq!(
            kept,
            [35, 35],
            "of each step in flight 1 to 16, 24 and 32, and for more rows a sequence from 2 on"
        );
        for count in [1, 3, 17, 32, 33] {
            let ids: Vec<u32> = (0..count).map(|row| row % 10).collect();
            let step = plan.submit(&batch(&ids), state.as_mut()).expect("it runs");
            let output = plan.wait(step).expect("it ends");
            for (id, output) in ids.iter().zip(&output.outputs) {
                let expected: Vec<f32> = (0..10).map(|row| (8 * id * row) as f32).collect();
                assert_eq!(output.logits.as_deref(), Some(&expected[..]), "{count} rows");
            }
            let kept = plan.spare[plan.spare.len() - 1].values.graphs.0.len();
            assert_eq!(kept, if count > 32 { 0 } else { 35 }, "{count} rows: only other memory ends them");
        }
    }
}
