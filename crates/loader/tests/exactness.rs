//! The exactness matrix: an answer and the bits of its log-probabilities depend on the prompt alone.
//!
//! Each cell runs the same request on the CPU backend under other circumstances: alone or among companions, whole or in
//! chunks, after a cold start, on a prefix hit, after eviction and return, roomy or preempted twice. The answer of the
//! first cell (alone, whole, cold, roomy) is what all others must equal. `GANNET_LONG_RUN` asks for every cell on every
//! golden and on SmolLM2, which `cargo xtask models` gets; the suite runs a seeded slice. A hybrid runs on the simulated CUDA
//! device too, or on a card where `GANNET_TEST_DEVICE` is `card`.

use crossbeam_channel::{Receiver, Sender, unbounded};
use gannet_backend_cpu::{CpuBackend, CpuOptions};
use gannet_engine::{
    Constraint, EngineHandle, EngineOptions, Event, FinishReason, Request, RequestId, Sink, Usage,
};
use gannet_loader::{LoadOptions, Running, load, start};
use gannet_ops::{Backend, KvFormat, TokenId};
use gannet_testing::device::{Precision, device};
use gannet_testing::shares::Shares;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

const ANSWER_TOKENS: u32 = 24;
/// Tokens of the prompts: more than two pages.
const PROMPT_TOKENS: u32 = 150;
/// Sequences of the engine.
const SEQUENCES: usize = 16;
/// Tokens at which others come in between: with two steps in flight the second is there when the first is heard, so that its others
/// find the request gone already.
const DISTURBANCES: usize = 3;
const CONTEXT: usize = 256;
const VOCABULARY: u32 = 128;

/// The circumstances of a run.
#[derive(Clone, Copy, Debug)]
struct Cell {
    companions: usize,
    step_rows: Option<usize>,
    cache: Cache,
    is_tight: bool,
    kv_format: KvFormat,
    /// Whether the answer is drawn inside of masks.
    is_constrained: bool,
    is_on_device: bool,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Cache {
    Cold,
    Hit,
    EvictedAndBack,
}

/// A request's tokens and the bits of their log-probabilities.
type Answer = Vec<(u32, Vec<u32>)>;

fn goldens() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../goldens");
    let names = ["llama", "llama-q8_0.gguf", "mistral", "qwen2-sliding", "qwen3", "gemma3"];
    let hybrids = ["qwen3-moe", "qwen3-next", "qwen3_5", "qwen3_5-moe"];
    let is_there = |name: &&str| folder.join(name).exists();
    names.into_iter().chain(hybrids.into_iter().filter(is_there)).map(|name| folder.join(name)).collect()
}

fn ids(seed: u32, length: u32) -> Vec<TokenId> {
    (0..length).map(|n| TokenId((seed * 89 + n * n * 7 + n * 13 + 3) % VOCABULARY)).collect()
}

fn backend(is_device: bool) -> Box<dyn Backend> {
    if !is_device {
        return Box::new(CpuBackend::new(CpuOptions::default()).expect("the CPU is supported"));
    }
    Box::new(device(Precision::Stored))
}

fn engine(model: &Path, cell: &Cell) -> Running {
    let backend = backend(cell.is_on_device);
    let options = LoadOptions {
        context: Some(CONTEXT),
        sequences: Some(SEQUENCES),
        kv_format: Some(cell.kv_format),
        ..LoadOptions::default()
    };
    let mut loaded = load(model, backend.as_ref(), &options, &|_| ()).expect("the golden loads");
    if cell.is_tight {
        // A whole sequence is four pages, and the request three: others take turns with it.
        loaded.runner.budget.pages.iter_mut().for_each(|pages| *pages = (*pages).min(7));
    }
    let options =
        EngineOptions { sequences: SEQUENCES, step_rows: cell.step_rows, ..EngineOptions::default() };
    start(loaded.runner, options).expect("a thread can be had")
}

fn submit(handle: &EngineHandle, prompt: Vec<TokenId>, priority: i32) -> (RequestId, Receiver<Event>) {
    let (sink, events) = unbounded();
    let request = request(prompt, priority, Arc::new(sink));
    (handle.submit(request).expect("the request is valid"), events)
}

fn request(prompt: Vec<TokenId>, priority: i32, sink: Arc<dyn Sink>) -> Request {
    let boundaries = vec![40, 100];
    Request { logprobs: Some(4), priority, boundaries, ..Request::greedy(prompt, ANSWER_TOKENS, sink) }
}

