//! gpt-oss's answers: messages of channels, each behind a header.
//!
//! `<|channel|>analysis<|message|>` is reasoning, `final` is content, and a header with `to=functions.NAME` is a call,
//! whose message is the arguments. A message ends at `<|end|>`, `<|call|>` or `<|return|>`.

use super::events::Events;
use super::json::{ValueEnd, ValueStep};
use super::marks::Marks;

const MARKS_AFTER: [&str; 5] = ["<|end|>", "<|call|>", "<|return|>", "<|start|>", "<|channel|>"];
const MESSAGE: &str = "<|message|>";
const CHANNEL: &str = "<|channel|>";
pub(super) const MARKS: [&str; 7] =
    ["<|start|>", CHANNEL, "<|constrain|>", MESSAGE, "<|end|>", "<|call|>", "<|return|>"];

/// Reads whole answers.
#[derive(Debug, Default)]
pub(super) struct Harmony {
    state: State,
    marks: Marks,
    header: String,
    /// Whether the arguments of the present call are whole.
    is_whole: bool,
}

#[derive(Debug, Default)]
enum State {
    /// At the start, where a header may be missing.
    #[default]
    Start,
    Header,
    Content,
    Reasoning,
    Call(ValueEnd),
}

impl Harmony {
    /// Whether what follows is reasoning.
    pub(super) fn is_reasoning(&self) -> bool {
        matches!(self.state, State::Reasoning)
    }

    pub(super) fn step(&mut self, letter: char, events: &mut Events) {
        match self.state {
            State::Start => self.start(letter, events),
            State::Header => self.header(letter, events),
            State::Content | State::Reasoning | State::Call(_) => self.body(letter, events),
        }
    }

    pub(super) fn finish(&mut self, events: &mut Events) {
        let held = self.marks.finish();
        match self.state {
            State::Start | State::Header => events.content(&(std::mem::take(&mut self.header) + &held)),
            State::Content | State::Reasoning | State::Call(_) => self.write(&held, events),
        }
        if self.is_whole {
            events.end();
        }
    }

    fn start(&mut self, letter: char, events: &mut Events) {
        let found = self.marks.push(letter, &["<|start|>", CHANNEL, MESSAGE]);
        match found.mark {
            Some(0) => self.state = State::Header,
            Some(1) => {
                self.header.push_str(CHANNEL);
                self.state = State::Header;
            }
            Some(_) => self.state = State::Content,
            None if found.text.trim().is_empty() => self.header += &found.text,
            None => {
                events.content(&std::mem::take(&mut self.header));
                events.content(&found.text);
                // What is still held may be a mark of the body, which has the same ones.
                self.state = State::Content;
            }
        }
    }

    fn header(&mut self, letter: char, events: &mut Events) {
        let found = self.marks.push(letter, &[MESSAGE]);
        self.header += &found.text;
        if found.mark.is_none() {
            return;
        }
        let header = std::mem::take(&mut self.header);
        self.is_whole = false;
        self.state = match recipient(&header) {
            Some(name) => {
                events.start(name);
                State::Call(ValueEnd::default())
            }
            None if channel(&header) == "analysis" => {
                events.boundary();
                State::Reasoning
            }
            None => {
                events.boundary();
                State::Content
            }
        };
    }

    fn body(&mut self, letter: char, events: &mut Events) {
        let found = self.marks.push(letter, &MARKS_AFTER);
        self.write(&found.text, events);
        let Some(mark) = found.mark else { return };
        if let State::Call(_) = self.state {
            events.end();
        }
        self.is_whole = false;
        events.boundary();
        self.header.clear();
        if MARKS_AFTER[mark] == CHANNEL {
            self.header.push_str(CHANNEL);
        }
        self.state = State::Header;
    }

    fn write(&mut self, text: &str, events: &mut Events) {
        match &mut self.state {
            State::Content => events.content(text),
            State::Reasoning => events.reasoning(text),
            State::Call(end) => {
                for letter in text.chars() {
                    if letter.is_whitespace() && (self.is_whole || end.is_fresh()) {
                        continue;
                    }
                    self.is_whole |= end.step(letter) == ValueStep::Last;
                    events.arguments(letter.encode_utf8(&mut [0; 4]));
                }
            }
            State::Start | State::Header => {}
        }
    }
}

/// The tool that a header names.
fn recipient(header: &str) -> Option<&str> {
    let (_, after) = header.split_once("to=functions.")?;
    let end = after.find(|letter: char| letter.is_whitespace() || letter == '<').unwrap_or(after.len());
    (end > 0).then(|| &after[..end])
}

fn channel(header: &str) -> &str {
    let after = header.split_once(CHANNEL).map_or("", |(_, after)| after).trim_start();
    let end = after.find(|letter: char| letter.is_whitespace() || letter == '<').unwrap_or(after.len());
    &after[..end]
}
