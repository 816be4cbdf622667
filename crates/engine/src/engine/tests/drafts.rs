//! Drafts through the state manager: blocks that are confirmed and fall anywhere, over the state of a target and, where it
//! has one, of its drafter.
//!
//! A step runs as a device with a drafter would: the drafter writes its rows of the block, the target verifies the block, what
//! stands is settled, and the drafter observes it.

use super::simulated::{self, Kind, drafted_token, next_token};
use super::*;
use crate::Runner;
use crate::constraint::Constraint;
use crate::state::{PrefixKey, SequenceState, StateManager, StepTokens};
use gannet_ops::sampling::{SampleRow, Sampling};
use gannet_ops::{
    Batch, Length, Output, PAGE_TOKENS, Plan, Row, RowKind, SampleRows, SequenceRows, StepId, TokenSource,
    Want,
};
use std::ops::Range;

pub(super) const KEY: PrefixKey = PrefixKey { numerics: crate::NumericsId(1), salt: 0 };
/// Tokens of the longest sequence.
const CONTEXT: usize = 1024;

/// Sequences over one state, stepped by hand.
struct Drafting {
    kind: Kind,
    manager: StateManager,
    runner: Runner,
    drafter: Box<dyn Plan>,
    sequences: Vec<One>,
    /// Which tokens the last rows of the next step may draw; all where absent.
    masks: Vec<Vec<u32>>,
}

pub(super) struct One {
    pub(super) state: SequenceState,
    /// The last one was drawn and is not computed.
    pub(super) tokens: Vec<TokenId>,
    pub(super) computed: usize,
}

impl One {
    /// What a step with these drafts computes.
    pub(super) fn rows(&self, drafts: &[TokenId]) -> Range<usize> {
        self.computed..self.tokens.len() + drafts.len()
    }

    /// Takes in what a step of these rows drew, of which so many stand.
    pub(super) fn hear(&mut self, drafts: &[TokenId], drawn: &[TokenId], standing: usize) {
        let certain = drawn.len() - drafts.len();
        self.tokens.extend(&drafts[..standing - certain]);
        self.tokens.push(drawn[standing - 1]);
    }
}

impl Drafting {
    fn new(kind: Kind) -> Self {
        let layout = simulated::layout(kind);
        let wish = Wish { context: CONTEXT, step_rows: 256, depth: 1, sequences: 3, snapshots: 8, drafts: 0 };
        let budget = for_wish(&layout, &wish);
        let manager = StateManager::new(&layout, &budget);
        // Nothing is done before a step is waited for.
        let runner = simulated::late_runner(kind, budget, CONTEXT, usize::MAX);
        let drafter = simulated::drafter(&runner);
        Self { kind, manager, runner, drafter, sequences: Vec::new(), masks: Vec::new() }
    }

    /// Starts a sequence in the slot of its place; how many tokens the cache had.
    fn start(&mut self, tokens: &[TokenId]) -> usize {
        let mut state = self.manager.empty(KEY, self.sequences.len() as u32);
        let device = self.runner.state.as_mut();
        let hit = self.manager.match_prefix(&mut state, tokens, tokens.len() - 1, device);
        let computed = hit.expect("the simulated device does not fail").reused;
        self.sequences.push(One { state, tokens: tokens.to_vec(), computed });
        computed
    }

