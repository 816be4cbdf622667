//! An answer's text to content, reasoning and calls, in each format, cut in two.
//!
//! The first byte chooses the format, the second the cut. What comes of the pieces must be what comes of the whole.

#![no_main]

use gannet_text::calls::{AnswerEvent, AnswerParser, CallFormat, ReasoningFormat, Tool};
use libfuzzer_sys::fuzz_target;
use serde_json::json;

fn parse(format: CallFormat, pieces: &[&str]) -> String {
    let tool = json!({"name": "f", "parameters": {"properties": {"a": {"type": "string"}, "b": {}}}});
    let tools = Tool::from_json(&tool).into_iter().collect();
    let mut parser = AnswerParser::new(format, Some(ReasoningFormat::Think), tools);
    let mut events: Vec<AnswerEvent> = pieces.iter().flat_map(|piece| parser.push(piece)).collect();
    events.extend(parser.finish());
    let (mut written, mut last) = (String::new(), ' ');
    for event in &events {
        let (mark, text) = match event {
            AnswerEvent::Content(text) => ('c', text.as_str()),
            AnswerEvent::Reasoning(text) => ('r', text.as_str()),
            AnswerEvent::CallStart { name, .. } => ('s', name.as_str()),
            AnswerEvent::CallArguments { json, .. } => ('a', json.as_str()),
            AnswerEvent::CallEnd { .. } => ('e', ""),
        };
        if mark != last || mark == 's' {
            written.push('\0');
            written.push(mark);
        }
        written.push_str(text);
        last = mark;
    }
    written
}

fuzz_target!(|input: &[u8]| {
    let [format, cut, text @ ..] = input else { return };
    let text = String::from_utf8_lossy(text);
    let format = CallFormat::ALL[usize::from(*format) % CallFormat::ALL.len()];
    let mut cut = usize::from(*cut).min(text.len());
    while !text.is_char_boundary(cut) {
        cut -= 1;
    }
    let (before, after) = text.split_at(cut);
    assert_eq!(parse(format, &[before, after]), parse(format, &[&text]));
});
