//! What an answer's text is made of, and who tells the parts from each other.
//!
//! The text of an answer may be content, reasoning or tool calls. A splitter takes text as it becomes certain, and gives
//! parts that only grow.

use crate::names;
use gannet_text::calls::{AnswerEvent, AnswerParser, CallFormat, ReasoningFormat, Tool};
use gannet_text::tokenizer::Tokenizer;
use std::collections::HashSet;

/// A piece of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// What the reader is told.
    Content(String),
    /// What the model thinks by.
    Reasoning(String),
    /// A call of a tool begins.
    Call { index: usize, id: String, name: String },
    /// More of the arguments of the call that began last, as JSON text.
    Arguments { index: usize, json: String },
}

/// How the texts of a request's answers are read.
#[derive(Clone, Debug)]
pub(crate) enum Reading {
    /// All of it is content.
    Plain,
    /// It may have parts.
    Parts(Reader),
}

/// What tells the parts from each other.
#[derive(Clone, Debug)]
pub(crate) struct Reader {
    pub(crate) format: CallFormat,
    pub(crate) reasoning: Option<ReasoningFormat>,
    /// Whether answers begin inside of the reasoning, which the prompt has opened.
    pub(crate) begins_inside: bool,
    /// What may be called; where there is nothing, what looks like a call is content.
    pub(crate) tools: Vec<Tool>,
    /// Whether an answer ends behind its first call.
    pub(crate) one_call: bool,
}

/// Splits one answer's text into parts.
#[derive(Debug)]
pub(crate) enum Splitter {
    /// All of it is content.
    Plain,
    /// It is read.
    Parts(Box<PartSplitter>),
}

/// Reads one answer's text.
#[derive(Debug)]
pub(crate) struct PartSplitter {
    parser: AnswerParser,
    format: CallFormat,
    one_call: bool,
    /// Calls that have begun.
    calls: usize,
    /// Whether what comes now isn't wanted.
    is_done: bool,
}

impl Splitter {
    pub(crate) fn new(reading: &Reading) -> Self {
        let Reading::Parts(Reader { format, reasoning, begins_inside, tools, one_call }) = reading else {
            return Splitter::Plain;
        };
        let parser = AnswerParser::new(*format, *reasoning, tools.clone());
        let parser = if *begins_inside { parser.inside_reasoning() } else { parser };
        let (format, one_call) = (*format, *one_call);
        Splitter::Parts(Box::new(PartSplitter { parser, format, one_call, calls: 0, is_done: false }))
    }

    /// Control tokens that are read although they are no text; none of a splitter that reads nothing.
    pub(crate) fn marks(&self, tokenizer: &Tokenizer) -> Option<HashSet<u32>> {
        match self {
            Splitter::Plain => None,
            Splitter::Parts(splitter) => {
                let marks = splitter.parser.marks();
                Some(marks.into_iter().filter_map(|mark| tokenizer.id_of(mark)).collect())
            }
        }
    }

    /// The parts that are certain with this text.
    pub(crate) fn push(&mut self, text: &str) -> Vec<Part> {
        match self {
            Splitter::Plain if text.is_empty() => Vec::new(),
            Splitter::Plain => vec![Part::Content(text.to_owned())],
            Splitter::Parts(splitter) => {
                let events = splitter.parser.push(text);
                splitter.parts(events)
            }
        }
    }

    /// The parts that are left at the end.
    pub(crate) fn finish(&mut self) -> Vec<Part> {
        match self {
            Splitter::Plain => Vec::new(),
            Splitter::Parts(splitter) => {
                let events = splitter.parser.finish();
                splitter.parts(events)
            }
        }
    }

    /// Whether the answer has what it may have, so that what comes now isn't wanted.
    pub(crate) fn is_done(&self) -> bool {
        matches!(self, Splitter::Parts(splitter) if splitter.is_done)
    }

    /// Whether a tool was called.
    pub(crate) fn has_calls(&self) -> bool {
        matches!(self, Splitter::Parts(splitter) if splitter.calls > 0)
    }

