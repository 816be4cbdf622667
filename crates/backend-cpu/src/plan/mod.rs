//! A compiled program: its weights found, its values given places in memory, its steps run at once.
//!
//! `submit` runs the forward pass on the team and returns when it is done; `sample` draws on the host, as
//! `ops::step` and `ops::sampling` say, with the team for the passes over whole rows. In a steady decode step no value's memory is allocated anew.

mod products;
mod run;
mod stateful;
mod values;

use crate::backend::{Machine, unknown, unsupported};
use crate::kernels::rope::Angles;
use crate::kernels::{Crew, attention};
use crate::state::{CpuState, Kept};
use crate::weights::{CpuWeights, Weight};
use gannet_ops::sampling::{Drawer, Workspace};
use gannet_ops::step::PendingStep;
use gannet_ops::{
    Batch, BatchLimits, DeviceError, FusedKind, Interrupter, NodeObserver, NodeTime, Op, Plan, PlanBytes,
    Program, Readiness, RopeTable, SampleRows, State, StateEntry, StepId, StepOutput, Team, WeightRole,
    Weights, unfuse, verify,
};
use run::{Run, Space};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;
use values::{KeptValues, Values};

/// A program that is ready to run.
pub(crate) struct CpuPlan {
    machine: Arc<Machine>,
    program: Program,
    weights: Vec<Arc<Weight>>,
    limits: BatchLimits,
    values: Values,
    /// The angles of each distinct rope.
    ropes: Vec<(Arc<RopeTable>, Angles)>,
    pending: HashMap<StepId, PendingStep<KeptValues>>,
    /// Steps that were waited for, and outputs that came back, whose memory the next ones use.
    spare: Vec<PendingStep<KeptValues>>,
    spare_outputs: Vec<StepOutput>,
    /// Memory of what a step makes of its batch.
    space: Space,
    /// Memory of draws.
    workspace: Workspace,
    interrupter: Interrupter,
}

/// What a step is asked for beside its result.
enum Watch<'a, 'b> {
    Nothing,
    /// What each node makes.
    Values(&'a mut NodeObserver<'b>),
    /// When each node ran.
    Times(&'a mut Vec<NodeTime>),
}

impl CpuPlan {
    pub(crate) fn new(
        machine: &Arc<Machine>,
        program: &Program,
        weights: &dyn Weights,
        limits: &BatchLimits,
    ) -> Result<Self, DeviceError> {
        verify(program).map_err(|error| unsupported(&program.name, error.to_string()))?;
        let program = &unfuse(program, &|kind, _| kind == FusedKind::AddRmsNorm);
        machine.with_crew(|crew| reserve(crew, program, limits));
        Ok(Self {
            machine: Arc::clone(machine),
            weights: find_weights(program, weights)?,
            limits: *limits,
            values: Values::new(program, limits)?,
            ropes: ropes(program),
            pending: HashMap::new(),
            spare: Vec::new(),
            spare_outputs: Vec::new(),
            space: Space::default(),
            workspace: Workspace::default(),
            interrupter: Interrupter::default(),
            program: program.clone(),
        })
    }

    fn run(
        &mut self,
        batch: &Batch,
        state: &mut dyn State,
        watch: &mut Watch<'_, '_>,
    ) -> Result<StepId, DeviceError> {
        batch.check(&self.program.state)?;
        self.check_limits(batch)?;
        let state = CpuState::ours(state, &self.program)?;
        let mut pending = self.spare.pop().unwrap_or_default();
        pending.begin(batch, &state.steps)?;
        let step = self.machine.next_step();
        let kept = self.forward(pending.batch(), state, watch)?;
        let space = self.spare_outputs.pop().unwrap_or_default();
        pending.answer(&self.program, &self.values, space)?;
        state.steps.remember(step, batch, kept);
        pending.values.keep(&self.program, batch, &self.values);
        self.pending.insert(step, pending);
        Ok(step)
    }

    /// Runs the nodes before sampling.
    fn forward(
        &mut self,
        batch: &Batch,
        state: &mut CpuState,
        watch: &mut Watch<'_, '_>,
    ) -> Result<Kept, DeviceError> {
        let Self { machine, program, weights, values, ropes, interrupter, space, .. } = self;
        let started = Instant::now();
        machine.with_crew(|crew| {
            let mut run = Run::new(program, weights, (batch, ropes, space), state, values, crew)?;
            let nodes = &program.nodes[..program.sampling_start()];
            let mut place = 0;
            while place < nodes.len() {
                if interrupter.take() {
                    return Err(DeviceError::Interrupted);
                }
                // What is timed runs apart, so that each node has a time of its own.
                if let Watch::Times(times) = watch {
                    let start = started.elapsed();
                    run.node(&nodes[place])?;
                    times.push(NodeTime { start, end: started.elapsed() });
                    place += 1;
                    continue;
                }
                let end = place + run.together(&nodes[place..]);
                run.nodes(&nodes[place..end])?;
                if let Watch::Values(observe) = watch {
                    (place..end).for_each(|place| run.show(place, &nodes[place], observe));
                }
                place = end;
            }
            Ok(run.finish())
        })
    }

