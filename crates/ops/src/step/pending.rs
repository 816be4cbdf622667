//! A step that was submitted and not waited for: what it answers, and the nodes that wait for the draws.

use super::{Resolved, Sampled, accept, sample, unknown};
use crate::sampling::{Draw, Drawer, History, SampleRow, logprobs};
use crate::{
    Batch, DeviceError, Node, Op, OutputKind, OutputResult, Program, SampleRows, StepId, StepOutput, TokenId,
    ValueId,
};

/// The values of a step that are still read after its forward pass.
pub trait StepValues {
    /// A row of a value of numbers.
    fn row(&self, value: ValueId, row: usize) -> &[f32];

    /// A value of ids; a row without one carries an embedding or was not sampled.
    fn ids(&self, value: ValueId) -> &[Option<u32>];

    /// Keeps a value of ids that sampling made.
    fn keep_ids(&mut self, value: ValueId, ids: Vec<Option<u32>>);
}

/// A step between its forward pass and the moment when it is waited for.
#[derive(Debug)]
pub struct PendingStep<V> {
    resolved: Resolved,
    values: V,
    output: StepOutput,
    is_sampled: bool,
}

impl<V: StepValues> PendingStep<V> {
    /// A step whose forward pass has run; `output` is its [`answer`].
    pub fn new(resolved: Resolved, values: V, output: StepOutput) -> Self {
        Self { resolved, values, output, is_sampled: false }
    }

    /// Runs the nodes from [`Program::sampling_start`] on.
    pub fn sample(
        &mut self,
        program: &Program,
        rows: &SampleRows,
        histories: &mut [History],
        drawer: &mut Drawer<'_>,
    ) -> Result<Sampled, DeviceError> {
        let rows = self.resolved.moved(&rows.rows)?;
        let mut sampled =
            Sampled { tokens: Vec::new(), rejected: vec![0; self.resolved.batch.sequences.len()] };
        for node in &program.nodes[program.sampling_start()..] {
            let made = self.node(node, &rows, histories, drawer)?;
            if node.op == Op::Accept {
                sampled.rejected = self.rejected(&made);
            }
            self.values.keep_ids(node.outputs[0], made);
        }
        if let Some(tokens) = program.output(OutputKind::Tokens) {
            sampled.tokens = self.values.ids(tokens).iter().map(|id| id.map(TokenId)).collect();
        }
        if let Some(accepted) = program.output(OutputKind::Accepted) {
            self.output.accepted = self.values.ids(accepted).iter().flatten().copied().collect();
        }
        for (result, token) in self.output.outputs.iter_mut().zip(&sampled.tokens) {
            result.token = *token;
        }
        self.is_sampled = true;
        Ok(sampled)
    }

    /// An error as long as an output waits for its token.
    pub fn check_finished(&self, step: StepId) -> Result<(), DeviceError> {
        if self.resolved.batch.outputs.iter().any(|output| output.want.token) && !self.is_sampled {
            return Err(unknown("step", step.0, "an output wants a token and it was not sampled yet"));
        }
        Ok(())
    }

    /// What the step found, and its values for reuse.
    pub fn finish(self) -> (StepOutput, V) {
        (self.output, self.values)
    }

    fn node(
        &mut self,
        node: &Node,
        rows: &[SampleRow],
        histories: &mut [History],
        drawer: &mut Drawer<'_>,
    ) -> Result<Vec<Option<u32>>, DeviceError> {
        let input = node.inputs[0];
        if let Op::MapIds { table } = &node.op {
            return map_ids(self.values.ids(input), table);
        }
        let batch = &self.resolved.batch;
        if node.op == Op::Accept {
            let standing = accept(self.values.ids(input), batch);
            return Ok(standing.into_iter().map(Some).collect());
        }
        let values = &self.values;
        let draws = sample(&|output| values.row(input, output), batch, rows, histories, drawer)?;
        let token = |draw: &Option<Draw>| draw.and_then(|draw| draw.token);
        for (number, result) in self.output.outputs.iter_mut().enumerate() {
            let draw = draws[number];
            result.not_finite |= draw.is_some_and(|draw| draw.not_finite);
            result.running = draw.and_then(|draw| draw.running);
            let want = batch.outputs[number].want;
            let Some(top) = want.logprobs else { continue };
            result.logprobs = drawer.logprobs(values.row(input, number), token(&draw).or(want.scored), top);
            result.not_finite |= result.logprobs.is_none();
        }
        Ok(draws.iter().map(|draw| token(draw).map(|token| token.0)).collect())
    }

    /// Drafts of each sequence that don't stand.
    fn rejected(&self, standing: &[Option<u32>]) -> Vec<u32> {
        let sequences = self.resolved.batch.sequences.iter().zip(standing);
        sequences.map(|(sequence, standing)| sequence.rows.len() as u32 - standing.unwrap_or(0)).collect()
    }
}

/// The target's id for each id of a drafter.
pub fn map_ids(ids: &[Option<u32>], table: &[u32]) -> Result<Vec<Option<u32>>, DeviceError> {
    let vocabulary = table.len();
    let map = |id: u32| table.get(id as usize).copied().ok_or(DeviceError::UnknownToken { id, vocabulary });
    ids.iter().map(|id| id.map(map).transpose()).collect()
}

/// What is asked for and known before sampling.
pub fn answer(program: &Program, batch: &Batch, values: &dyn StepValues) -> Result<StepOutput, DeviceError> {
    let logits = program.output(OutputKind::Logits).or_else(|| sampled_logits(program));
    let mut outputs = Vec::new();
    // Where tokens are drawn, log-probabilities come with them.
    let is_drawn = batch.outputs.iter().any(|output| output.want.token);
    for (number, asked) in batch.outputs.iter().enumerate() {
        let of = |wanted: bool, value: Option<ValueId>, row: usize| match (wanted, value) {
            (false, _) => Ok(None),
            (true, Some(value)) => Ok(Some(values.row(value, row).to_vec())),
            (true, None) => Err(not_returned(program, number)),
        };
        let (want, sequence) = (asked.want, batch.rows[asked.row as usize].sequence as usize);
        if want.token && program.output(OutputKind::Tokens).is_none() {
            return Err(not_returned(program, number));
        }
        let scores = of(want.logits || want.logprobs.is_some() && !is_drawn, logits, number)?;
        let hidden = of(want.hidden, program.output(OutputKind::Hidden), number)?;
        let pooled = of(want.pooled, program.output(OutputKind::Pooled), sequence)?;
        let not_finite = [&scores, &hidden, &pooled].into_iter().flatten().flatten().any(|x| !x.is_finite());
        outputs.push(OutputResult {
            token: None,
            logprobs: want
                .logprobs
                .zip(scores.as_ref().filter(|_| !is_drawn))
                .map(|(top, scores)| logprobs(scores, want.scored, top)),
            not_finite,
            running: None,
            logits: scores.filter(|_| want.logits),
            hidden,
            pooled,
        });
    }
    Ok(StepOutput { outputs, accepted: Vec::new() })
}

fn not_returned(program: &Program, output: usize) -> DeviceError {
    unknown("output", output as u64, format!("program `{}` doesn't return what is asked of it", program.name))
}

/// The scores that are sampled from.
fn sampled_logits(program: &Program) -> Option<ValueId> {
    program.nodes.iter().find(|node| node.op == Op::Sample).map(|node| node.inputs[0])
}
