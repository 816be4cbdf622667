//! Conversations over several turns, from the template's text to the prefix cache: what the boundaries of a rendered chat
//! name is found again by the prompts that follow.
//!
//! The chats are those of SmolLM2's tokenizer and template, from its file. Attention finds a prefix at any token, recurrent
//! state at a boundary alone; so SmolLM2 itself goes on with a conversation, and the toy hybrid of the goldens, whose ids
//! are SmolLM2's folded into its small vocabulary, shows which boundary was found.

use crossbeam_channel::unbounded;
use gannet_backend_cpu::{CpuBackend, CpuOptions};
use gannet_engine::{EngineHandle, EngineOptions, Event, Request, Usage};
use gannet_loader::{LoadOptions, Running, load, open, start};
use gannet_ops::{PAGE_TOKENS, TokenId};
use gannet_text::chat::{ChatTemplate, Message, Part, RenderOptions};
use gannet_text::text::Text;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Ids of the toy hybrid.
const TOY_VOCABULARY: u32 = 128;
const ANSWER_TOKENS: u32 = 8;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn smollm2() -> PathBuf {
    let path = root().join("models/SmolLM2-135M-Instruct.Q4_1.gguf");
    assert!(path.exists(), "{} is missing: `cargo xtask models` gets it", path.display());
    path
}

fn text() -> Text {
    open(&smollm2()).and_then(|opened| opened.text).expect("the model has a tokenizer and a template")
}

fn engine(model: &Path) -> EngineHandle {
    engine_with_context(model, 512)
}

/// With any context, where a toy model has a shorter one.
fn engine_with_context(model: &Path, context: usize) -> EngineHandle {
    let backend = CpuBackend::new(CpuOptions::default()).expect("the CPU is supported");
    let options = LoadOptions {
        context: Some(context),
        force_context: true,
        sequences: Some(2),
        ..LoadOptions::default()
    };
    let loaded = load(model, &backend, &options, &|_| ()).expect("the model loads");
    let options = EngineOptions { sequences: 2, ..EngineOptions::default() };
    let Running { handle, .. } = start(loaded.runner, options).expect("a thread can be had");
    handle
}

/// A chat as a client gives it to the engine.
struct Prompt {
    ids: Vec<u32>,
    /// What ends where, in ids.
    boundaries: Vec<(Part, usize)>,
}

fn prompt(text: &Text, messages: &[Message]) -> Prompt {
    let template = text.require_template(&[]).expect("the model has a template");
    prompt_of(text, template, messages)
}

fn prompt_of(text: &Text, template: &ChatTemplate, messages: &[Message]) -> Prompt {
    let options = RenderOptions { boundaries: true, ..RenderOptions::default() };
    let rendered = template.render(messages, &[], &options).expect("the template renders");
    let encoded = text.tokenizer.encode_chat_with_boundaries(&rendered).expect("any chat can be encoded");
    let boundaries = encoded.boundaries.iter().map(|boundary| (boundary.part, boundary.tokens)).collect();
    Prompt { ids: encoded.ids, boundaries }
}

/// Runs a request to its end: what was answered, and what it took.
fn answer(handle: &EngineHandle, ids: &[u32], boundaries: &[usize]) -> (Vec<u32>, Usage) {
    let (sink, events) = unbounded();
    let ids = ids.iter().map(|id| TokenId(*id)).collect();
    let boundaries = boundaries.iter().map(|&tokens| tokens as u32).collect();
    let request = Request { boundaries, ..Request::greedy(ids, ANSWER_TOKENS, Arc::new(sink)) };
    handle.submit(request).expect("the request is valid");
    let mut said = Vec::new();
    loop {
        match events.recv().expect("a request has an end") {
            Event::Token { token, .. } => said.push(token.0),
            Event::Finished { usage, .. } => return (said, usage),
            Event::Started { .. } | Event::Prefilled { .. } => {}
        }
    }
}

fn common(one: &[u32], other: &[u32]) -> usize {
    one.iter().zip(other).take_while(|(one, other)| one == other).count()
}

fn folded(ids: &[u32]) -> Vec<u32> {
    ids.iter().map(|id| id % TOY_VOCABULARY).collect()
}

fn places(prompt: &Prompt) -> Vec<usize> {
    prompt.boundaries.iter().map(|(_, tokens)| *tokens).collect()
}

fn system() -> Message {
    Message::new(
        "system",
        "You are a helpful assistant who answers questions about birds in one short sentence.",
    )
}

fn user(text: &str) -> Message {
    Message::new("user", text)
}

fn said(text: &str) -> Message {
    Message::new("assistant", text)
}