    /// One step of all sequences, each with its drafts; how many rows of each stand.
    fn step(&mut self, drafts: &[Vec<TokenId>]) -> Vec<usize> {
        let ranges: Vec<Range<usize>> =
            self.sequences.iter().zip(drafts).map(|(one, drafts)| one.rows(drafts)).collect();
        for ((one, range), drafts) in self.sequences.iter_mut().zip(&ranges).zip(drafts) {
            let step = StepTokens::with_drafts(range.clone(), drafts.len());
            let device = self.runner.state.as_mut();
            let reserved = self.manager.reserve(&mut one.state, step, device);
            reserved.expect("the simulated device does not fail").expect("the budget is for all of them");
        }
        self.draft(&ranges, drafts);
        let batch = batch_of(&self.sequences, &ranges, drafts);
        let masks = std::mem::take(&mut self.masks);
        let (step, drawn, _) =
            run_masked(self.runner.plan.as_mut(), &batch, self.runner.state.as_mut(), masks);
        let mut standing = Vec::new();
        let mut first = 0;
        for ((one, range), drafts) in self.sequences.iter_mut().zip(&ranges).zip(drafts) {
            one.state.step_submitted();
            let drawn = &drawn[first..first + range.len()];
            first += range.len();
            let certain = range.len() - drafts.len();
            let right = drafts.iter().zip(&drawn[certain - 1..]).take_while(|(draft, drawn)| draft == drawn);
            standing.push(certain + right.count());
            one.hear(drafts, drawn, standing[standing.len() - 1]);
        }
        let rows: Vec<u32> = standing.iter().map(|rows| *rows as u32).collect();
        self.manager.settle(step, &rows, self.runner.state.as_mut()).expect("the step is remembered");
        self.observe(&ranges, &standing);
        for (one, standing) in self.sequences.iter_mut().zip(&standing) {
            one.computed += standing;
            self.manager.rollback(&mut one.state, one.computed);
            self.manager.commit(&mut one.state, one.computed);
        }
        self.check();
        standing
    }

    /// The drafter's rows of the blocks, of which some will fall.
    fn draft(&mut self, ranges: &[Range<usize>], drafts: &[Vec<TokenId>]) {
        if Kind::DRAFTED.contains(&self.kind) {
            let batch = batch_of(&self.sequences, ranges, drafts);
            run(self.drafter.as_mut(), &batch, self.runner.state.as_mut());
        }
    }

    /// The drafter takes in what stands, and says what it should.
    fn observe(&mut self, ranges: &[Range<usize>], standing: &[usize]) {
        if !Kind::DRAFTED.contains(&self.kind) {
            return;
        }
        let observed: Vec<Range<usize>> =
            ranges.iter().zip(standing).map(|(range, rows)| range.start..range.start + rows).collect();
        let batch = batch_of(&self.sequences, &observed, &vec![Vec::new(); observed.len()]);
        let (_, drawn, _) = run(self.drafter.as_mut(), &batch, self.runner.state.as_mut());
        let mut drawn = drawn.into_iter();
        for (one, range) in self.sequences.iter().zip(observed) {
            for index in range {
                let expected = usable(drafted_token(self.kind, &one.tokens[..index + 1]));
                assert_eq!(drawn.next(), Some(expected), "{:?}: the drafter's row {index}", self.kind);
            }
        }
    }

    /// A step without drafts.
    fn plain_step(&mut self) {
        self.step(&vec![Vec::new(); self.sequences.len()]);
    }

    /// Puts what a sequence has computed into the cache, with its recurrent state.
    fn publish(&mut self, place: usize) {
        let One { state, tokens, computed } = &self.sequences[place];
        let device = self.runner.state.as_mut();
        self.manager.publish(state, &tokens[..*computed], device).expect("the device does not fail");
        if let Some(bank) = state.bank() {
            let kept = self.manager.checkpoint(state, bank, &tokens[..*computed], device);
            kept.expect("the device does not fail");
        }
        self.check();
    }

    /// Ends the sequence that started last.
    fn end(&mut self) -> Vec<TokenId> {
        self.publish(self.sequences.len() - 1);
        let mut one = self.sequences.pop().expect("one runs");
        self.manager.release(&mut one.state);
        self.check();
        one.tokens.truncate(one.computed);
        one.tokens
    }

    fn check(&mut self) {
        self.manager.check(self.sequences.iter().map(|one| &one.state));
    }

    /// Panics unless all that a sequence drew is what the model says.
    fn check_answer(&self, place: usize, prompt: usize) {
        let tokens = &self.sequences[place].tokens;
        for index in prompt..tokens.len() {
            let expected = usable(next_token(self.kind, &tokens[..index]));
            assert_eq!(tokens[index], expected, "{:?}: {index}", self.kind);
        }
    }

