//! One step's work as flat arrays: which tokens, where they stand in their sequences, and what is asked for.
//!
//! A batch is ragged: a sequence owns a range of rows, and a prompt's chunk, a decoding row and a block of
//! drafts differ in nothing but the number and kind of their rows. What only the device knows when the next
//! step is made (a sampled id, how many drafts were confirmed) is named, not awaited: see [`TokenSource`] and
//! [`Length`].

use crate::{CaptureId, PageId, SamplerSlot, StateLayout, StepId, TokenId};
use std::ops::Range;

/// The rows of one step.
///
/// `clone_from` takes no memory where the one that is overwritten was as large, and as much for pages as the other has: its
/// sequences may begin some.
#[derive(Debug, Default, PartialEq)]
pub struct Batch {
    /// One a token, sequence after sequence, ascending by index within one.
    pub rows: Vec<Row>,
    /// The sequences, in the order of their rows.
    pub sequences: Vec<SequenceRows>,
    /// The rows whose result is asked for, ascending by row.
    pub outputs: Vec<Output>,
    /// Pages of all tables; each [`PageTable`] names its range.
    pub pages: Vec<PageId>,
    /// Captured values of earlier steps, by the number that the program's `Handed` inputs carry.
    pub handed: Vec<Handed>,
    /// Rows for [`TokenSource::Embedding`], `[n, width]`.
    pub embeddings: Vec<f32>,
}

impl Clone for Batch {
    fn clone(&self) -> Self {
        let mut copy = Self::default();
        copy.clone_from(self);
        copy
    }

    fn clone_from(&mut self, other: &Self) {
        let Self { rows, sequences, outputs, pages, handed, embeddings } = other;
        self.rows.clone_from(rows);
        self.sequences.clone_from(sequences);
        self.outputs.clone_from(outputs);
        self.pages.clear();
        self.pages.reserve(pages.capacity());
        self.pages.extend_from_slice(pages);
        self.handed.clone_from(handed);
        self.embeddings.clone_from(embeddings);
    }
}

/// One token of one sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// The place of its sequence in [`Batch::sequences`].
    pub sequence: u32,
    /// What is computed on.
    pub token: TokenSource,
    /// Its place in the sequence's order of keys and values.
    pub index: u32,
    /// Its position on the three rope axes; all equal to the index for text.
    pub position: [u32; 3],
    /// Why it is in the batch.
    pub kind: RowKind,
}

/// Where a row's token comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenSource {
    /// The engine knows it.
    Known(TokenId),
    /// The token that output `output` of an earlier step sampled.
    Sampled {
        /// The step.
        step: StepId,
        /// The place in that step's outputs.
        output: u32,
    },
    /// No token: a row of [`Batch::embeddings`].
    Embedding(u32),
}

/// Why a row is in the batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RowKind {
    /// Part of a prompt.
    Prompt,
    /// The last token that is certain.
    Decode,
    /// The draft of this number, counted from 0; it stands only if it is confirmed.
    Draft(u32),
}

/// A sequence's part of a batch.
#[derive(Debug, PartialEq, Eq)]
pub struct SequenceRows {
    /// Its rows in [`Batch::rows`].
    pub rows: Range<u32>,
    /// Tokens before its first row.
    pub length: Length,
    /// Its pages, a table a group.
    pub tables: Vec<PageTable>,
    /// Its recurrent state, where the layout has any.
    pub recurrent: Option<RecurrentUse>,
    /// Its sampling history, where anything is sampled that depends on one. A step that names it also adds to it:
    /// the tokens that its rows sampled, as far as the rows stand. So a drafter's step names none.
    pub sampler: Option<SamplerSlot>,
    /// The adapter to apply.
    pub adapter: Option<u32>,
}

impl Clone for SequenceRows {
    fn clone(&self) -> Self {
        let Self { rows, length, tables, recurrent, sampler, adapter } = self;
        Self {
            rows: rows.clone(),
            length: *length,
            tables: tables.clone(),
            recurrent: *recurrent,
            sampler: *sampler,
            adapter: *adapter,
        }
    }

    fn clone_from(&mut self, other: &Self) {
        let mut tables = std::mem::take(&mut self.tables);
        tables.clone_from(&other.tables);
        let Self { rows, length, tables: _, recurrent, sampler, adapter } = other;
        *self = Self {
            rows: rows.clone(),
            length: *length,
            tables,
            recurrent: *recurrent,
            sampler: *sampler,
            adapter: *adapter,
        };
    }
}

