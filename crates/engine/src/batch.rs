//! From a step's plan to the flat arrays that a backend reads.

use crate::scheduler::{Scheduled, StepPlan};
use crate::sequence::Sequence;
use gannet_ops::sampling::SampleRow;
use gannet_ops::{
    Batch, Length, Output, PageId, Row, RowKind, SampleRows, SequenceRows, TokenId, TokenSource, Want,
};

/// Assembles the rows of a step and how to draw its tokens.
pub(crate) fn assemble(plan: &StepPlan, running: &[Sequence]) -> (Batch, SampleRows) {
    let mut batch = Batch::default();
    let mut draws = SampleRows::default();
    for part in &plan.scheduled {
        let sequence = &running[part.running];
        push_sequence(&mut batch, sequence, part);
        if part.draws {
            push_output(&mut batch, sequence);
            draws.rows.push(sample_row(sequence));
        }
    }
    (batch, draws)
}

fn push_sequence(batch: &mut Batch, sequence: &Sequence, part: &Scheduled) {
    let tokens = &sequence.tokens[part.tokens.clone()];
    let is_prompt = part.tokens.start < sequence.prompt_tokens();
    let kind = if is_prompt { RowKind::Prompt } else { RowKind::Decode };
    let rows = push_rows(batch, tokens, part.tokens.start, kind);
    let tables = sequence.pages.tables(&mut batch.pages);
    batch.sequences.push(SequenceRows {
        rows,
        length: Length::Exact(part.tokens.start as u32),
        tables,
        recurrent: None,
        sampler: Some(sequence.sampler),
        adapter: None,
    });
}

/// Appends a row a token of the sequence that is pushed next; returns their range.
pub(crate) fn push_rows(
    batch: &mut Batch,
    tokens: &[TokenId],
    first_index: usize,
    kind: RowKind,
) -> std::ops::Range<u32> {
    let start = batch.rows.len() as u32;
    let sequence = batch.sequences.len() as u32;
    for (place, token) in tokens.iter().enumerate() {
        let index = (first_index + place) as u32;
        let token = TokenSource::Known(*token);
        batch.rows.push(Row { sequence, token, index, position: [index; 3], kind });
    }
    start..batch.rows.len() as u32
}

fn push_output(batch: &mut Batch, sequence: &Sequence) {
    let row = batch.rows.len() as u32 - 1;
    let want = Want { token: true, logprobs: sequence.request.logprobs, ..Want::default() };
    batch.outputs.push(Output { row, want });
}

fn sample_row(sequence: &Sequence) -> SampleRow {
    SampleRow {
        sampling: sequence.request.sampling.clone(),
        seed: sequence.request.seed,
        choice: 0,
        index: sequence.tokens.len() as u32,
        allowed: None,
    }
}

/// A batch of one sequence that asks for the scores of each row from `wanted_from` on.
pub(crate) fn scores_of(
    tokens: &[TokenId],
    first_index: usize,
    wanted_from: usize,
    tables: impl FnOnce(&mut Vec<PageId>) -> Vec<gannet_ops::PageTable>,
) -> Batch {
    let mut batch = Batch::default();
    let rows = push_rows(&mut batch, tokens, first_index, RowKind::Prompt);
    let want = Want { logits: true, ..Want::default() };
    let is_wanted = |row: &u32| first_index + *row as usize >= wanted_from;
    batch.outputs = rows.clone().filter(is_wanted).map(|row| Output { row, want }).collect();
    let tables = tables(&mut batch.pages);
    batch.sequences.push(SequenceRows {
        rows,
        length: Length::Exact(first_index as u32),
        tables,
        recurrent: None,
        sampler: None,
        adapter: None,
    });
    batch
}