    /// What the model says after a sequence's tokens, `count` times, wrong from place `right` on.
    fn drafts(&self, place: usize, count: usize, right: usize) -> Vec<TokenId> {
        let mut tokens = self.sequences[place].tokens.clone();
        let known = tokens.len();
        for draft in 0..count {
            let TokenId(next) = usable(next_token(self.kind, &tokens));
            // Neither the model's token nor the one whose scores are not finite.
            let wrong = (next + 1) % 997;
            tokens.push(TokenId(if draft < right { next } else { wrong }));
        }
        tokens.split_off(known)
    }
}

/// A step of these rows, of which the last ones of each sequence are drafts; each row draws a token.
pub(super) fn batch_of(sequences: &[One], ranges: &[Range<usize>], drafts: &[Vec<TokenId>]) -> Batch {
    let mut batch = Batch::default();
    for (number, ((one, range), drafts)) in sequences.iter().zip(ranges).zip(drafts).enumerate() {
        let first = batch.rows.len() as u32;
        for index in range.clone() {
            let draft = index.checked_sub(one.tokens.len());
            let kind = draft.map_or(RowKind::Prompt, |draft| RowKind::Draft(draft as u32));
            let token = TokenSource::Known(draft.map_or_else(|| one.tokens[index], |draft| drafts[draft]));
            let position = [index as u32; 3];
            batch.rows.push(Row { sequence: number as u32, token, index: index as u32, position, kind });
        }
        let mut tables = Vec::new();
        one.state.tables(&mut batch.pages, &mut tables);
        batch.sequences.push(SequenceRows {
            rows: first..batch.rows.len() as u32,
            length: Length::Exact(range.start as u32),
            tables,
            recurrent: one.state.banks(),
            sampler: None,
            adapter: None,
        });
    }
    let want = Want { token: true, ..Want::default() };
    batch.outputs = (0..batch.rows.len() as u32).map(|row| Output { row, want }).collect();
    batch
}

/// Runs a batch: its step, what each row draws, and how many rows of each sequence the device says stand, where it does.
pub(super) fn run(
    plan: &mut dyn Plan,
    batch: &Batch,
    state: &mut dyn gannet_ops::State,
) -> (StepId, Vec<TokenId>, Vec<u32>) {
    run_masked(plan, batch, state, Vec::new())
}

/// The same with masks for the last rows.
fn run_masked(
    plan: &mut dyn Plan,
    batch: &Batch,
    state: &mut dyn gannet_ops::State,
    masks: Vec<Vec<u32>>,
) -> (StepId, Vec<TokenId>, Vec<u32>) {
    let step = plan.submit(batch, state).expect("the batch is well formed");
    let row = SampleRow {
        sampling: Arc::new(Sampling::greedy()),
        seed: 0,
        choice: 0,
        index: 0,
        allowed: None,
        banned: None,
    };
    let mut rows = SampleRows { rows: vec![row; batch.outputs.len()] };
    let masked = rows.rows.len() - masks.len();
    for (row, mask) in rows.rows[masked..].iter_mut().zip(masks) {
        row.allowed = Some(mask.into());
    }
    plan.sample(step, &rows, state).expect("the step was submitted");
    let output = plan.wait(step).expect("the step was submitted");
    let drawn = output.outputs.into_iter().map(|result| usable(result.token.expect("its scores are finite")));
    (step, drawn.collect(), output.accepted)
}

/// Another token in place of the one whose scores are not finite.
fn usable(token: TokenId) -> TokenId {
    if token == simulated::POISON { TokenId(0) } else { token }
}