fn collect(events: impl IntoIterator<Item = Event>) -> (Answer, Usage) {
    let mut answer = Vec::new();
    for event in events {
        match event {
            Event::Started { .. } | Event::Prefilled { .. } => {}
            Event::Token { token, logprobs } => {
                let logprobs = logprobs.expect("log-probabilities were asked for");
                let bits = logprobs.sampled.into_iter().chain(logprobs.top.iter().map(|(_, p)| *p));
                answer.push((token.0, bits.map(f32::to_bits).collect()));
            }
            Event::Finished { reason, usage } => {
                assert_eq!(reason, FinishReason::MaxTokens);
                return (answer, usage);
            }
        }
    }
    panic!("the events ended without a last word");
}

/// Passes on what it hears. With each of the first tokens of the request it has as many others go first as may run at once, of
/// two pages each: where there are seven pages, or layers see windows alone, that sends the request back to the queue before
/// its next step.
struct Disturbing {
    heard: Sender<Event>,
    handle: EngineHandle,
    others: Mutex<Vec<Receiver<Event>>>,
}

impl Disturbing {
    fn another(&self, seed: u32) -> Receiver<Event> {
        let (sink, events) = unbounded();
        let short = Request { max_tokens: 2, ..request(ids(seed, 70), 1, Arc::new(sink)) };
        self.handle.submit(short).expect("the request is valid");
        events
    }
}

impl Sink for Disturbing {
    fn deliver(&self, events: &mut Vec<(RequestId, Event)>) -> Vec<RequestId> {
        for (_, event) in events.drain(..) {
            let mut others = self.others.lock().expect("no test panics here");
            if matches!(event, Event::Token { .. }) && others.len() < DISTURBANCES * SEQUENCES {
                let seed = 70 + others.len() as u32;
                others.extend((seed..seed + SEQUENCES as u32).map(|seed| self.another(seed)));
            }
            self.heard.send(event).expect("the test waits for the answer");
        }
        Vec::new()
    }
}

/// Runs the request under the circumstances of a cell.
fn run(model: &Path, cell: &Cell) -> (Answer, Usage) {
    let Running { handle, thread } = engine(model, cell);
    let prompt = ids(1, PROMPT_TOKENS);
    if cell.cache != Cache::Cold {
        // An earlier request with the same beginning leaves its pages behind.
        let earlier = [&prompt[..130], &ids(50, 10)].concat();
        collect(submit(&handle, earlier, 0).1);
    }
    if cell.cache == Cache::EvictedAndBack {
        for other in 0..12 {
            collect(submit(&handle, ids(60 + other, PROMPT_TOKENS), 0).1);
        }
    }
    let early: Vec<_> =
        (0..cell.companions / 2).map(|n| submit(&handle, ids(10 + n as u32, 120), 0)).collect();
    let (heard, events) = unbounded();
    let sink: Arc<dyn Sink> = match cell.is_tight {
        true => Arc::new(Disturbing { heard, handle: handle.clone(), others: Mutex::default() }),
        false => Arc::new(heard),
    };
    let constraint = cell
        .is_constrained
        .then(|| Box::new(Shares { vocabulary: VOCABULARY, share: 3, hash: 7 }) as Box<dyn Constraint>);
    handle.submit(Request { constraint, ..request(prompt, 0, sink) }).expect("the request is valid");
    let late = (cell.companions / 2..cell.companions).map(|n| submit(&handle, ids(30 + n as u32, 100), 0));
    let late: Vec<_> = late.collect();
    let found = collect(events);
    for (_, events) in early.into_iter().chain(late) {
        collect(events);
    }
    drop(handle);
    thread.join().expect("the engine ends when its handle is dropped");
    found
}

fn cells(kv_format: KvFormat) -> Vec<Cell> {
    let mut cells = Vec::new();
    for companions in [0, 1, 15] {
        for step_rows in [None, Some(1), Some(7), Some(64)] {
            for cache in [Cache::Cold, Cache::Hit, Cache::EvictedAndBack] {
                for is_tight in [false, true] {
                    cells.push(Cell {
                        companions,
                        step_rows,
                        cache,
                        is_tight,
                        kv_format,
                        is_constrained: false,
                        is_on_device: false,
                    });
                }
            }
        }
    }
    cells
}

