//! Calls as Python writes them: `[f(a=1, b="x"), g()]` of Llama's pythonic format, and the lines of Gemma's
//! ```` ```tool_code ````, perhaps inside of `print(...)`.
//!
//! Each argument becomes JSON when it is whole. One that is no literal becomes a string of its source.

mod literal;

use serde_json::Value;

use super::events::Events;
use super::machine::{Machine, Raw, Step};
use super::marks::Marks;
use super::tool::{Tool, find};

pub(super) const FENCE: &str = "```tool_code";
const FENCE_END: &str = "```";

/// Reads calls in a list, or up to the end of a fence.
#[derive(Debug)]
pub(super) struct PythonCalls {
    is_fenced: bool,
    /// Only tools that are there are called: nothing but the name tells a call from other text.
    only_known: bool,
    raw: Raw,
    marks: Marks,
    state: State,
    name: String,
    /// `print(` around a call.
    wrappers: usize,
    argument: Argument,
    arguments: usize,
}

#[derive(Debug, PartialEq, Eq)]
enum State {
    /// Before the list's bracket.
    Start,
    Between,
    Name,
    Arguments,
}

/// The source of one argument.
#[derive(Debug, Default)]
struct Argument {
    source: String,
    /// The letter after the name, where there is one.
    equals: Option<usize>,
    depth: usize,
    quote: Option<char>,
    is_escaped: bool,
}

impl PythonCalls {
    /// A list of calls.
    pub(super) fn list(opener: &str, only_known: bool) -> Self {
        Self::new(opener, State::Start, only_known)
    }

    /// The inside of a fence.
    pub(super) fn fenced() -> Self {
        Self { is_fenced: true, ..Self::new(FENCE, State::Between, false) }
    }

    fn new(opener: &str, state: State, only_known: bool) -> Self {
        Self {
            is_fenced: false,
            only_known,
            raw: Raw::new(opener),
            marks: Marks::default(),
            state,
            name: String::new(),
            wrappers: 0,
            argument: Argument::default(),
            arguments: 0,
        }
    }

    fn between(&mut self, letter: char) -> Step {
        if self.is_fenced
            && let Some(step) = self.marks.close(letter, FENCE_END)
        {
            return step;
        }
        match letter {
            ',' | ';' => Step::Inside,
            ')' if self.wrappers > 0 => {
                self.wrappers -= 1;
                Step::Inside
            }
            ']' if !self.is_fenced => Step::Last,
            _ if letter.is_whitespace() => Step::Inside,
            _ if letter.is_alphabetic() || letter == '_' => {
                self.name = letter.to_string();
                self.state = State::Name;
                Step::Inside
            }
            _ => Step::Malformed,
        }
    }

    fn name(&mut self, letter: char, tools: &[Tool], events: &mut Events) -> Step {
        match letter {
            '(' if self.name == "print" && self.is_fenced => {
                self.wrappers += 1;
                self.state = State::Between;
            }
            '(' => return self.begin(tools, events),
            _ if letter.is_alphanumeric() || "_.-".contains(letter) => self.name.push(letter),
            _ => return Step::Malformed,
        }
        Step::Inside
    }

    fn begin(&mut self, tools: &[Tool], events: &mut Events) -> Step {
        let bare = self.name.strip_prefix("default_api.").unwrap_or(&self.name).to_owned();
        if self.only_known && find(tools, &bare).is_none() {
            return Step::Malformed;
        }
        events.start(&bare);
        events.arguments("{");
        self.raw.given_out();
        self.name = bare;
        (self.argument, self.arguments) = (Argument::default(), 0);
        self.state = State::Arguments;
        Step::Inside
    }

    fn arguments(&mut self, letter: char, tools: &[Tool], events: &mut Events) -> Step {
        if !self.argument.ends_at(letter) {
            self.argument.push(letter);
            return Step::Inside;
        }
        self.give_out(tools, events);
        if letter == ')' {
            events.arguments("}");
            events.end();
            self.raw.restart();
            self.state = State::Between;
        }
        Step::Inside
    }

    fn give_out(&mut self, tools: &[Tool], events: &mut Events) {
        let argument = std::mem::take(&mut self.argument);
        if argument.source.trim().is_empty() {
            return;
        }
        let (key, source) = argument.parts();
        let by_place = || find(tools, &self.name).and_then(|tool| tool.parameter(self.arguments));
        let place = format!("argument {}", self.arguments);
        let key = key.or_else(by_place).unwrap_or(&place);
        let separator = if self.arguments > 0 { ", " } else { "" };
        let value = literal::to_json(source).unwrap_or_else(|| Value::from(source));
        events.arguments(&format!("{separator}{}: {value}", Value::from(key)));
        self.arguments += 1;
    }
}

impl Argument {
    fn ends_at(&self, letter: char) -> bool {
        self.quote.is_none() && self.depth == 0 && matches!(letter, ',' | ')')
    }

    fn push(&mut self, letter: char) {
        match (self.quote, letter) {
            (Some(_), _) if self.is_escaped => self.is_escaped = false,
            (Some(_), '\\') => self.is_escaped = true,
            (Some(quote), _) if quote == letter => self.quote = None,
            (Some(_), _) => {}
            (None, '"' | '\'') => self.quote = Some(letter),
            (None, '(' | '[' | '{') => self.depth += 1,
            (None, ')' | ']' | '}') => self.depth = self.depth.saturating_sub(1),
            (None, '=') if self.depth == 0 && self.equals.is_none() => self.equals = Some(self.source.len()),
            (None, _) => {}
        }
        self.source.push(letter);
    }

    /// The name, where there is one, and the value.
    fn parts(&self) -> (Option<&str>, &str) {
        let Some(equals) = self.equals else { return (None, self.source.trim()) };
        let (key, value) = (self.source[..equals].trim(), self.source[equals + 1..].trim());
        let is_name = !key.is_empty() && key.chars().all(|letter| letter.is_alphanumeric() || letter == '_');
        if is_name { (Some(key), value) } else { (None, self.source.trim()) }
    }
}

impl Machine for PythonCalls {
    fn step(&mut self, letter: char, tools: &[Tool], events: &mut Events) -> Step {
        match self.state {
            State::Start if letter == '[' => {
                self.state = State::Between;
                Step::Inside
            }
            State::Start if letter.is_whitespace() => Step::Inside,
            State::Start => Step::Malformed,
            State::Between => self.between(letter),
            State::Name => self.name(letter, tools, events),
            State::Arguments => self.arguments(letter, tools, events),
        }
    }

    fn finish(&mut self, _tools: &[Tool], events: &mut Events) {
        // An argument that is cut off is text that was made: it stays, open as it is.
        if self.state == State::Arguments && !self.argument.source.is_empty() {
            let separator = if self.arguments > 0 { ", " } else { "" };
            events.arguments(&format!("{separator}{}", self.argument.source.trim_start()));
        }
    }

    fn raw(&mut self) -> &mut Raw {
        &mut self.raw
    }
}
