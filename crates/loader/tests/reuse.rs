//! How much of a long prefix later requests reuse, on the toy models of the goldens: dense, with experts, with windows and
//! with recurrent state, for one sequence at a time, so that the cache has only what that one leaves over.

use crossbeam_channel::unbounded;
use gannet_backend_cpu::{CpuBackend, CpuOptions};
use gannet_engine::{EngineHandle, EngineOptions, Event, Request, Usage};
use gannet_loader::{LoadOptions, Running, load, start};
use gannet_ops::{KvFormat, TokenId};
use std::path::Path;
use std::sync::Arc;

const VOCABULARY: u32 = 128;
const SYSTEM_TOKENS: u32 = 4000;
const USER_TOKENS: u32 = 200;
const ANSWER_TOKENS: u32 = 100;
/// 95 % of the system prompt.
const REUSED_MIN: u32 = SYSTEM_TOKENS / 100 * 95;

fn engine(golden: &str, kv_format: KvFormat) -> EngineHandle {
    let model = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../goldens").join(golden);
    let backend = CpuBackend::new(CpuOptions::default()).expect("the CPU is supported");
    let options = LoadOptions {
        context: Some(4608),
        force_context: true,
        kv_format: Some(kv_format),
        ..LoadOptions::default()
    };
    let loaded = load(&model, &backend, &options, &|_| ()).expect("the golden loads");
    let Running { handle, .. } = start(loaded.runner, EngineOptions::default()).expect("a thread can be had");
    handle
}

fn ids(seed: u32, length: u32) -> Vec<TokenId> {
    let mut state = seed.wrapping_mul(0x9e37_79b9) | 1;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        TokenId((state >> 16) % VOCABULARY)
    };
    (0..length).map(|_| next()).collect()
}

fn run(handle: &EngineHandle, prompt: &[TokenId], boundaries: &[u32]) -> Usage {
    let (sink, events) = unbounded();
    let request = Request {
        boundaries: boundaries.to_vec(),
        ..Request::greedy(prompt.to_vec(), ANSWER_TOKENS, Arc::new(sink))
    };
    handle.submit(request).expect("the request is valid");
    let usage = |event| match event {
        Event::Finished { usage, .. } => Some(usage),
        Event::Started { .. } | Event::Prefilled { .. } | Event::Token { .. } => None,
    };
    events.iter().find_map(usage).expect("a request has an end")
}

/// Tokens that each of three chats reuses whose prompts begin alike.
fn reused(golden: &str, kv_format: KvFormat, boundaries: &[u32]) -> Vec<u32> {
    let handle = engine(golden, kv_format);
    let system = ids(1, SYSTEM_TOKENS);
    let chats = (2..5).map(|user| [&system[..], &ids(user, USER_TOKENS)].concat());
    chats.map(|prompt| run(&handle, &prompt, boundaries).reused_tokens).collect()
}

/// A long run looks at every model and format.
fn is_long() -> bool {
    std::env::var_os("GANNET_LONG_RUN").is_some()
}

fn cases() -> Vec<(&'static str, KvFormat)> {
    let few = [
        ("llama", KvFormat::F16),
        ("gemma3", KvFormat::F16),
        ("mistral", KvFormat::F16),
        ("qwen3_5", KvFormat::F16),
    ];
    let names =
        ["llama", "qwen3-moe", "gemma3", "mistral", "qwen2-sliding", "qwen3-next", "qwen3_5", "qwen3_5-moe"];
    let all = names.into_iter().flat_map(|name| [KvFormat::F16, KvFormat::Int8].map(|format| (name, format)));
    if is_long() { all.collect() } else { few.to_vec() }
}

fn is_hybrid(golden: &str) -> bool {
    golden.starts_with("qwen3_5") || golden == "qwen3-next"
}

#[test]
fn a_long_system_prompt_that_is_named_is_reused_by_the_second_chat() {
    for (golden, kv_format) in cases() {
        let found = reused(golden, kv_format, &[SYSTEM_TOKENS]);
        assert_eq!(found[0], 0);
        assert!(found[1..].iter().all(|reused| *reused >= REUSED_MIN), "{golden}, {kv_format:?}: {found:?}");
    }
}

#[test]
fn a_long_prefix_that_nobody_names_is_reused_by_the_second_or_third_request() {
    for (golden, kv_format) in cases() {
        let found = reused(golden, kv_format, &[]);
        let first = if is_hybrid(golden) { 2 } else { 1 };
        let later = &found[first..];
        assert!(later.iter().all(|reused| *reused >= REUSED_MIN), "{golden}, {kv_format:?}: {found:?}");
    }
}