/// Every cell in a long run; else a few that differ from golden to golden and cover each value.
fn slice(cells: Vec<Cell>, golden: usize) -> Vec<Cell> {
    if std::env::var_os("GANNET_LONG_RUN").is_some() {
        return cells;
    }
    let count = cells.len();
    (0..6).map(|n| cells[(1 + golden * 5 + n * 13) % count]).collect()
}

/// The same for an answer inside of masks: two cells of a suite's run, and all of a long one's.
fn check_constrained(model: &Path, number: usize, free: &[Cell], free_answer: &Answer) {
    let masked: Vec<Cell> = free.iter().map(|cell| Cell { is_constrained: true, ..*cell }).collect();
    let (expected, _) = run(model, &masked[0]);
    assert!(expected != *free_answer, "{}: the masks change nothing", model.display());
    let cells = slice(masked, number + 1);
    let count = if std::env::var_os("GANNET_LONG_RUN").is_some() { cells.len() } else { 2 };
    for cell in &cells[..count] {
        assert!(run(model, cell).0 == expected, "{}: {cell:?} gives another answer", model.display());
    }
}

fn check(kv_format: KvFormat) {
    let mut reused = 0;
    for (number, model) in goldens().iter().enumerate() {
        let all = cells(kv_format);
        let (expected, _) = run(model, &all[0]);
        reused += check_cells(model, &slice(all, number), &expected);
        check_constrained(model, number, &cells(kv_format), &expected);
    }
    assert!(reused > 0, "no cell had a prefix hit");
}

/// Holds cells to an answer; how many tokens of their prompts were reused.
fn check_cells(model: &Path, cells: &[Cell], expected: &Answer) -> u32 {
    assert_eq!(expected.len(), ANSWER_TOKENS as usize);
    let mut reused = 0;
    for cell in cells {
        let (found, usage) = run(model, cell);
        assert!(found == *expected, "{}: {cell:?} gives another answer", model.display());
        assert!(usage.preemptions >= 2 || !cell.is_tight, "{}: {cell:?} ran undisturbed", model.display());
        reused += usage.reused_tokens;
    }
    reused
}

/// Real weights: every cell in a long run, else one that is preempted among others and one in chunks after a hit.
fn check_smollm2(kv_format: KvFormat) {
    let model = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../models/SmolLM2-135M-Instruct.Q4_1.gguf");
    assert!(model.exists(), "{} is missing: `cargo xtask models` gets it", model.display());
    let all = cells(kv_format);
    let (expected, _) = run(&model, &all[0]);
    let is_chosen = |cell: &Cell| {
        let Cell { companions, step_rows, cache, is_tight, .. } = *cell;
        let is_preempted = (companions, step_rows, cache, is_tight) == (1, Some(64), Cache::Cold, true);
        is_preempted || (companions, step_rows, cache, is_tight) == (0, Some(7), Cache::Hit, false)
    };
    let is_long = std::env::var_os("GANNET_LONG_RUN").is_some();
    let chosen: Vec<Cell> = all.into_iter().filter(|cell| is_long || is_chosen(cell)).collect();
    assert!(check_cells(&model, &chosen, &expected) > 0, "no cell had a prefix hit");
}

#[test]
fn smollm2_answers_depend_on_the_prompt_alone_with_f16_state() {
    check_smollm2(KvFormat::F16);
}

#[test]
fn smollm2_answers_depend_on_the_prompt_alone_with_int8_state() {
    check_smollm2(KvFormat::Int8);
}

#[test]
fn answers_depend_on_the_prompt_alone_with_f16_state() {
    check(KvFormat::F16);
}

#[test]
fn answers_depend_on_the_prompt_alone_with_f32_state() {
    check(KvFormat::F32);
}

#[test]
fn answers_depend_on_the_prompt_alone_with_bf16_state() {
    check(KvFormat::Bf16);
}

#[test]
fn answers_depend_on_the_prompt_alone_with_int8_state() {
    check(KvFormat::Int8);
}

/// The answer to a prompt on an engine that has seen others.
fn answer_after(
    model: &Path,
    kv_format: KvFormat,
    earlier: &[&[TokenId]],
    prompt: &[TokenId],
) -> (Answer, Usage) {
    answer_in(model, &cells(kv_format)[0], earlier, prompt)
}

