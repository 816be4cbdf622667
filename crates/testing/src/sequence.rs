//! One sequence over one backend: the shortest way from ids to logits and tokens.
//!
//! Knows no scheduling: it owns all pages of the state, in descending order, so that no backend can take a page's
//! number for its place in the sequence; and one recurrent slot, whose banks its steps read and write in turns.

use gannet_ops::sampling::{SampleRow, Sampling};
use gannet_ops::{
    Backend, Batch, BatchLimits, Budget, Length, Output, OutputResult, PAGE_TOKENS, PageId, PageTable, Plan,
    Program, RecurrentBank, RecurrentUse, RecurrentWrite, Row, RowKind, SampleRows, SequenceRows, SnapshotId,
    State, TokenId, TokenSource, Want, WeightSource, fuse,
};
use std::sync::Arc;

/// A sequence that grows by steps.
pub struct Sequence {
    plan: Box<dyn Plan>,
    state: Box<dyn State>,
    groups: usize,
    pages: u32,
    is_recurrent: bool,
    /// The bank with the state of the tokens so far; none before the first.
    bank: Option<u8>,
    /// Tokens so far.
    length: u32,
}

/// A point of a sequence to return to.
#[derive(Clone, Copy, Debug)]
pub struct Checkpoint {
    length: u32,
    snapshot: Option<SnapshotId>,
}

impl Sequence {
    /// An empty sequence of up to `context` tokens over a program as the backend rewrites it.
    pub fn new(backend: &dyn Backend, program: &Program, weights: &dyn WeightSource, context: usize) -> Self {
        let program = fuse(program, backend.fusions());
        let groups = program.state.groups.len();
        let pages = context.div_ceil(PAGE_TOKENS) as u32;
        let is_recurrent = program.state.is_recurrent();
        let snapshots = if is_recurrent { context as u32 } else { 0 };
        let budget = Budget {
            pages: vec![pages; groups],
            recurrent_slots: 1,
            snapshots,
            sampler_slots: 1,
            ..Budget::default()
        };
        let weights = backend.upload(weights, &program.weights).expect("the weights can be uploaded");
        let state = backend.allocate(&program.state, &budget).expect("the state can be allocated");
        let limits = BatchLimits { rows: context, sequences: 1, outputs: context, context };
        let plan = backend.compile(&program, &weights, &limits).expect("the program can be compiled");
        Self { plan, state, groups, pages, is_recurrent, bank: None, length: 0 }
    }

    /// Appends tokens in one step and gives the logits of each, `[tokens][vocabulary]`.
    pub fn logits(&mut self, ids: &[TokenId]) -> Vec<Vec<f32>> {
        self.last_logits(ids, ids.len())
    }

    /// Appends tokens in one step and gives the logits of the last `count`.
    pub fn last_logits(&mut self, ids: &[TokenId], count: usize) -> Vec<Vec<f32>> {
        let wanted = Want { logits: true, ..Want::default() };
        let rows = (ids.len() - count) as u32..ids.len() as u32;
        let outputs = rows.map(|row| Output { row, want: wanted }).collect();
        let results = self.step(ids, outputs, &SampleRows::default());
        results.into_iter().map(|result| result.logits.expect("logits were asked for")).collect()
    }

    /// Appends tokens in one step and gives the sequence's vector.
    pub fn pooled(&mut self, ids: &[TokenId]) -> Vec<f32> {
        let want = Want { pooled: true, ..Want::default() };
        let outputs = vec![Output { row: ids.len() as u32 - 1, want }];
        let mut results = self.step(ids, outputs, &SampleRows::default());
        results.remove(0).pooled.expect("the pooled vector was asked for")
    }

    /// Appends tokens in one step and gives the most likely next one.
    pub fn next_greedily(&mut self, ids: &[TokenId]) -> TokenId {
        let last = ids.len() as u32 - 1;
        let outputs = vec![Output { row: last, want: Want { token: true, ..Want::default() } }];
        let index = self.length + ids.len() as u32;
        let row = SampleRow {
            sampling: Arc::new(Sampling::greedy()),
            seed: 0,
            choice: 0,
            index,
            allowed: None,
            banned: None,
        };
        let results = self.step(ids, outputs, &SampleRows { rows: vec![row] });
        results[0].token.expect("a token was asked for")
    }

    /// Whether a layer has recurrent state.
    pub fn is_recurrent(&self) -> bool {
        self.is_recurrent
    }

    /// Marks the present point.
    pub fn checkpoint(&mut self) -> Checkpoint {
        let bank = self.bank.filter(|_| self.is_recurrent);
        let snapshot = bank.map(|bank| {
            self.state
                .snapshot(RecurrentBank { slot: 0, bank })
                .expect("there is room for a snapshot a token")
        });
        Checkpoint { length: self.length, snapshot }
    }

    /// Returns to a point; what came after it is forgotten.
    pub fn restore(&mut self, checkpoint: Checkpoint) {
        self.length = checkpoint.length;
        self.bank = checkpoint.snapshot.map(|snapshot| {
            let bank = RecurrentBank { slot: 0, bank: 1 };
            self.state.restore(snapshot, bank).expect("the snapshot was taken");
            bank.bank
        });
    }

    fn step(&mut self, ids: &[TokenId], outputs: Vec<Output>, rows: &SampleRows) -> Vec<OutputResult> {
        let batch = self.batch(ids, outputs);
        self.length += ids.len() as u32;
        self.bank = Some(self.next_bank());
        let step = self.plan.submit(&batch, self.state.as_mut()).expect("the step runs");
        self.plan.sample(step, rows, self.state.as_mut()).expect("the step samples");
        self.plan.wait(step).expect("the step ends").outputs
    }

    fn next_bank(&self) -> u8 {
        self.bank.map_or(0, |bank| 1 - bank)
    }

    fn batch(&self, ids: &[TokenId], outputs: Vec<Output>) -> Batch {
        let row = |(place, &id): (usize, &TokenId)| {
            let index = self.length + place as u32;
            let token = TokenSource::Known(id);
            let kind = if ids.len() == 1 { RowKind::Decode } else { RowKind::Prompt };
            Row { sequence: 0, token, index, position: [index; 3], kind }
        };
        let table =
            |group: u32| PageTable { released: 0, pages: group * self.pages..(group + 1) * self.pages };
        let bank = |bank| RecurrentBank { slot: 0, bank };
        let recurrent =
            RecurrentUse { read: self.bank.map(bank), write: RecurrentWrite::Bank(bank(self.next_bank())) };
        let sequence = SequenceRows {
            rows: 0..ids.len() as u32,
            length: Length::Exact(self.length),
            tables: (0..self.groups as u32).map(table).collect(),
            recurrent: self.is_recurrent.then_some(recurrent),
            sampler: None,
            adapter: None,
        };
        Batch {
            rows: ids.iter().enumerate().map(row).collect(),
            sequences: vec![sequence],
            outputs,
            pages: (0..self.groups).flat_map(|_| (0..self.pages).rev().map(PageId)).collect(),
            ..Batch::default()
        }
    }
}
