//! Expressions and statements of chat templates, each against Python's Jinja as transformers sets it up.

use crate::fixture;
use gannet_text::chat::{ChatTemplate, Clock, RenderOptions};
use gannet_text::gguf;

#[test]
fn expressions_give_what_they_give_in_python() {
    let fixture = fixture::read("expressions");
    let tokenizer = gguf::tokenizer(fixture::vocabulary(&fixture::read("smollm"))).unwrap();
    let unix_seconds = fixture["unix_seconds"].as_i64().unwrap();
    let options = RenderOptions {
        variables: fixture["variables"].as_object().unwrap().clone(),
        clock: Clock::Fixed { unix_seconds },
        ..RenderOptions::default()
    };
    let mut faults = Vec::new();
    for case in fixture["cases"].as_array().unwrap() {
        let source = case["source"].as_str().unwrap();
        let rendered = ChatTemplate::new(source, &tokenizer).and_then(|it| it.render(&[], &[], &options));
        match (&rendered, case["text"].as_str()) {
            (Ok(found), Some(expected)) if found.text == expected => {}
            (Err(_), None) => {}
            _ => faults.push(format!("{source}\n   found {rendered:?}\n   expected {case}")),
        }
    }
    assert!(faults.is_empty(), "{} differ:\n{}", faults.len(), faults.join("\n"));
}