/// The same on the engine of a cell.
fn answer_in(model: &Path, cell: &Cell, earlier: &[&[TokenId]], prompt: &[TokenId]) -> (Answer, Usage) {
    let Running { handle, thread } = engine(model, cell);
    for other in earlier {
        collect(submit(&handle, other.to_vec(), 0).1);
    }
    let found = collect(submit(&handle, prompt.to_vec(), 0).1);
    drop(handle);
    thread.join().expect("the engine ends when its handle is dropped");
    found
}

/// A long run looks at every offset of a page.
fn offsets() -> impl Iterator<Item = usize> {
    let step = if std::env::var_os("GANNET_LONG_RUN").is_some() { 1 } else { 9 };
    (0..=64).step_by(step)
}

#[test]
fn branches_at_every_offset_of_a_page_find_its_beginning_and_change_nothing() {
    let model = golden("gemma3");
    let trunk = ids(1, PROMPT_TOKENS);
    for offset in offsets() {
        let branch = [&trunk[..64 + offset], &ids(90, 20)[..]].concat();
        let (expected, _) = answer_after(&model, KvFormat::Int8, &[], &branch);
        let (found, usage) = answer_after(&model, KvFormat::Int8, &[&trunk], &branch);
        assert!(found == expected, "a branch at {offset} gives another answer");
        // The full page has its keys in int8 alone, so the hit ends where it begins.
        assert_eq!(usage.reused_tokens as usize, if offset == 64 { 128 } else { 64 }, "a branch at {offset}");
    }
}

#[test]
fn a_page_that_is_partly_filled_is_found_with_its_exact_keys() {
    let model = golden("gemma3");
    for offset in offsets().filter(|offset| (1..24).contains(offset)) {
        // The answer ends inside of the third page.
        let first = ids(1, 128 + offset as u32);
        let (answer, _) = answer_after(&model, KvFormat::Int8, &[], &first);
        let said: Vec<TokenId> = answer.iter().map(|(id, _)| TokenId(*id)).collect();
        let next = [&first[..], &said, &ids(80, 7)].concat();
        let (expected, _) = answer_after(&model, KvFormat::Int8, &[], &next);
        let (found, usage) = answer_after(&model, KvFormat::Int8, &[&first], &next);
        assert!(found == expected, "a conversation that goes on after {offset} gives another answer");
        let computed = (first.len() + said.len() - 1) as u32;
        assert_eq!(usage.reused_tokens, computed, "a conversation that goes on after {offset}");
    }
}

#[test]
fn a_snapshot_inside_of_a_page_outlives_the_page_that_fills() {
    let model = golden("qwen3_5");
    if !model.exists() {
        return;
    }
    check_snapshot(&model, &cells(KvFormat::Int8)[0]);
}

/// A prompt that branches off inside of a page, where an earlier one left a snapshot, has the answer that it has alone.
fn check_snapshot(model: &Path, cell: &Cell) {
    let trunk = ids(1, PROMPT_TOKENS);
    // `submit` names 100 as a place where others branch off; the page around it is full when they come.
    let branch = [&trunk[..100], &ids(90, 40)[..]].concat();
    let (expected, _) = answer_in(model, cell, &[], &branch);
    let (found, usage) = answer_in(model, cell, &[&trunk], &branch);
    assert!(found == expected, "the branch gives another answer");
    assert_eq!(usage.reused_tokens, 100);
}

#[test]
fn a_hybrids_answers_on_a_device_depend_on_the_prompt_alone() {
    let model = gannet_testing::goldens::folder().join("qwen3_5");
    let on_device = |cell| Cell { is_on_device: true, ..cell };
    let all: Vec<Cell> = cells(KvFormat::F16).into_iter().map(on_device).collect();
    check_snapshot(&model, &all[0]);
    let (expected, _) = run(&model, &all[0]);
    // Chunks, a hit, a return after others and two preemptions, alone and among companions.
    let chosen = slice(all, goldens().len());
    assert!(check_cells(&model, &chosen, &expected) > 0, "no cell had a prefix hit");
}

fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../goldens").join(name)
}

#[test]
fn a_model_that_makes_no_text_is_refused() {
    let model = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../goldens/embedding-mean");
    let backend = CpuBackend::new(CpuOptions::default()).expect("the CPU is supported");
    let error =
        load(&model, &backend, &LoadOptions::default(), &|_| ()).err().expect("it makes vectors").to_string();
    assert!(error.contains("vectors"), "{error}");
}