    fn check_limits(&self, batch: &Batch) -> Result<(), DeviceError> {
        let BatchLimits { rows, sequences, outputs, .. } = self.limits;
        let found = [
            ("row", batch.rows.len(), rows),
            ("sequence", batch.sequences.len(), sequences),
            ("output", batch.outputs.len(), outputs),
        ];
        match found.into_iter().find(|(_, found, most)| found > most) {
            Some((what, found, most)) => Err(unknown(
                what,
                found as u64 - 1,
                format!("the plan was compiled for at most {most} a batch"),
            )),
            None => Ok(()),
        }
    }
}

/// Takes what attention needs beside values, for all of its nodes.
fn reserve(crew: &mut Crew<'_>, program: &Program, limits: &BatchLimits) {
    for node in &program.nodes {
        if let Op::Attention(op) = &node.op
            && let Some(StateEntry::Paged(layout)) = program.state.entries.get(op.state.0 as usize)
        {
            attention::reserve(crew, (op.heads, layout), (limits.rows, limits.context));
        }
    }
}

impl Plan for CpuPlan {
    fn make_ready(&mut self, state: &mut dyn State) -> Result<Readiness, DeviceError> {
        let more = CpuState::ours(state, &self.program)?.pools.make_ready();
        Ok(if more { Readiness::Useful } else { Readiness::Done })
    }

    fn team(&self) -> Option<&dyn Team> {
        Some(&*self.machine)
    }

    fn submit(&mut self, batch: &Batch, state: &mut dyn State) -> Result<StepId, DeviceError> {
        self.run(batch, state, &mut Watch::Nothing)
    }

    fn submit_traced(
        &mut self,
        batch: &Batch,
        state: &mut dyn State,
        observe: &mut NodeObserver<'_>,
    ) -> Result<StepId, DeviceError> {
        self.run(batch, state, &mut Watch::Values(observe))
    }

    fn submit_timed(
        &mut self,
        batch: &Batch,
        state: &mut dyn State,
        times: &mut Vec<NodeTime>,
    ) -> Result<StepId, DeviceError> {
        times.clear();
        self.run(batch, state, &mut Watch::Times(times))
    }

    fn sample(&mut self, step: StepId, rows: &SampleRows, state: &mut dyn State) -> Result<(), DeviceError> {
        if self.interrupter.take() {
            return Err(DeviceError::Interrupted);
        }
        let state = CpuState::ours(state, &self.program)?;
        let pending = self.pending.get_mut(&step).ok_or_else(|| not_pending(step))?;
        let (program, workspace, histories) = (&self.program, &mut self.workspace, &mut state.histories);
        let memory = state.steps.get_mut(step)?;
        self.machine.with_crew(|crew| {
            let mut drawer = Drawer { passes: crew, workspace };
            let with = (&mut histories[..], &mut drawer);
            memory.decide(|sampled| pending.sample(program, rows, with, sampled))
        })
    }

    fn wait(&mut self, step: StepId) -> Result<StepOutput, DeviceError> {
        self.pending.get(&step).ok_or_else(|| not_pending(step))?.check_finished(step)?;
        let mut finished = self.pending.remove(&step).expect("it was found above");
        let output = finished.take_output();
        self.spare.push(finished);
        Ok(output)
    }

    fn reuse(&mut self, output: StepOutput) {
        self.spare_outputs.push(output);
    }

    fn interrupter(&self) -> Interrupter {
        self.interrupter.clone()
    }

    fn bytes(&self) -> PlanBytes {
        let kept = self.pending.values().chain(&self.spare).map(|step| step.values.bytes());
        PlanBytes { scratch: self.values.bytes() + kept.sum::<u64>(), graphs: 0 }
    }
}

fn not_pending(step: StepId) -> DeviceError {
    unknown("step", step.0, "it was not submitted to this plan, or was waited for")
}

/// The uploaded weight of each that the program reads, in memory as its role needs it.
fn find_weights(program: &Program, weights: &dyn Weights) -> Result<Vec<Arc<Weight>>, DeviceError> {
    let ours = weights.as_any().downcast_ref::<CpuWeights>();
    let ours =
        ours.ok_or_else(|| unsupported(&program.name, "the weights were uploaded to another backend"))?;
    let find = |used: &gannet_ops::WeightUse| {
        let weight = ours.get(used)?;
        let is_vector = matches!(used.role, WeightRole::Vector | WeightRole::Convolution);
        if is_vector == matches!(*weight, Weight::Vector(_)) {
            return Ok(weight);
        }
        Err(unsupported(&program.name, format!("weight `{}` was uploaded for another role", used.name)))
    };
    program.weights.iter().map(find).collect()
}

/// The distinct ropes of a program.
fn ropes(program: &Program) -> Vec<(Arc<RopeTable>, Angles)> {
    let mut found: Vec<(Arc<RopeTable>, Angles)> = Vec::new();
    for node in &program.nodes {
        if let Op::Rope(rope) = &node.op
            && !found.iter().any(|(table, _)| is_same(table, &rope.table))
        {
            found.push((Arc::clone(&rope.table), Angles::default()));
        }
    }
    found
}

/// Whether two tables have the same angles. Layers usually share one.
fn is_same(a: &Arc<RopeTable>, b: &Arc<RopeTable>) -> bool {
    Arc::ptr_eq(a, b) || a == b
}
