//! A step that was submitted and not waited for: what it answers, and the nodes that wait for the draws.

use super::{Resolved, Sampled, Scores, Steps, accept, sample, unknown};
use crate::sampling::{Draw, Drawer, History, SampleRow, logprobs};
use crate::{
    Batch, DeviceError, Node, Op, OutputKind, OutputResult, Program, SampleRows, StepId, StepOutput, TokenId,
    TokenLogprobs, ValueId,
};
use std::borrow::Cow;

/// What is known of a row's log-probabilities.
#[derive(Clone, Debug, PartialEq)]
pub enum RowLogprobs {
    /// Nothing: they follow from its scores.
    Unknown,
    /// A score is not a finite number.
    NotFinite,
    /// What the device found.
    Found(TokenLogprobs),
}

/// The values of a step that are still read after its forward pass.
pub trait StepValues {
    /// What the device has drawn of a row of scores already, by the parameters that it was given; its scores are then
    /// not asked for.
    fn drawn(&self, value: ValueId, row: usize) -> Option<Draw>;

    /// What the device has found of the log-probabilities of a row of scores; where it has, its scores are not asked for.
    fn logprobs(&self, value: ValueId, row: usize) -> RowLogprobs;

    /// A row of a value of numbers.
    fn row(&self, value: ValueId, row: usize) -> &[f32];

    /// A value of ids; a row without one carries an embedding or was not sampled.
    fn ids(&self, value: ValueId) -> &[Option<u32>];

    /// A value of ids that sampling makes, to be filled.
    fn ids_mut(&mut self, value: ValueId) -> &mut Vec<Option<u32>>;
}

/// Values of ids that a step keeps for sampling and for its output; a later step has them with their memory.
#[derive(Clone, Debug, Default)]
pub struct KeptIds(Vec<(ValueId, Vec<Option<u32>>)>);

impl KeptIds {
    /// Forgets all ids.
    pub fn clear(&mut self) {
        self.0.iter_mut().for_each(|(_, ids)| ids.clear());
    }

    /// The ids of a value; none where it has none.
    pub fn of(&self, value: ValueId) -> &[Option<u32>] {
        self.0.iter().find(|(id, _)| *id == value).map_or(&[], |(_, ids)| ids)
    }

    /// The ids of a value, to be filled.
    pub fn of_mut(&mut self, value: ValueId) -> &mut Vec<Option<u32>> {
        let known = self.0.iter().position(|(id, _)| *id == value);
        let place = known.unwrap_or_else(|| {
            self.0.push((value, Vec::new()));
            self.0.len() - 1
        });
        &mut self.0[place].1
    }
}

/// A step between its submission and the moment when it is waited for. One that was waited for serves a later step, with
/// its memory.
#[derive(Debug, Default)]
pub struct PendingStep<V> {
    pub(super) resolved: Resolved,
    /// What sampling reads.
    pub values: V,
    output: StepOutput,
    draws: Vec<Option<Draw>>,
    standing: Vec<u32>,
    is_sampled: bool,
}

impl<V: StepValues> PendingStep<V> {
    /// Begins with a batch, made known against earlier steps over this state.
    pub fn begin<K>(&mut self, batch: &Batch, steps: &Steps<K>) -> Result<(), DeviceError> {
        self.is_sampled = false;
        self.resolved.fill(batch, steps)
    }

    /// The batch, all known.
    pub fn batch(&self) -> &Batch {
        &self.resolved.batch
    }