/// A mask for the row before each draft and for the last draft's, as far as the drafts fit; the rule stands where it did.
fn masks_of_drafts(rule: &mut Rule, drafts: &[TokenId]) -> Vec<Vec<u32>> {
    let none = || vec![0u32; simulated::VOCABULARY.div_ceil(32) as usize];
    let mut masks = Vec::new();
    let mut advanced = 0;
    for draft in drafts.iter().map(Some).chain([None]) {
        let mut mask = none();
        rule.mask(&mut mask).expect("the rule has no fault");
        let fits = draft.is_some_and(|TokenId(id)| mask[*id as usize / 32] >> (id % 32) & 1 == 1);
        masks.push(mask);
        match draft.filter(|_| fits) {
            Some(draft) => advanced += usize::from(rule.advance(*draft).is_ok()),
            None => break,
        }
    }
    // What follows a draft that doesn't fit falls with it, whatever it draws.
    masks.resize_with(drafts.len() + 1, || vec![u32::MAX; simulated::VOCABULARY.div_ceil(32) as usize]);
    rule.rollback(advanced).expect("so many were advanced");
    masks
}

fn ids(text: &[u32]) -> Vec<TokenId> {
    text.iter().copied().map(TokenId).map(usable).collect()
}

fn every_kind() -> impl Iterator<Item = Kind> {
    Kind::ALL.into_iter().chain(Kind::DRAFTED)
}

#[test]
fn constrained_drafts_draw_what_is_drawn_without_them() {
    const DRAFTS: usize = 5;
    for (kind, right) in every_kind().flat_map(|kind| (0..=DRAFTS).map(move |right| (kind, right))) {
        let mut drafting = Drafting::new(kind);
        let mut rule = Rule::of(3);
        let prompt = ids(&prompt(1, 60));
        drafting.start(&prompt);
        let mut generated: Vec<TokenId> = Vec::new();
        for round in 0..8 {
            // What will be drawn, wrong from one place on: by the rule, or against it.
            let mut drafts: Vec<TokenId> = Vec::new();
            let known = drafting.sequences[0].tokens.clone();
            for place in 0..DRAFTS {
                let all = [&known[..], &drafts].concat();
                let wanted = next_token(kind, &all);
                let before = [&generated[..], &drafts].concat();
                let next = rule.expected(&before, wanted);
                let other = TokenId((next.0 + if round % 2 == 0 { 1 } else { 7 }) % 997);
                drafts.push(if place < right { next } else { other });
            }
            drafting.masks = masks_of_drafts(&mut rule, &drafts);
            let before = known.len();
            drafting.step(&[drafts]);
            for token in &drafting.sequences[0].tokens[before..] {
                rule.advance(*token).expect("what was drawn fits");
                generated.push(*token);
            }
        }
        let tokens = &drafting.sequences[0].tokens;
        assert!(generated.len() >= 8 * (right + 1), "drafts that are right stand");
        for place in 0..generated.len() {
            let wanted = next_token(kind, &tokens[..prompt.len() + place]);
            assert_eq!(generated[place], rule.expected(&generated[..place], wanted), "{kind:?}: {place}");
        }
    }
}

#[test]
fn a_block_across_a_pages_edge_leaves_nothing_wherever_it_falls() {
    const DRAFTS: usize = 9;
    for kind in every_kind() {
        for start in PAGE_TOKENS - DRAFTS..=PAGE_TOKENS + 1 {
            for right in 0..=DRAFTS {
                let mut drafting = Drafting::new(kind);
                let prompt = ids(&prompt(1, start as u32));
                drafting.start(&prompt);
                drafting.plain_step();
                let block = drafting.drafts(0, DRAFTS, right);
                assert_eq!(drafting.step(&[block]), [1 + right], "{kind:?}: {right} right after {start}");
                // Over the next edge, where the image of the page is read that drafts had filled.
                for _ in 0..PAGE_TOKENS + DRAFTS {
                    drafting.plain_step();
                }
                drafting.check_answer(0, prompt.len());
            }
        }
    }
}

#[test]
fn a_full_page_can_be_taken_back_until_a_row_beyond_it_stands() {
    for kind in every_kind().filter(|kind| !kind.is_recurrent()) {
        for back in 1..PAGE_TOKENS {
            let mut drafting = Drafting::new(kind);
            drafting.start(&ids(&prompt(1, PAGE_TOKENS as u32)));
            drafting.plain_step();
            let Drafting { manager, sequences, .. } = &mut drafting;
            let one = &mut sequences[0];
            one.computed -= back;
            one.tokens.truncate(one.computed);
            manager.rollback(&mut one.state, one.computed);
            one.tokens.push(TokenId(5));
            let known = one.tokens.len();
            for _ in 0..back + 3 {
                drafting.plain_step();
            }
            drafting.check_answer(0, known);
        }
    }
}

