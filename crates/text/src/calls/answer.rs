//! The parser of whole answers: content with its marks, and what each mark opens.

use super::deepseek::DeepSeekCalls;
use super::events::{AnswerEvent, Events};
use super::format::{CallFormat, LIST_END, ReasoningFormat};
use super::harmony::Harmony;
use super::json::JsonCalls;
use super::machine::{Machine, Step};
use super::marks::Marks;
use super::mistral::MistralCalls;
use super::python::PythonCalls;
use super::tagged::{self, TaggedCalls};
use super::tool::Tool;

/// Reads one answer; see [`crate::calls`].
#[derive(Debug)]
pub struct AnswerParser {
    format: CallFormat,
    reasoning: Option<ReasoningFormat>,
    tools: Vec<Tool>,
    events: Events,
    marks: Marks,
    /// What opens or closes something where the parser stands.
    state: State,
    /// Whether nothing but white space was content so far.
    is_at_start: bool,
    /// Calls before the reader of calls that reads now.
    calls_before: usize,
}

#[derive(Debug)]
enum State {
    Content,
    Reasoning,
    Calls(Box<dyn Machine>),
    Harmony(Harmony),
}

impl AnswerParser {
    /// A parser of an answer that may call these tools. Where there are none, what looks like a call is content.
    pub fn new(format: CallFormat, reasoning: Option<ReasoningFormat>, tools: Vec<Tool>) -> Self {
        let state = match format {
            CallFormat::Harmony => State::Harmony(Harmony::default()),
            CallFormat::Hermes
            | CallFormat::QwenCoder
            | CallFormat::Glm
            | CallFormat::Llama3Json
            | CallFormat::Pythonic
            | CallFormat::Mistral
            | CallFormat::DeepSeek
            | CallFormat::GemmaToolCode
            | CallFormat::GenericJson => State::Content,
        };
        let (events, marks) = (Events::new(), Marks::default());
        Self { format, reasoning, tools, events, marks, state, is_at_start: true, calls_before: 0 }
    }

    /// The same, where the prompt has opened the reasoning already ([`ReasoningFormat::is_opened_by`]).
    #[must_use]
    pub fn inside_reasoning(mut self) -> Self {
        if let (Some(_), State::Content) = (self.reasoning, &self.state) {
            self.state = State::Reasoning;
        }
        self
    }