    /// How to draw each token, as far as it is known: a row for each output that wants one.
    ///
    /// # Errors
    /// Another number of rows.
    pub fn draw_rows<'a>(&self, rows: &'a SampleRows) -> Result<Cow<'a, [SampleRow]>, DeviceError> {
        self.resolved.moved(&rows.rows)
    }

    /// Says, after the forward pass, what is asked for and known before sampling. `space` is memory for it.
    pub fn answer(
        &mut self,
        program: &Program,
        values: &dyn StepValues,
        space: StepOutput,
    ) -> Result<(), DeviceError> {
        self.output = space;
        answer(program, &self.resolved.batch, values, &mut self.output)
    }

    /// Runs the nodes from [`Program::sampling_start`] on, and says what they decided.
    pub fn sample(
        &mut self,
        program: &Program,
        rows: &SampleRows,
        (histories, drawer): (&mut [History], &mut Drawer<'_>),
        sampled: &mut Sampled,
    ) -> Result<(), DeviceError> {
        sampled.rejected.clear();
        sampled.rejected.resize(self.resolved.batch.sequences.len(), 0);
        sampled.tokens.clear();
        for node in &program.nodes[program.sampling_start()..] {
            self.node(node, rows, (histories, drawer))?;
            if node.op == Op::Accept {
                let sequences = self.resolved.batch.sequences.iter().zip(&self.standing);
                let rejected = sequences.map(|(sequence, standing)| sequence.rows.len() as u32 - standing);
                sampled.rejected.clear();
                sampled.rejected.extend(rejected);
            }
        }
        if let Some(tokens) = program.output(OutputKind::Tokens) {
            sampled.tokens.extend(self.values.ids(tokens).iter().map(|id| id.map(TokenId)));
        }
        if let Some(accepted) = program.output(OutputKind::Accepted) {
            self.output.accepted.extend(self.values.ids(accepted).iter().flatten());
        }
        for (result, token) in self.output.outputs.iter_mut().zip(&sampled.tokens) {
            result.token = *token;
        }
        self.is_sampled = true;
        Ok(())
    }

    /// An error as long as an output waits for its token.
    pub fn check_finished(&self, step: StepId) -> Result<(), DeviceError> {
        if self.resolved.batch.outputs.iter().any(|output| output.want.token) && !self.is_sampled {
            return Err(unknown("step", step.0, "an output wants a token and it was not sampled yet"));
        }
        Ok(())
    }

    /// Takes out what the step found.
    pub fn take_output(&mut self) -> StepOutput {
        std::mem::take(&mut self.output)
    }

    fn node(
        &mut self,
        node: &Node,
        rows: &SampleRows,
        (histories, drawer): (&mut [History], &mut Drawer<'_>),
    ) -> Result<(), DeviceError> {
        let (input, made) = (node.inputs[0], node.outputs[0]);
        if let Op::MapIds { table } = &node.op {
            let mapped = map_ids(self.values.ids(input), table)?;
            *self.values.ids_mut(made) = mapped;
            return Ok(());
        }
        if node.op == Op::Accept {
            accept(self.values.ids(input), &self.resolved.batch, &mut self.standing);
            replace(self.values.ids_mut(made), self.standing.iter().copied().map(Some));
            return Ok(());
        }
        let rows = self.resolved.moved(&rows.rows)?;
        let (batch, values) = (&self.resolved.batch, &self.values);
        let scores = |output| match values.drawn(input, output) {
            Some(draw) => Scores::Drawn(draw),
            None => Scores::Row(values.row(input, output)),
        };
        sample(&scores, batch, &rows, histories, (drawer, &mut self.draws))?;
        let token = |draw: &Option<Draw>| draw.and_then(|draw| draw.token);
        for (number, result) in self.output.outputs.iter_mut().enumerate() {
            let draw = self.draws[number];
            result.not_finite |= draw.is_some_and(|draw| draw.not_finite);
            result.running = draw.and_then(|draw| draw.running);
            let want = batch.outputs[number].want;
            let Some(top) = want.logprobs else { continue };
            result.logprobs = match values.logprobs(input, number) {
                RowLogprobs::Found(found) => Some(found),
                RowLogprobs::NotFinite => None,
                RowLogprobs::Unknown => {
                    drawer.logprobs(values.row(input, number), token(&draw).or(want.scored), top)
                }
            };
            result.not_finite |= result.logprobs.is_none();
        }
        let ids = self.draws.iter().map(|draw| token(draw).map(|token| token.0));
        replace(self.values.ids_mut(made), ids);
        Ok(())
    }
}

/// Fills a list anew, in its memory.
fn replace(list: &mut Vec<Option<u32>>, ids: impl Iterator<Item = Option<u32>>) {
    list.clear();
    list.extend(ids);
}

/// The target's id for each id of a drafter.
pub fn map_ids(ids: &[Option<u32>], table: &[u32]) -> Result<Vec<Option<u32>>, DeviceError> {
    let vocabulary = table.len();
    let map = |id: u32| table.get(id as usize).copied().ok_or(DeviceError::UnknownToken { id, vocabulary });
    ids.iter().map(|id| id.map(map).transpose()).collect()
}

/// Fills `answer` with what is asked for and known before sampling.
fn answer(
    program: &Program,
    batch: &Batch,
    values: &dyn StepValues,
    answer: &mut StepOutput,
) -> Result<(), DeviceError> {
    let StepOutput { outputs, accepted } = answer;
    outputs.clear();
    accepted.clear();
    let logits = program.output(OutputKind::Logits).or_else(|| sampled_logits(program));
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
    Ok(())
}

fn not_returned(program: &Program, output: usize) -> DeviceError {
    unknown("output", output as u64, format!("program `{}` doesn't return what is asked of it", program.name))
}

/// The scores that are sampled from.
fn sampled_logits(program: &Program) -> Option<ValueId> {
    program.nodes.iter().find(|node| node.op == Op::Sample).map(|node| node.inputs[0])
}
