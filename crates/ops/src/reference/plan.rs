//! Steps of one program: submit runs the model, sample draws, wait hands over.

use super::resolve::{Resolved, resolve};
use super::run::{Run, ids, numbers};
use super::sample::{accept, sample};
use super::state::{ReferenceState, Sampled, StepMemory};
use super::values::Made;
use super::weights::{Weight, ours};
use super::{rows, unknown, unsupported};
use crate::sampling::{Draw, logprobs};
use crate::{
    Batch, DeviceError, Interrupter, Node, NodeObserver, Op, OutputKind, OutputResult, Plan, Program, SampleRows, State,
    StepId, StepOutput, TokenId, ValueId, Weights, verify,
};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A program with its weights.
#[derive(Debug)]
pub struct ReferencePlan {
    program: Program,
    weights: Vec<Arc<Weight>>,
    steps: Arc<AtomicU64>,
    /// For each value, the last node that reads it; `None` where it is to be kept.
    last_reader: Vec<Option<usize>>,
    pending: HashMap<StepId, Pending>,
    interrupter: Interrupter,
}

/// A step that was submitted and not waited for.
#[derive(Debug)]
struct Pending {
    resolved: Resolved,
    values: Vec<Option<Made>>,
    output: StepOutput,
    sampled: bool,
}