/// Tokens of a sequence before a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Length {
    /// So many.
    Exact(u32),
    /// So many if step `after` confirms all drafts of its sequence `sequence`. For each that it rejects, the
    /// length, every index and position of this sequence's rows, every `Sampled` output that they name of that
    /// step, every row that they are handed from it, and the index of every [`crate::sampling::SampleRow`] of
    /// this sequence move down by one. The step must have been sampled before.
    AtMost {
        /// The length with all drafts confirmed.
        length: u32,
        /// The step that decides.
        after: StepId,
        /// The sequence's place in that step.
        sequence: u32,
    },
}

impl Length {
    /// The length with all drafts confirmed.
    pub fn at_most(self) -> u32 {
        match self {
            Length::Exact(length) | Length::AtMost { length, .. } => length,
        }
    }
}

/// The pages of one sequence in one group.
///
/// In a group of open pages the table lists a page for each page number that the step's rows have. Rows are written in
/// order, so several numbers may share a page where only the last one's keys outlive the step; the page of the first
/// row is read before and shared with no other number.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PageTable {
    /// Pages at the front that have left the window and are no longer listed.
    pub released: u32,
    /// The listed pages, in [`Batch::pages`].
    pub pages: Range<u32>,
}

/// One of the two copies of a slot's recurrent state: a step reads one and writes the other, so that the state
/// before a step survives it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RecurrentBank {
    /// The slot.
    pub slot: u32,
    /// 0 or 1.
    pub bank: u8,
}

/// The recurrent state that a sequence's rows start from and leave behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RecurrentUse {
    /// Read before the first row; `None` at the start of a sequence: all zero.
    pub read: Option<RecurrentBank>,
    /// Where the result goes.
    pub write: RecurrentWrite,
}

/// Where the recurrent state goes that a sequence's rows leave behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RecurrentWrite {
    /// Into this bank.
    Bank(RecurrentBank),
    /// Kept a row, until [`crate::State::accept`] says how many rows stand and moves that state into the bank.
    Candidates(RecurrentBank),
}

/// A row whose result is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Output {
    /// The row.
    pub row: u32,
    /// What of it.
    pub want: Want,
}

/// What is asked for of a row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Want {
    /// A sampled token.
    pub token: bool,
    /// The log-probabilities of the sampled token and of so many most likely ones.
    pub logprobs: Option<u32>,
    /// Where no token is sampled, the one whose log-probability is meant: that of a prompt, which is known.
    pub scored: Option<TokenId>,
    /// All scores.
    pub logits: bool,
    /// The hidden state.
    pub hidden: bool,
    /// The pooled vector of the row's sequence.
    pub pooled: bool,
}

/// Steps over one state whose captures, sampled tokens and candidates can still be named, the latest included.
pub const STEPS_REMEMBERED: usize = 16;

/// A captured value of an earlier step, and which of its rows each row of this batch takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Handed {
    /// The step that captured it.
    pub step: StepId,
    /// The capture.
    pub capture: CaptureId,
    /// For each row of this batch, the row of that step.
    pub row_map: Vec<u32>,
}

/// What is wrong with a batch; the engine's fault, never a client's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BatchError {
    /// Rows aren't grouped by sequence, or a range is not theirs.
    #[error("sequence {sequence} owns rows {range:?}, but row {row} belongs to sequence {found}")]
    WrongSequence {
        /// The sequence.
        sequence: usize,
        /// Its range.
        range: Range<u32>,
        /// The row.
        row: u32,
        /// Whose the row says it is.
        found: u32,
    },
    /// The ranges of the sequences don't cover the rows one after the other.
    #[error(
        "sequence {sequence} owns rows {range:?}, expected them to start at {expected} and end by {rows}"
    )]
    Gap {
        /// The sequence.
        sequence: usize,
        /// Its range.
        range: Range<u32>,
        /// Where it had to start.
        expected: u32,
        /// Rows of the batch.
        rows: usize,
    },
    /// An index isn't the length plus the row's place.
    #[error("row {row} has index {found}, expected {expected}")]
    WrongIndex {
        /// The row.
        row: u32,
        /// The index it has.
        found: u32,
        /// Length before plus place among the sequence's rows.
        expected: u32,
    },
    /// A sequence has a table too many or too few.
    #[error("sequence {sequence} has {found} page tables, the layout has {expected} groups")]
    WrongTables {
        /// The sequence.
        sequence: usize,
        /// Tables.
        found: usize,
        /// Groups.
        expected: usize,
    },
    /// A table names pages that the batch doesn't list.
    #[error("sequence {sequence}: page range {range:?} lies outside of the {pages} listed pages")]
    WrongPages {
        /// The sequence.
        sequence: usize,
        /// The range.
        range: Range<u32>,
        /// Pages of the batch.
        pages: usize,
    },
    /// The layout has recurrent state and the sequence names none.
    #[error("sequence {sequence} names no recurrent state, and the layout has some")]
    NoRecurrentState {
        /// The sequence.
        sequence: usize,
    },
    /// An output names no row, or outputs don't ascend.
    #[error("output {output} names row {row} of {rows}; outputs ascend by row")]
    WrongOutput {
        /// The output.
        output: usize,
        /// The row.
        row: u32,
        /// Rows of the batch.
        rows: usize,
    },
    /// A row map has another length than the batch has rows.
    #[error("handed value {handed} maps {found} rows, the batch has {expected}")]
    WrongRowMap {
        /// The entry of `handed`.
        handed: usize,
        /// Rows mapped.
        found: usize,
        /// Rows of the batch.
        expected: usize,
    },
}

