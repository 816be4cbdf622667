//! Drafts through the state manager over real kernels: toy models on the CPU backend, whose plan says itself how many rows
//! of a block stand.
//!
//! Blocks are right up to a random place, and wrong behind it. Whatever falls, a sequence draws what it draws without
//! drafts, and so does one that goes on from what it left in the prefix cache.

use super::drafts::{KEY, One, batch_of, run};
use super::random::Random;
use crate::state::budget::{Wish, for_wish};
use crate::state::{StateManager, StepTokens};
use gannet_backend_cpu::{CpuBackend, CpuOptions};
use gannet_formats::Checkpoint;
use gannet_model::{ProgramOptions, recognise};
use gannet_ops::{Backend, BatchLimits, KvFormat, Plan, Rollback, State, TokenId, fuse};
use std::ops::Range;
use std::path::Path;

const CONTEXT: usize = 256;
const SEQUENCES: usize = 2;
/// Rows of a block that may fall, at most.
const DRAFTS: u32 = 7;
const VOCABULARY: u32 = 128;

/// A model with its formats.
#[derive(Clone, Copy, Debug)]
struct Case {
    golden: &'static str,
    kv_format: KvFormat,
    rollback: Rollback,
}

/// Models that see all, windows, and that have recurrent state, of both ways to take it back.
fn cases() -> Vec<Case> {
    let case = |golden, kv_format, rollback| Case { golden, kv_format, rollback };
    vec![
        case("llama", KvFormat::F16, Rollback::Replay),
        case("llama", KvFormat::Int8, Rollback::Replay),
        case("gemma3", KvFormat::Int8, Rollback::Replay),
        case("qwen3_5", KvFormat::F16, Rollback::Candidates),
        case("qwen3_5", KvFormat::Int8, Rollback::Replay),
    ]
}

/// Sequences of a model, stepped by hand.
struct Verifying {
    manager: StateManager,
    plan: Box<dyn Plan>,
    state: Box<dyn State>,
    sequences: Vec<One>,
}

impl Verifying {
    fn new(Case { golden, kv_format, rollback }: Case) -> Self {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../goldens").join(golden);
        let checkpoint = Checkpoint::open(&folder).expect("the golden is committed");
        let model = recognise(&checkpoint).expect("the golden is a model");
        let options = ProgramOptions { context: CONTEXT, kv_format, rollback };
        let program = model.program(&options).expect("the golden's model has a program");
        let backend = CpuBackend::new(CpuOptions::default()).expect("the CPU is supported");
        let program = fuse(&program, backend.fusions());
        let weights = model.weights(&checkpoint).expect("the golden has its weights");
        let weights = backend.upload(&weights, &program.weights).expect("toy weights upload");
        let wish = Wish {
            context: CONTEXT,
            step_rows: CONTEXT,
            depth: 1,
            sequences: SEQUENCES as u32,
            snapshots: 8,
            drafts: DRAFTS,
        };
        let budget = for_wish(&program.state, &wish);
        let limits = BatchLimits { rows: CONTEXT, sequences: SEQUENCES, outputs: CONTEXT, context: CONTEXT };
        Self {
            manager: StateManager::new(&program.state, &budget),
            state: backend.allocate(&program.state, &budget).expect("toy state fits"),
            plan: backend.compile(&program, &weights, &limits).expect("the program compiles"),
            sequences: Vec::new(),
        }
    }

    /// Starts a sequence in the slot of its place; how many tokens the cache had.
    fn start(&mut self, tokens: &[TokenId]) -> usize {
        let mut state = self.manager.empty(KEY, self.sequences.len() as u32);
        let hit = self.manager.match_prefix(&mut state, tokens, tokens.len() - 1, self.state.as_mut());
        let computed = hit.expect("the processor does not fail").reused;
        self.sequences.push(One { state, tokens: tokens.to_vec(), computed });
        computed
    }