    /// Marks that may be control tokens and that the parser reads.
    pub fn marks(&self) -> Vec<&'static str> {
        let reasoning = self.reasoning.map(ReasoningFormat::marks).unwrap_or_default();
        let calls = if self.tools.is_empty() && self.format != CallFormat::Harmony {
            &[]
        } else {
            self.format.marks()
        };
        reasoning.into_iter().filter(|mark| !mark.is_empty()).chain(calls.iter().copied()).collect()
    }

    /// Whether what follows is reasoning.
    pub fn is_reasoning(&self) -> bool {
        match &self.state {
            State::Content | State::Calls(_) => false,
            State::Reasoning => true,
            State::Harmony(harmony) => harmony.is_reasoning(),
        }
    }

    /// Reads more of the text; the events that are certain now.
    pub fn push(&mut self, text: &str) -> Vec<AnswerEvent> {
        text.chars().for_each(|letter| self.step(letter));
        self.events.take()
    }

    /// The text is at its end; the events that were held back.
    pub fn finish(&mut self) -> Vec<AnswerEvent> {
        let held = self.marks.finish();
        match &mut self.state {
            State::Content => self.events.content(&held),
            State::Reasoning => self.events.reasoning(&held),
            State::Calls(machine) => {
                machine.finish(&self.tools, &mut self.events);
                let raw = machine.raw().take();
                self.events.content(&raw);
            }
            State::Harmony(harmony) => harmony.finish(&mut self.events),
        }
        self.events.finish();
        self.events.take()
    }

    fn step(&mut self, letter: char) {
        match &mut self.state {
            State::Content => self.step_content(letter),
            State::Reasoning => self.step_reasoning(letter),
            State::Calls(_) => self.step_calls(letter),
            State::Harmony(harmony) => harmony.step(letter, &mut self.events),
        }
    }

    fn step_content(&mut self, letter: char) {
        let has_tools = !self.tools.is_empty();
        if has_tools && self.is_at_start && self.format.begins_with(letter) && self.marks.is_empty() {
            self.is_at_start = false;
            self.calls_before = self.events.calls();
            self.state = State::Calls(self.unmarked());
            return self.step_calls(letter);
        }
        let opener = self.reasoning.map(|reasoning| reasoning.marks()[0]);
        let calls = if has_tools { self.format.openers() } else { &[] };
        let marks: Vec<&str> = calls.iter().copied().chain(opener).collect();
        let found = self.marks.push(letter, &marks);
        self.is_at_start &= found.text.trim().is_empty();
        self.events.content(&found.text);
        match found.mark {
            Some(mark) if mark == calls.len() => {
                self.events.boundary();
                self.state = State::Reasoning;
            }
            Some(mark) if marks[mark] == LIST_END => self.events.boundary(),
            Some(mark) => {
                self.is_at_start = false;
                self.calls_before = self.events.calls();
                self.state = State::Calls(self.marked(marks[mark]));
            }
            None => {}
        }
    }

    fn step_reasoning(&mut self, letter: char) {
        let closer = self.reasoning.map(|reasoning| reasoning.marks()[1]);
        let found = self.marks.push(letter, closer.as_slice());
        self.events.reasoning(&found.text);
        if found.mark.is_some() {
            self.events.boundary();
            self.state = State::Content;
        }
    }

    fn step_calls(&mut self, letter: char) {
        let State::Calls(machine) = &mut self.state else { return };
        machine.raw().push(letter);
        match machine.step(letter, &self.tools, &mut self.events) {
            Step::Inside => {}
            Step::Last => {
                self.events.end();
                if self.events.calls() > self.calls_before {
                    self.events.boundary();
                } else {
                    let raw = machine.raw().take();
                    self.events.content(&raw);
                }
                self.state = State::Content;
            }
            Step::Malformed => {
                self.events.end();
                let raw = machine.raw().take();
                self.events.content(&raw);
                self.state = State::Content;
            }
            Step::After => {
                self.events.end();
                let mut raw = machine.raw().take();
                raw.pop();
                self.events.content(&raw);
                self.state = State::Content;
                self.step_content(letter);
            }
        }
    }

    /// The reader of calls behind a mark.
    fn marked(&self, mark: &str) -> Box<dyn Machine> {
        match self.format {
            CallFormat::Hermes => Box::new(JsonCalls::new(mark, Some("</tool_call>"), false)),
            CallFormat::QwenCoder => Box::new(TaggedCalls::new(&tagged::QWEN_CODER, mark)),
            CallFormat::Glm => Box::new(TaggedCalls::new(&tagged::GLM, mark)),
            CallFormat::Llama3Json => Box::new(JsonCalls::new(mark, None, true)),
            CallFormat::Pythonic => Box::new(PythonCalls::list(mark, false)),
            CallFormat::Mistral => Box::new(MistralCalls::new()),
            CallFormat::DeepSeek => Box::new(DeepSeekCalls::new()),
            CallFormat::GemmaToolCode => Box::new(PythonCalls::fenced()),
            CallFormat::Harmony | CallFormat::GenericJson => self.unmarked(),
        }
    }

    /// The reader of an answer that is calls as a whole.
    fn unmarked(&self) -> Box<dyn Machine> {
        match self.format {
            CallFormat::Pythonic => Box::new(PythonCalls::list("", true)),
            CallFormat::Hermes
            | CallFormat::QwenCoder
            | CallFormat::Glm
            | CallFormat::Llama3Json
            | CallFormat::Mistral
            | CallFormat::DeepSeek
            | CallFormat::GemmaToolCode
            | CallFormat::Harmony
            | CallFormat::GenericJson => Box::new(JsonCalls::new("", None, true)),
        }
    }
}