impl Batch {
    /// The rows of a sequence.
    pub fn rows_of(&self, sequence: usize) -> &[Row] {
        let range = &self.sequences[sequence].rows;
        &self.rows[range.start as usize..range.end as usize]
    }

    /// The pages of a table.
    pub fn pages_of(&self, table: &PageTable) -> &[PageId] {
        &self.pages[table.pages.start as usize..table.pages.end as usize]
    }

    /// Checks everything that doesn't depend on earlier steps.
    pub fn check(&self, layout: &StateLayout) -> Result<(), BatchError> {
        let mut next = 0;
        for (sequence, rows) in self.sequences.iter().enumerate() {
            self.check_rows(sequence, rows, next)?;
            self.check_state(sequence, rows, layout)?;
            next = rows.rows.end;
        }
        if next as usize != self.rows.len() {
            let range = next..next;
            return Err(BatchError::Gap {
                sequence: self.sequences.len(),
                range,
                expected: next,
                rows: self.rows.len(),
            });
        }
        self.check_outputs()?;
        self.check_handed()
    }

    fn check_rows(&self, sequence: usize, part: &SequenceRows, expected: u32) -> Result<(), BatchError> {
        let range = part.rows.clone();
        if range.start != expected || range.end <= range.start || range.end as usize > self.rows.len() {
            return Err(BatchError::Gap { sequence, range, expected, rows: self.rows.len() });
        }
        for (place, row) in range.clone().enumerate() {
            let found = self.rows[row as usize];
            if found.sequence as usize != sequence {
                return Err(BatchError::WrongSequence { sequence, range, row, found: found.sequence });
            }
            let expected = part.length.at_most().saturating_add(place as u32);
            if found.index != expected {
                return Err(BatchError::WrongIndex { row, found: found.index, expected });
            }
        }
        Ok(())
    }

    fn check_state(
        &self,
        sequence: usize,
        part: &SequenceRows,
        layout: &StateLayout,
    ) -> Result<(), BatchError> {
        if part.tables.len() != layout.groups.len() {
            let (found, expected) = (part.tables.len(), layout.groups.len());
            return Err(BatchError::WrongTables { sequence, found, expected });
        }
        for table in &part.tables {
            let range = table.pages.clone();
            if range.start > range.end || range.end as usize > self.pages.len() {
                return Err(BatchError::WrongPages { sequence, range, pages: self.pages.len() });
            }
        }
        if layout.is_recurrent() && part.recurrent.is_none() {
            return Err(BatchError::NoRecurrentState { sequence });
        }
        Ok(())
    }

    fn check_outputs(&self) -> Result<(), BatchError> {
        let rows = self.rows.len();
        for (output, asked) in self.outputs.iter().enumerate() {
            let ascends = output == 0 || self.outputs[output - 1].row < asked.row;
            if asked.row as usize >= rows || !ascends {
                return Err(BatchError::WrongOutput { output, row: asked.row, rows });
            }
        }
        Ok(())
    }

    fn check_handed(&self) -> Result<(), BatchError> {
        for (handed, value) in self.handed.iter().enumerate() {
            if value.row_map.len() != self.rows.len() {
                let (found, expected) = (value.row_map.len(), self.rows.len());
                return Err(BatchError::WrongRowMap { handed, found, expected });
            }
        }
        Ok(())
    }
}
