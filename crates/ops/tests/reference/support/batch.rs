//! Batches in few words: a sequence has a home, which names its pages and its slots.

use gannet_ops::*;
use std::ops::Range;

/// Pages that each home has in each group.
pub(crate) const HOME_PAGES: u32 = 4;

/// One sequence's part of a step.
#[derive(Clone)]
pub(crate) struct Part {
    home: u32,
    tokens: Vec<TokenSource>,
    length: Length,
    drafts: usize,
    outputs: Vec<(usize, Want)>,
    released: u32,
    recurrent: Option<RecurrentUse>,
    sampler: Option<SamplerSlot>,
}

/// All that can be asked of a row of a target.
pub(crate) const ALL: Want =
    Want { token: true, logprobs: Some(3), scored: None, logits: true, hidden: true, pooled: false };
pub(crate) const TOKEN: Want =
    Want { token: true, logprobs: None, scored: None, logits: true, hidden: false, pooled: false };
pub(crate) const POOLED: Want =
    Want { token: false, logprobs: None, scored: None, logits: false, hidden: false, pooled: true };

impl Part {
    /// Known tokens of the sequence that lives in `home`, after `length` others; its last row is drawn from.
    pub(crate) fn new(home: u32, length: u32, tokens: &[u32]) -> Self {
        let tokens = tokens.iter().map(|id| TokenSource::Known(TokenId(*id))).collect();
        Self::of(home, Length::Exact(length), tokens)
    }

    /// Tokens from anywhere.
    pub(crate) fn of(home: u32, length: Length, tokens: Vec<TokenSource>) -> Self {
        let outputs = vec![(tokens.len() - 1, TOKEN)];
        // A sequence's state goes to and fro between its banks with the parity of its steps; tests that step
        // oddly say where it is.
        let recurrent = Some(RecurrentUse {
            read: (length != Length::Exact(0)).then_some(RecurrentBank { slot: home, bank: 0 }),
            write: RecurrentWrite::Bank(RecurrentBank { slot: home, bank: 0 }),
        });
        let sampler = Some(SamplerSlot(home));
        Self { home, tokens, length, drafts: 0, outputs, released: 0, recurrent, sampler }
    }

    /// The last rows are drafts, each row from the one before on is drawn from, and state waits for acceptance.
    pub(crate) fn drafts(mut self, drafts: usize) -> Self {
        self.drafts = drafts;
        let first = self.tokens.len() - 1 - drafts;
        self.outputs = (first..self.tokens.len()).map(|row| (row, TOKEN)).collect();
        let bank = |bank| RecurrentBank { slot: self.home, bank };
        let recurrent = RecurrentUse { read: Some(bank(0)), write: RecurrentWrite::Candidates(bank(1)) };
        self.recurrent = Some(recurrent);
        self
    }

    pub(crate) fn asks(mut self, outputs: &[(usize, Want)]) -> Self {
        self.outputs = outputs.to_vec();
        self
    }

    /// Without a draw, as a chunk in the middle of a prompt.
    pub(crate) fn quiet(self) -> Self {
        self.asks(&[])
    }

    /// The first pages are gone.
    pub(crate) fn released(mut self, pages: u32) -> Self {
        self.released = pages;
        self
    }

    pub(crate) fn banks(mut self, read: Option<u8>, write: u8) -> Self {
        let bank = |bank| RecurrentBank { slot: self.home, bank };
        self.recurrent =
            Some(RecurrentUse { read: read.map(bank), write: RecurrentWrite::Bank(bank(write)) });
        self
    }

    /// As a drafter's step: nothing is remembered for sampling.
    pub(crate) fn forgetful(mut self) -> Self {
        self.sampler = None;
        self
    }

    fn rows(&self, sequence: u32) -> impl Iterator<Item = Row> + '_ {
        let certain = self.tokens.len() - self.drafts;
        self.tokens.iter().enumerate().map(move |(place, token)| {
            let index = self.length.at_most() + place as u32;
            let kind = match place.checked_sub(certain) {
                Some(draft) => RowKind::Draft(draft as u32),
                None if self.tokens.len() == 1 + self.drafts && self.length != Length::Exact(0) => {
                    RowKind::Decode
                }
                None => RowKind::Prompt,
            };
            Row { sequence, token: *token, index, position: [index; 3], kind }
        })
    }
}

/// A batch of these sequences.
pub(crate) fn batch(layout: &StateLayout, parts: &[Part]) -> Batch {
    let mut batch = Batch::default();
    for (sequence, part) in parts.iter().enumerate() {
        let first = batch.rows.len() as u32;
        batch.rows.extend(part.rows(sequence as u32));
        batch
            .outputs
            .extend(part.outputs.iter().map(|(row, want)| Output { row: first + *row as u32, want: *want }));
        let tables = layout
            .groups
            .iter()
            .map(|_| PageTable { released: part.released, pages: home(part, &mut batch) });
        let tables = tables.collect();
        batch.sequences.push(SequenceRows {
            rows: first..batch.rows.len() as u32,
            length: part.length,
            tables,
            recurrent: part.recurrent.filter(|_| layout.is_recurrent()),
            sampler: part.sampler,
            adapter: None,
        });
    }
    batch
}

/// The pages of a home, in an order that is not that of their numbers.
fn home(part: &Part, batch: &mut Batch) -> Range<u32> {
    let first = batch.pages.len() as u32;
    let pages =
        (part.released..HOME_PAGES).map(|page| PageId(part.home * HOME_PAGES + (HOME_PAGES - 1 - page)));
    batch.pages.extend(pages);
    first..batch.pages.len() as u32
}
