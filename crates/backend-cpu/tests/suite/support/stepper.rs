//! Sequences that step over one backend: each has a home, which names its pages and slots.

use super::weights::Generated;
use gannet_ops::sampling::{SampleRow, Sampling};
use gannet_ops::*;
use std::sync::Arc;

/// Pages that a home has in each group.
const HOME_PAGES: u32 = 10;
const HOMES: u32 = 4;

pub(crate) const LIMITS: BatchLimits = BatchLimits { rows: 200, sequences: 4, outputs: 200, context: 640 };

/// Programs over one state.
pub(crate) struct Stepper {
    pub(crate) plans: Vec<Box<dyn Plan>>,
    pub(crate) state: Box<dyn State>,
    pub(crate) layout: Arc<StateLayout>,
}

/// One sequence's part of a step.
#[derive(Clone)]
pub(crate) struct Part {
    pub(crate) home: u32,
    pub(crate) length: Length,
    pub(crate) tokens: Vec<TokenSource>,
    /// How many of its last rows are drafts.
    pub(crate) drafts: usize,
    /// The bank to read, where there is state, and the one to write.
    pub(crate) banks: (Option<u8>, u8),
    /// Pages of the windowed group that are gone.
    pub(crate) released: u32,
}

impl Part {
    /// Known tokens after `length` others.
    pub(crate) fn new(home: u32, length: u32, tokens: &[u32]) -> Self {
        let tokens = tokens.iter().map(|id| TokenSource::Known(TokenId(*id))).collect();
        let banks = ((length > 0).then_some(0), 0);
        Self { home, length: Length::Exact(length), tokens, drafts: 0, banks, released: 0 }
    }
}

impl Stepper {
    pub(crate) fn new(
        backend: &dyn Backend,
        programs: &[Program],
        source: &dyn Fn(&[WeightUse]) -> Generated,
    ) -> Self {
        let uses: Vec<WeightUse> = programs.iter().flat_map(|program| program.weights.clone()).collect();
        let weights = backend.upload(&source(&uses), &uses).expect("the weights can be uploaded");
        let layout = Arc::clone(&programs[0].state);
        let budget = Budget {
            pages: vec![HOMES * HOME_PAGES; layout.groups.len()],
            recurrent_slots: HOMES,
            snapshots: 2,
            sampler_slots: HOMES,
            ..Budget::default()
        };
        let state = backend.allocate(&layout, &budget).expect("the state can be allocated");
        let compile = |program: &Program| {
            let program = fuse(program, backend.fusions());
            backend.compile(&program, &weights, &LIMITS).expect("the program can be compiled")
        };
        Self { plans: programs.iter().map(compile).collect(), state, layout }
    }

    /// A batch that asks everything of each row.
    pub(crate) fn batch(&self, parts: &[Part]) -> Batch {
        let mut batch = Batch::default();
        for (sequence, part) in parts.iter().enumerate() {
            let first = batch.rows.len();
            for (place, token) in part.tokens.iter().enumerate() {
                let index = part.length.at_most() + place as u32;
                let draft = place.checked_sub(part.tokens.len() - part.drafts);
                let kind = draft.map_or(RowKind::Prompt, |draft| RowKind::Draft(draft as u32));
                let position = [index, index + 3, index / 2 + 100];
                batch.rows.push(Row { sequence: sequence as u32, token: *token, index, position, kind });
            }
            let tables =
                (0..self.layout.groups.len() as u32).map(|group| self.table(part, group, &mut batch.pages));
            let tables = tables.collect();
            let bank = |bank| RecurrentBank { slot: part.home, bank };
            let write = bank(part.banks.1);
            let write = match part.drafts {
                0 => RecurrentWrite::Bank(write),
                _ => RecurrentWrite::Candidates(write),
            };
            batch.sequences.push(SequenceRows {
                rows: first as u32..batch.rows.len() as u32,
                length: part.length,
                tables,
                recurrent: self
                    .layout
                    .is_recurrent()
                    .then(|| RecurrentUse { read: part.banks.0.map(bank), write }),
                sampler: Some(SamplerSlot(part.home)),
                adapter: None,
            });
        }
        let want =
            Want { token: true, logprobs: Some(2), scored: None, logits: true, hidden: true, pooled: true };
        batch.outputs = (0..batch.rows.len() as u32).map(|row| Output { row, want }).collect();
        batch
    }

    /// Runs a batch on plan `plan` with greedy draws.
    pub(crate) fn run(&mut self, plan: usize, batch: &Batch) -> (StepId, StepOutput) {
        self.run_traced(plan, batch, &mut |_, _, _| {})
    }

    pub(crate) fn run_traced(
        &mut self,
        plan: usize,
        batch: &Batch,
        observe: &mut NodeObserver<'_>,
    ) -> (StepId, StepOutput) {
        let (plan, state) = (&mut self.plans[plan], self.state.as_mut());
        let step = plan.submit_traced(batch, state, observe).expect("the step runs");
        let sampling = Arc::new(Sampling { repetition_penalty: 1.1, ..Sampling::greedy() });
        let draw = |output: &Output| SampleRow {
            sampling: Arc::clone(&sampling),
            seed: 5,
            choice: 0,
            index: batch.rows[output.row as usize].index + 1,
            allowed: None,
            banned: None,
        };
        let wanted = batch.outputs.iter().filter(|output| output.want.token);
        plan.sample(step, &SampleRows { rows: wanted.map(draw).collect() }, state).expect("the step samples");
        (step, plan.wait(step).expect("the step ends"))
    }

    /// The pages of a home from the front; those of a group have their own order.
    fn table(&self, part: &Part, group: u32, pages: &mut Vec<PageId>) -> PageTable {
        let first = pages.len() as u32;
        let released = if group == 1 { part.released } else { 0 };
        let page =
            |page| PageId(part.home * HOME_PAGES + if group == 0 { HOME_PAGES - 1 - page } else { page ^ 1 });
        let is_open = self.layout.groups[group as usize].lifetime == PageLifetime::Open;
        let start = part.length.at_most();
        let last = (start + part.tokens.len() as u32 - 1) / PAGE_TOKENS as u32;
        // Only the last open keys of a step are read again, unless its rows may fall.
        let shared = |number: u32| {
            let is_inner = number > start / PAGE_TOKENS as u32 && number < last;
            if is_open && part.drafts == 0 && is_inner { last } else { number }
        };
        pages.extend((released..HOME_PAGES).map(|number| page(shared(number))));
        PageTable { released, pages: first..pages.len() as u32 }
    }
}