#[test]
fn one_hit_restores_what_target_and_drafter_know() {
    for kind in Kind::DRAFTED {
        for length in [63, 64, 65, 100, 128, 150] {
            let mut drafting = Drafting::new(kind);
            drafting.start(&ids(&prompt(1, length)));
            drafting.plain_step();
            let block = drafting.drafts(0, 5, 3);
            drafting.step(&[block]);
            let known = drafting.end();
            // The branch's rows read, in both, rows that only the first sequence wrote.
            let branch = [&known[..], &ids(&prompt(7, 20))].concat();
            assert_eq!(drafting.start(&branch), known.len(), "{kind:?} after {length}");
            drafting.plain_step();
            let block = drafting.drafts(0, 4, 2);
            drafting.step(&[block]);
            drafting.check_answer(0, branch.len());
        }
    }
}

#[test]
fn a_snapshot_behind_confirmed_drafts_outlives_the_page_that_fills() {
    for kind in every_kind().filter(|kind| kind.is_recurrent()) {
        let mut drafting = Drafting::new(kind);
        drafting.start(&ids(&prompt(1, 90)));
        drafting.plain_step();
        let block = drafting.drafts(0, 6, 4);
        drafting.step(&[block]);
        // 90 tokens of the prompt, the token that they drew, four drafts.
        drafting.publish(0);
        assert_eq!(drafting.sequences[0].computed, 95);
        for drafts in [3, 8, 0, 12, 20, 1, 0] {
            let block = drafting.drafts(0, drafts, drafts);
            drafting.step(&[block]);
        }
        let known = drafting.end();
        assert!(known.len() > 128, "the page is full");
        let branch = [&known[..95], &ids(&prompt(7, 60))].concat();
        assert_eq!(drafting.start(&branch), 95, "{kind:?}");
        drafting.plain_step();
        drafting.check_answer(0, branch.len());
    }
}

#[test]
fn sequences_with_random_drafts_never_see_each_other() {
    for (seed, kind) in every_kind().enumerate() {
        let mut random = random::Random(seed as u64);
        let mut drafting = Drafting::new(kind);
        let mut known: Vec<Vec<TokenId>> = vec![ids(&prompt(1, 100))];
        for _ in 0..random::turns() / 40 {
            let place = random.below(known.len() as u32) as usize;
            let all = known[place].len();
            let cut = if random.one_in(2) { all } else { 1 + random.below(all as u32) as usize };
            // A canary that no other sequence has, behind what it shares with one.
            let canary = ids(&prompt(random.below(900), 1 + random.below(60)));
            let mut text = [&known[place][..cut], &canary].concat();
            text.truncate(400);
            drafting.start(&text);
            let prompts: Vec<usize> = drafting.sequences.iter().map(|one| one.tokens.len()).collect();
            for _ in 0..random.below(12) {
                let blocks = (0..drafting.sequences.len()).map(|place| {
                    // No draft at all is as usual as many.
                    let count = random.below(4) as usize * random.below(8) as usize;
                    drafting.drafts(place, count, random.below(count as u32 + 1) as usize)
                });
                let blocks: Vec<_> = blocks.collect();
                drafting.step(&blocks);
                if random.one_in(4) {
                    drafting.publish(random.below(drafting.sequences.len() as u32) as usize);
                }
            }
            prompts.iter().enumerate().for_each(|(place, prompt)| drafting.check_answer(place, *prompt));
            while drafting.sequences.len() > random.below(3) as usize {
                let ended = drafting.end();
                if ended.len() > 1 {
                    known.push(ended);
                }
            }
        }
        while !drafting.sequences.is_empty() {
            drafting.end();
        }
        assert!(drafting.manager.counters().hit_tokens > 0, "{kind:?}: something was reused");
        assert_eq!(drafting.manager.page_counts(std::iter::empty()).total().in_use, 0);
    }
}
