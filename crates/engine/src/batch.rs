//! From a step's plan to the flat arrays that a backend reads.

use crate::scheduler::{Part, StepPlan};
use crate::sequence::{Running, Sequence};
use gannet_ops::sampling::SampleRow;
use gannet_ops::{
    Batch, Length, Output, PageTable, Row, RowKind, SampleRows, SequenceRows, TokenId, TokenSource, Want,
};
use std::ops::Range;

/// Steps as a backend reads them, each in the memory of the one before.
#[derive(Default)]
pub(crate) struct Assembler {
    pub(crate) batch: Batch,
    spare_tables: Vec<Vec<PageTable>>,
}

impl Assembler {
    /// Assembles the rows of a step, and how to draw its tokens.
    pub(crate) fn assemble(&mut self, plan: &StepPlan, running: &[Running], draws: &mut SampleRows) {
        let Batch { rows, sequences, outputs, pages, handed, embeddings } = &mut self.batch;
        self.spare_tables.extend(sequences.drain(..).map(|sequence| sequence.tables));
        rows.clear();
        outputs.clear();
        pages.clear();
        // Sequences that go on take no more memory, whatever pages they begin.
        pages.reserve(running.iter().map(|running| running.state.room()).sum());
        handed.clear();
        embeddings.clear();
        draws.rows.clear();
        assemble(plan, running, (&mut self.batch, draws), &mut self.spare_tables);
    }
}

/// Appends the rows of a step, and how to draw its tokens. The parts stand in the order of the running sequences.
fn assemble(
    plan: &StepPlan,
    running: &[Running],
    (batch, draws): (&mut Batch, &mut SampleRows),
    spare_tables: &mut Vec<Vec<PageTable>>,
) {
    let mut others = running.iter();
    for part in &plan.parts {
        let is_it = |other: &&Running| other.sequence.id == part.id;
        let running = others.find(is_it).expect("a part's sequence is running");
        let first_row = batch.rows.len() as u32;
        push_sequence(batch, running, part, spare_tables.pop().unwrap_or_default());
        for index in part.scores.clone() {
            let row = first_row + (index - part.tokens.start) as u32;
            batch.outputs.push(Output { row, want: score_of(&running.sequence, index) });
        }
        if part.draws {
            push_output(batch, running);
            if running.sequence.goal.is_none() {
                draws.rows.push(sample_row(running));
            }
        }
    }
}

fn push_sequence(batch: &mut Batch, running: &Running, part: &Part, mut tables: Vec<PageTable>) {
    let sequence = &running.sequence;
    let is_prompt = part.tokens.start < sequence.prompt_tokens();
    let kind = if is_prompt { RowKind::Prompt } else { RowKind::Decode };
    let rows = push_rows(batch, sequence.sources(part.tokens.clone()), part.tokens.start, kind);
    tables.clear();
    running.state.tables(&mut batch.pages, &mut tables);
    batch.sequences.push(SequenceRows {
        rows,
        length: Length::Exact(part.tokens.start as u32),
        tables,
        recurrent: running.state.banks(),
        sampler: sequence.goal.is_none().then_some(running.slot),
        adapter: None,
    });
}

/// Appends a row a token of the sequence that is pushed next; returns their range.
fn push_rows(
    batch: &mut Batch,
    tokens: impl Iterator<Item = TokenSource>,
    first_index: usize,
    kind: RowKind,
) -> Range<u32> {
    let start = batch.rows.len() as u32;
    let sequence = batch.sequences.len() as u32;
    for (place, token) in tokens.enumerate() {
        let index = (first_index + place) as u32;
        batch.rows.push(Row { sequence, token, index, position: [index; 3], kind });
    }
    start..batch.rows.len() as u32
}

fn push_output(batch: &mut Batch, running: &Running) {
    let row = batch.rows.len() as u32 - 1;
    let want = match &running.sequence.goal {
        Some(_) => Want { pooled: true, ..Want::default() },
        None => Want { token: true, logprobs: running.sequence.request.logprobs, ..Want::default() },
    };
    batch.outputs.push(Output { row, want });
}

/// How likely the prompt's token after an index is.
fn score_of(sequence: &Sequence, index: usize) -> Want {
    let scored = Some(sequence.tokens[index + 1]);
    Want { scored, logprobs: sequence.request.prompt_logprobs, ..Want::default() }
}

fn sample_row(running: &Running) -> SampleRow {
    let sequence = &running.sequence;
    let request = &sequence.request;
    let generated = sequence.total() - sequence.prompt_tokens();
    let is_short = generated < request.min_tokens as usize;
    SampleRow {
        sampling: request.sampling.clone(),
        seed: request.seed,
        choice: request.choice,
        index: sequence.total() as u32,
        allowed: None,
        banned: is_short.then(|| request.end_tokens.as_slice().into()),
    }
}

/// A batch of one sequence that asks for the scores of each row from `wanted_from` on.
pub(crate) fn scores_of(
    tokens: &[TokenId],
    first_index: usize,
    wanted_from: usize,
    state: &crate::state::SequenceState,
) -> Batch {
    let mut batch = Batch::default();
    let known = tokens.iter().copied().map(TokenSource::Known);
    let rows = push_rows(&mut batch, known, first_index, RowKind::Prompt);
    let want = Want { logits: true, ..Want::default() };
    let is_wanted = |row: &u32| first_index + *row as usize >= wanted_from;
    batch.outputs = rows.clone().filter(is_wanted).map(|row| Output { row, want }).collect();
    let mut tables: Vec<PageTable> = Vec::new();
    state.tables(&mut batch.pages, &mut tables);
    batch.sequences.push(SequenceRows {
        rows,
        length: Length::Exact(first_index as u32),
        tables,
        recurrent: state.banks(),
        sampler: None,
        adapter: None,
    });
    batch
}