    /// Whether what follows is reasoning.
    pub(crate) fn is_reasoning(&self) -> bool {
        matches!(self, Splitter::Parts(splitter) if splitter.parser.is_reasoning())
    }
}

impl PartSplitter {
    fn parts(&mut self, events: Vec<AnswerEvent>) -> Vec<Part> {
        let mut parts = Vec::with_capacity(events.len());
        for event in events {
            if self.is_done {
                break;
            }
            match event {
                AnswerEvent::Content(text) => parts.push(Part::Content(text)),
                AnswerEvent::Reasoning(text) => parts.push(Part::Reasoning(text)),
                AnswerEvent::CallStart { index, name } => {
                    self.calls += 1;
                    parts.push(Part::Call { index, id: call_id(self.format), name });
                }
                AnswerEvent::CallArguments { index, json } => parts.push(Part::Arguments { index, json }),
                AnswerEvent::CallEnd { .. } => self.is_done = self.one_call,
            }
        }
        parts
    }
}

/// A name for a call, no longer than the format takes.
fn call_id(format: CallFormat) -> String {
    let fresh = names::fresh("call_");
    match format.call_id_letters() {
        Some(letters) => fresh[fresh.len().saturating_sub(letters)..].to_owned(),
        None => fresh,
    }
}

/// Adds parts, joined to the last one where they go on with it.
pub(crate) fn append(parts: &mut Vec<Part>, more: Vec<Part>) {
    for part in more {
        match (parts.last_mut(), part) {
            (Some(Part::Content(text)), Part::Content(more))
            | (Some(Part::Reasoning(text)), Part::Reasoning(more)) => text.push_str(&more),
            (Some(Part::Arguments { index, json }), Part::Arguments { index: next, json: more })
                if *index == next =>
            {
                json.push_str(&more);
            }
            (_, part) => parts.push(part),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn reader(one_call: bool) -> Reading {
        let tool = json!({"type": "function", "function": {"name": "add", "parameters": {}}});
        Reading::Parts(Reader {
            format: CallFormat::Hermes,
            reasoning: Some(ReasoningFormat::Think),
            begins_inside: true,
            tools: Tool::from_json(&tool).into_iter().collect(),
            one_call,
        })
    }

    /// The parts, without the random names of calls.
    fn split(reading: &Reading, text: &str) -> (Vec<Part>, bool) {
        let mut splitter = Splitter::new(reading);
        let mut parts = Vec::new();
        for letter in text.chars() {
            append(&mut parts, splitter.push(&letter.to_string()));
        }
        append(&mut parts, splitter.finish());
        for part in &mut parts {
            if let Part::Call { id, .. } = part {
                assert!(id.starts_with("call_"));
                id.clear();
            }
        }
        (parts, splitter.is_done())
    }

    #[test]
    fn parts_are_told_apart_and_joined() {
        let call = "<tool_call>{\"name\": \"add\", \"arguments\": {\"a\": 1}}</tool_call>";
        let (parts, is_done) = split(&reader(false), &format!("hm</think>So: {call}\n{call}"));
        let call = |index| Part::Call { index, id: String::new(), name: "add".to_owned() };
        let arguments = |index| Part::Arguments { index, json: "{\"a\": 1}".to_owned() };
        let expected = [
            Part::Reasoning("hm".to_owned()),
            Part::Content("So:".to_owned()),
            call(0),
            arguments(0),
            call(1),
            arguments(1),
        ];
        assert_eq!(parts, expected);
        assert!(!is_done);
    }

    #[test]
    fn an_answer_of_one_call_is_done_behind_it() {
        let call = "<tool_call>{\"name\": \"add\", \"arguments\": {}}</tool_call>";
        let (parts, is_done) = split(&reader(true), &format!("</think>{call}{call}and more"));
        assert_eq!(parts.len(), 2);
        assert!(is_done);
    }
}