    /// One step of all sequences, each with its drafts; how many drafts stand.
    fn step(&mut self, drafts: &[Vec<TokenId>]) -> usize {
        let ranges: Vec<Range<usize>> =
            self.sequences.iter().zip(drafts).map(|(one, drafts)| one.rows(drafts)).collect();
        for ((one, range), drafts) in self.sequences.iter_mut().zip(&ranges).zip(drafts) {
            let step = StepTokens::with_drafts(range.clone(), drafts.len());
            let reserved = self.manager.reserve(&mut one.state, step, self.state.as_mut());
            reserved.expect("the processor does not fail").expect("the budget is for all of them");
        }
        let batch = batch_of(&self.sequences, &ranges, drafts);
        let (step, drawn, standing) = run(self.plan.as_mut(), &batch, self.state.as_mut());
        self.sequences.iter_mut().for_each(|one| one.state.step_submitted());
        self.manager.settle(step, &standing, self.state.as_mut()).expect("the step is remembered");
        assert_eq!(self.state.bytes().candidates, 0, "what was decided waits no longer");
        let (mut first, mut stood) = (0, 0);
        for (place, (range, drafts)) in ranges.iter().zip(drafts).enumerate() {
            let (one, standing) = (&mut self.sequences[place], standing[place] as usize);
            one.hear(drafts, &drawn[first..first + range.len()], standing);
            first += range.len();
            stood += standing + drafts.len() - range.len();
            one.computed += standing;
            self.manager.rollback(&mut one.state, one.computed);
            self.manager.commit(&mut one.state, one.computed);
        }
        self.manager.check(self.sequences.iter().map(|one| &one.state));
        stood
    }

    /// Ends the sequence that started last, and leaves what it has computed to others.
    fn end(&mut self) -> Vec<TokenId> {
        let One { mut state, mut tokens, computed } = self.sequences.pop().expect("one runs");
        tokens.truncate(computed);
        let device = self.state.as_mut();
        self.manager.publish(&state, &tokens, device).expect("the processor does not fail");
        if let Some(bank) = state.bank() {
            let kept = self.manager.checkpoint(&state, bank, &tokens, device);
            kept.expect("the processor does not fail");
        }
        self.manager.release(&mut state);
        self.manager.check(self.sequences.iter().map(|one| &one.state));
        tokens
    }
}

/// A text and the tokens that the model says after it, by steps of one row.
fn plain(case: Case, text: &[TokenId], count: usize) -> Vec<TokenId> {
    let mut alone = Verifying::new(case);
    alone.start(text);
    (0..count).for_each(|_| _ = alone.step(&[Vec::new()]));
    alone.sequences.remove(0).tokens
}

/// A block for a sequence whose tokens will be `truth`: right up to a random place.
fn block(random: &mut Random, truth: &[TokenId], known: usize) -> Vec<TokenId> {
    let room = (truth.len() - known).saturating_sub(1) as u32;
    // No draft at all is as usual as many.
    let count = random.below(DRAFTS + 1).min(room);
    let right = random.below(count + 1) as usize;
    let draft = |(place, token): (usize, &TokenId)| match place < right {
        true => *token,
        false => TokenId((token.0 + 1) % VOCABULARY),
    };
    truth[known..known + count as usize].iter().enumerate().map(draft).collect()
}

/// Runs the sequences with random blocks until each has all tokens of its truth; how many drafts stood.
fn draft_along(verifying: &mut Verifying, random: &mut Random, truths: &[Vec<TokenId>]) -> usize {
    let mut stood = 0;
    while verifying.sequences.iter().zip(truths).any(|(one, truth)| one.tokens.len() < truth.len()) {
        let blocks = verifying.sequences.iter().zip(truths);
        let blocks = blocks.map(|(one, truth)| match one.tokens.len() < truth.len() {
            true => block(random, truth, one.tokens.len()),
            false => Vec::new(),
        });
        let blocks: Vec<Vec<TokenId>> = blocks.collect();
        stood += verifying.step(&blocks);
        for (one, truth) in verifying.sequences.iter().zip(truths) {
            let common = one.tokens.len().min(truth.len());
            assert_eq!(one.tokens[..common], truth[..common], "a token differs from plain decoding");
        }
    }
    stood
}

fn ids(seed: u32, length: u32) -> Vec<TokenId> {
    (0..length).map(|n| TokenId((seed * 89 + n * n * 7 + n * 13 + 3) % VOCABULARY)).collect()
}

#[test]
fn real_kernels_draw_with_random_drafts_what_they_draw_without() {
    for (seed, case) in cases().into_iter().enumerate() {
        let mut random = Random(seed as u64);
        // Both cross the edge of a page, in the middle of blocks.
        let truths = [plain(case, &ids(1, 52), 40), plain(case, &ids(2, 119), 30)];
        let mut verifying = Verifying::new(case);
        assert_eq!((verifying.start(&truths[0][..52]), verifying.start(&truths[1][..119])), (0, 0));
        let stood = draft_along(&mut verifying, &mut random, &truths);
        assert!(stood > 0, "{case:?}: no draft stood");
        // A conversation that goes on where the second one ended.
        let known = verifying.end();
        let text = [&known[..], &ids(7, 11)].concat();
        let longer = [truths[0].clone(), plain(case, &text, 30)];
        assert_eq!(verifying.start(&text), known.len(), "{case:?}: all that stood is found");
        assert!(draft_along(&mut verifying, &mut random, &longer) > 0, "{case:?}: no draft stood");
    }
}
