//! Steps of one program: submit runs the model, and `step` does what every backend does around it.

use super::run::Run;
use super::state::{KeptRows, ReferenceState};
use super::unsupported;
use super::values::Made;
use super::weights::{Weight, ours};
use crate::sampling::passes::PlainPasses;
use crate::sampling::{Draw, Drawer, Workspace};
use crate::step::{PendingStep, RowLogprobs, StepValues};
use crate::{
    Batch, DeviceError, Interrupter, Node, NodeObserver, NodeTime, Plan, PlanBytes, Program, SampleRows,
    State, StepId, StepOutput, ValueId, Weights, verify,
};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// A program with its weights.
#[derive(Debug)]
pub struct ReferencePlan {
    program: Program,
    weights: Vec<Arc<Weight>>,
    steps: Arc<AtomicU64>,
    /// For each value, the last node that reads it; `None` where it is to be kept.
    last_reader: Vec<Option<usize>>,
    pending: HashMap<StepId, PendingStep<Values>>,
    workspace: Workspace,
    interrupter: Interrupter,
}

/// The values of a step, by their ids.
#[derive(Debug, Default)]
struct Values(Vec<Option<Made>>);

impl ReferencePlan {
    pub(super) fn new(
        program: &Program,
        weights: &dyn Weights,
        steps: &Arc<AtomicU64>,
    ) -> Result<Self, DeviceError> {
        verify(program).map_err(|error| unsupported(&program.name, error.to_string()))?;
        Ok(Self {
            weights: ours(weights)?.of(program)?,
            program: program.clone(),
            steps: steps.clone(),
            last_reader: last_readers(program),
            pending: HashMap::new(),
            workspace: Workspace::default(),
            interrupter: Interrupter::default(),
        })
    }

    fn run(
        &mut self,
        batch: &Batch,
        state: &mut dyn State,
        observe: &mut NodeObserver<'_>,
    ) -> Result<StepId, DeviceError> {
        batch.check(&self.program.state)?;
        let state = ReferenceState::ours(state, &self.program)?;
        let mut pending = PendingStep::<Values>::default();
        pending.begin(batch, &state.steps)?;
        let (program, weights, known) = (&self.program, &self.weights[..], pending.batch());
        let values = vec![None; program.values.len()];
        let mut run =
            Run { program, weights, batch: known, state: &mut *state, values, kept: KeptRows::default() };
        run.inputs()?;
        for (place, node) in program.nodes[..program.sampling_start()].iter().enumerate() {
            self.check_interrupt()?;
            run.node(node)?;
            show(place, node, &run.values, observe);
            self.drop_read(place, &mut run.values);
        }
        let Run { values, kept, .. } = run;
        let values = Values(values);
        pending.answer(program, &values, StepOutput::default())?;
        pending.values = values;
        let step = StepId(self.steps.fetch_add(1, Ordering::Relaxed));
        state.steps.remember(step, batch, kept);
        self.pending.insert(step, pending);
        Ok(step)
    }

    fn check_interrupt(&self) -> Result<(), DeviceError> {
        if self.interrupter.take() { Err(DeviceError::Interrupted) } else { Ok(()) }
    }

    /// Frees the values that no later node reads.
    fn drop_read(&self, place: usize, values: &mut [Option<Made>]) {
        for (value, last) in values.iter_mut().zip(&self.last_reader) {
            if *last == Some(place) {
                *value = None;
            }
        }
    }
}

impl Plan for ReferencePlan {
    fn submit(&mut self, batch: &Batch, state: &mut dyn State) -> Result<StepId, DeviceError> {
        self.run(batch, state, &mut |_, _, _| {})
    }

    fn submit_traced(
        &mut self,
        batch: &Batch,
        state: &mut dyn State,
        observe: &mut NodeObserver<'_>,
    ) -> Result<StepId, DeviceError> {
        self.run(batch, state, observe)
    }

    fn submit_timed(
        &mut self,
        batch: &Batch,
        state: &mut dyn State,
        times: &mut Vec<NodeTime>,
    ) -> Result<StepId, DeviceError> {
        times.clear();
        let started = Instant::now();
        let mut start = Duration::ZERO;
        self.run(batch, state, &mut |_, _, _| {
            let end = started.elapsed();
            times.push(NodeTime { start, end });
            start = end;
        })
    }

    fn sample(&mut self, step: StepId, rows: &SampleRows, state: &mut dyn State) -> Result<(), DeviceError> {
        self.check_interrupt()?;
        let state = ReferenceState::ours(state, &self.program)?;
        let pending = self.pending.get_mut(&step).ok_or_else(|| not_pending(step))?;
        let (passes, workspace) = (&mut PlainPasses, &mut self.workspace);
        let mut drawer = Drawer { passes, workspace };
        let (program, with) = (&self.program, (&mut state.histories[..], &mut drawer));
        state.steps.get_mut(step)?.decide(|sampled| pending.sample(program, rows, with, sampled))
    }

    fn wait(&mut self, step: StepId) -> Result<StepOutput, DeviceError> {
        self.pending.get(&step).ok_or_else(|| not_pending(step))?.check_finished(step)?;
        let mut finished = self.pending.remove(&step).expect("it was found above");
        Ok(finished.take_output())
    }

    fn interrupter(&self) -> Interrupter {
        self.interrupter.clone()
    }

    /// What it computes with lives as long as a call.
    fn bytes(&self) -> PlanBytes {
        PlanBytes::default()
    }
}

impl StepValues for Values {
    fn drawn(&self, _value: ValueId, _row: usize) -> Option<Draw> {
        None
    }

    fn logprobs(&self, _value: ValueId, _row: usize) -> RowLogprobs {
        RowLogprobs::Unknown
    }

    fn row(&self, value: ValueId, row: usize) -> &[f32] {
        self.made(value).numbers().row(row)
    }

    fn ids(&self, value: ValueId) -> &[Option<u32>] {
        self.made(value).ids()
    }

    fn ids_mut(&mut self, value: ValueId) -> &mut Vec<Option<u32>> {
        match self.0[value.0 as usize].insert(Made::Ids(Vec::new())) {
            Made::Ids(ids) => ids,
            Made::Numbers(_) => unreachable!("ids were put here"),
        }
    }
}

impl Values {
    fn made(&self, value: ValueId) -> &Made {
        self.0[value.0 as usize].as_ref().expect("what sampling reads, and what is returned, is kept")
    }
}

fn last_readers(program: &Program) -> Vec<Option<usize>> {
    let mut last = vec![None; program.values.len()];
    for (place, node) in program.nodes.iter().enumerate() {
        // What sampling reads lives until the step is waited for.
        for id in &node.inputs {
            last[id.0 as usize] = (place < program.sampling_start()).then_some(place);
        }
    }
    for (_, id) in &program.outputs {
        last[id.0 as usize] = None;
    }
    last
}

fn show(place: usize, node: &Node, values: &[Option<Made>], observe: &mut NodeObserver<'_>) {
    let made = node.outputs.iter().filter_map(|id| values[id.0 as usize].as_ref());
    let shown: Vec<Vec<f32>> = made.map(Made::shown).collect();
    observe(place, node, &shown.iter().map(Vec::as_slice).collect::<Vec<_>>());
}

fn not_pending(step: StepId) -> DeviceError {
    super::unknown("step", step.0, "it was not submitted to this plan, or was waited for")
}