impl ReferencePlan {
    pub(super) fn new(program: &Program, weights: &dyn Weights, steps: &Arc<AtomicU64>) -> Result<Self, DeviceError> {
        verify(program).map_err(|error| unsupported(&program.name, error.to_string()))?;
        Ok(Self {
            weights: ours(weights)?.of(program)?,
            program: program.clone(),
            steps: steps.clone(),
            last_reader: last_readers(program),
            pending: HashMap::new(),
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
        let resolved = resolve(batch, &state.steps)?;
        let step = StepId(self.steps.fetch_add(1, Ordering::Relaxed));
        let values = vec![None; self.program.values.len()];
        let memory = StepMemory::new(step, batch);
        let (program, weights, batch) = (&self.program, &self.weights[..], &resolved.batch);
        let mut run = Run { program, weights, batch, state, values, memory };
        run.inputs()?;
        for (place, node) in program.nodes[..program.sampling_start()].iter().enumerate() {
            self.check_interrupt()?;
            run.node(node)?;
            show(place, node, &run.values, observe);
            self.drop_read(place, &mut run.values);
        }
        let Run { values, memory, state, .. } = run;
        let output = answer(program, batch, &values)?;
        state.steps.remember(memory);
        self.pending.insert(step, Pending { resolved, values, output, sampled: false });
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

    fn sample(&mut self, step: StepId, rows: &SampleRows, state: &mut dyn State) -> Result<(), DeviceError> {
        self.check_interrupt()?;
        let state = ReferenceState::ours(state, &self.program)?;
        let pending = self.pending.get_mut(&step).ok_or_else(|| not_pending(step))?;
        let mut sampled = Sampled { tokens: Vec::new(), rejected: vec![0; pending.resolved.batch.sequences.len()] };
        for node in &self.program.nodes[self.program.sampling_start()..] {
            let made = pending.sampling_node(node, rows, state)?;
            if let (Op::Accept, Made::Ids(standing)) = (&node.op, &made) {
                sampled.rejected = pending.rejected(standing);
            }
            pending.values[node.outputs[0].0 as usize] = Some(made);
        }
        pending.finish(&self.program, &mut sampled);
        state.steps.get_mut(step)?.sampled = Some(sampled);
        Ok(())
    }

    fn wait(&mut self, step: StepId) -> Result<StepOutput, DeviceError> {
        let pending = self.pending.get(&step).ok_or_else(|| not_pending(step))?;
        if pending.resolved.batch.outputs.iter().any(|output| output.want.token) && !pending.sampled {
            return Err(unknown("step", step.0, "an output wants a token and it was not sampled yet"));
        }
        let pending = self.pending.remove(&step);
        Ok(pending.expect("it was found above").output)
    }

    fn interrupter(&self) -> Interrupter {
        self.interrupter.clone()
    }
}

impl Pending {
    /// Runs one of the nodes that come last.
    fn sampling_node(
        &mut self,
        node: &Node,
        rows: &SampleRows,
        state: &mut ReferenceState,
    ) -> Result<Made, DeviceError> {
        let batch = &self.resolved.batch;
        let input = node.inputs[0];
        if let Op::MapIds { table } = &node.op {
            return Ok(Made::Ids(rows::map_ids(ids(&self.values, input), table)?));
        }
        if node.op == Op::Accept {
            let standing = accept(ids(&self.values, input), batch);
            return Ok(Made::Ids(standing.into_iter().map(Some).collect()));
        }
        let logits = numbers(&self.values, input);
        let rows = self.resolved.moved(&rows.rows)?;
        let draws = sample(logits, batch, &rows, &mut state.histories)?;
        let token = |draw: &Option<Draw>| draw.and_then(|draw| draw.token);
        for (number, result) in self.output.outputs.iter_mut().enumerate() {
            let draw = draws[number];
            result.not_finite |= draw.is_some_and(|draw| draw.not_finite);
            let top = batch.outputs[number].want.logprobs;
            result.logprobs = top.map(|top| logprobs(logits.row(number), token(&draw), top));
        }
        Ok(Made::Ids(draws.iter().map(|draw| token(draw).map(|token| token.0)).collect()))
    }

    /// Drafts of each sequence that don't stand.
    fn rejected(&self, standing: &[Option<u32>]) -> Vec<u32> {
        let sequences = self.resolved.batch.sequences.iter().zip(standing);
        sequences.map(|(sequence, standing)| sequence.rows.len() as u32 - standing.unwrap_or(0)).collect()
    }

    /// Puts what sampling found where it is asked for.
    fn finish(&mut self, program: &Program, sampled: &mut Sampled) {
        if let Some(tokens) = program.output(OutputKind::Tokens) {
            sampled.tokens = ids(&self.values, tokens).iter().map(|id| id.map(TokenId)).collect();
        }
        if let Some(accepted) = program.output(OutputKind::Accepted) {
            self.output.accepted = ids(&self.values, accepted).iter().flatten().copied().collect();
        }
        for (result, token) in self.output.outputs.iter_mut().zip(&sampled.tokens) {
            result.token = *token;
        }
        self.sampled = true;
    }
}

/// What is asked for and known before sampling.
fn answer(program: &Program, batch: &Batch, values: &[Option<Made>]) -> Result<StepOutput, DeviceError> {
    let logits = program.output(OutputKind::Logits).or_else(|| sampled_logits(program));
    let mut outputs = Vec::new();
    for (number, asked) in batch.outputs.iter().enumerate() {
        let of = |wanted: bool, value: Option<ValueId>, name: &str, row: usize| match (wanted, value) {
            (false, _) => Ok(None),
            (true, Some(value)) => Ok(Some(numbers(values, value).row(row).to_vec())),
            (true, None) => Err(unsupported(name, format!("program `{}` doesn't return it", program.name))),
        };
        let (want, sequence) = (asked.want, batch.rows[asked.row as usize].sequence as usize);
        if want.token && program.output(OutputKind::Tokens).is_none() {
            return Err(unsupported("sample", format!("program `{}` doesn't sample", program.name)));
        }
        let scores = of(want.logits || want.logprobs.is_some(), logits, "logits", number)?;
        let hidden = of(want.hidden, program.output(OutputKind::Hidden), "hidden", number)?;
        let pooled = of(want.pooled, program.output(OutputKind::Pooled), "pooled", sequence)?;
        let not_finite = [&scores, &hidden, &pooled].into_iter().flatten().flatten().any(|x| !x.is_finite());
        outputs.push(OutputResult {
            token: None,
            logprobs: want.logprobs.zip(scores.as_ref()).map(|(top, scores)| logprobs(scores, None, top)),
            not_finite,
            logits: scores.filter(|_| want.logits),
            hidden,
            pooled,
        });
    }
    Ok(StepOutput { outputs, accepted: Vec::new() })
}

/// The scores that are sampled from.
fn sampled_logits(program: &Program) -> Option<ValueId> {
    program.nodes.iter().find(|node| node.op == Op::Sample).map(|node| node.inputs[0])
}

fn last_readers(program: &Program) -> Vec<Option<usize>> {
    let mut last = vec![None; program.values.len()];
    for (place, node) in program.nodes.iter().enumerate() {
        // What sampling reads, and what a fused body makes for itself, lives until the step is waited for.
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
    let shown: Vec<Vec<f32>> =
        node.outputs.iter().filter_map(|id| values[id.0 as usize].as_ref().map(Made::shown)).collect();
    observe(place, node, &shown.iter().map(Vec::as_slice).collect::<Vec<_>>());
}

fn not_pending(step: StepId) -> DeviceError {
    unknown("step", step.0, "it was not submitted to this plan, or was waited for")
}