#[test]
fn each_turn_computes_what_is_new() {
    let (text, handle) = (text(), engine(&smollm2()));
    let mut messages = vec![system()];
    let (mut known, mut last_message) = (Vec::new(), 0);
    for question in ["Which bird dives fastest?", "Where does it live?", "And what does it eat?"] {
        messages.push(user(question));
        let prompt = prompt(&text, &messages);
        assert!(prompt.boundaries.iter().any(|(part, _)| *part == Part::Preamble), "{:?}", prompt.boundaries);
        let (answer, usage) = answer(&handle, &prompt.ids, &places(&prompt));
        assert_eq!(usage.reused_tokens as usize, common(&known, &prompt.ids), "{question}");
        assert!(usage.reused_tokens as usize >= last_message, "{question}");
        last_message = places(&prompt).into_iter().max().expect("a message ends");
        // The last token of an answer is drawn and never computed.
        known = [&prompt.ids, &answer[..answer.len() - 1]].concat();
        let bytes =
            answer.iter().filter_map(|&id| text.tokenizer.token_bytes(id)).flatten().copied().collect();
        messages.push(said(&String::from_utf8(bytes).expect("an answer in English is text")));
    }
}

#[test]
fn recurrent_state_is_found_where_the_parts_of_a_chat_end() {
    let text = text();
    let chat = |first: &str, answer: &str, second: &str| {
        let Prompt { ids, boundaries } = prompt(&text, &[system(), user(first), said(answer), user(second)]);
        Prompt { ids: folded(&ids), boundaries }
    };
    let (first, answered, second) =
        ("Which bird dives fastest?", "The gannet, at 100 km/h.", "Where does it live?");
    let earlier = chat(first, answered, second);
    let end_of = |part: Part| {
        let found = earlier.boundaries.iter().find(|(other, _)| *other == part);
        found.unwrap_or_else(|| panic!("{part:?} is not among {:?}", earlier.boundaries)).1
    };
    let check = |branch: &Prompt, part: Part| {
        let reused = |boundaries: &[usize]| {
            let handle = engine(&root().join("goldens/qwen3_5"));
            answer(&handle, &earlier.ids, boundaries);
            answer(&handle, &branch.ids, &[]).1.reused_tokens as usize
        };
        assert!(common(&earlier.ids, &branch.ids) >= end_of(part), "{part:?} is the same in both");
        assert_eq!(reused(&places(&earlier)), end_of(part), "after {part:?}");
        assert!(reused(&[]) < end_of(part), "without boundaries less is found");
    };
    check(&chat(first, answered, "How heavy is it?"), Part::Message(2));
    check(&chat(first, "A falcon, at 300 km/h.", second), Part::Message(1));
    check(&chat("Name a large owl.", answered, second), Part::Preamble);
}

/// Qwen3's published template: what an assistant thought is there until the user asks again, and is then left out.
fn forgetful_template(text: &Text) -> ChatTemplate {
    let path = root().join("models/tokenizers/qwen3/tokenizer_config.json");
    let config = std::fs::read(&path).unwrap_or_else(|error| {
        panic!("`{}`: {error}: run `cargo xtask models` first", path.display());
    });
    let config: serde_json::Value = serde_json::from_slice(&config).expect("the file is JSON");
    let source = config["chat_template"].as_str().expect("it has a template");
    ChatTemplate::new(source, &text.tokenizer).expect("the template is one")
}

#[test]
fn ten_turns_whose_reasoning_is_dropped_recompute_a_page_at_most() {
    let text = text();
    let template = forgetful_template(&text);
    let handle = engine_with_context(&root().join("goldens/qwen3_5"), 4096);
    let mut messages = vec![system()];
    let mut known: Vec<Vec<u32>> = Vec::new();
    let mut dropped = 0;
    let mut ask = |messages: &[Message]| {
        let Prompt { ids, boundaries } = prompt_of(&text, &template, messages);
        let ids = folded(&ids);
        let places: Vec<usize> = boundaries.iter().map(|(_, tokens)| *tokens).collect();
        let (said, usage) = answer(&handle, &ids, &places);
        let unchanged = known.iter().map(|other| common(other, &ids)).max().unwrap_or(0);
        let (reused, changed) = (usage.reused_tokens as usize, ids.len() - unchanged);
        assert!(
            ids.len() - reused <= changed + PAGE_TOKENS,
            "{} tokens, {unchanged} as before, {reused} reused",
            ids.len()
        );
        dropped += usize::from(known.last().is_some_and(|last| unchanged + PAGE_TOKENS < last.len()));
        known.push([&ids, &said[..said.len() - 1]].concat());
    };
    for turn in 0..10 {
        messages.push(user(&format!("Question {turn}: how many fish does a gannet eat in {turn} days?")));
        ask(&messages);
        // It thinks, looks something up, and answers when it has the result.
        let thoughts = "The bird eats a few fish a day. ".repeat(6 + turn);
        messages
            .push(said(&format!("<think>\n{thoughts}\n</think>\n\nI look up the number for day {turn}.")));
        messages.push(Message::new("tool", &format!("{{\"fish\": {}}}", 5 * turn)));
        ask(&messages);
        messages.push(said(&format!("It eats {} fish.", 5 * turn)));
    }
    assert!(dropped >= 9, "each question drops what was thought before: {dropped}");
}
