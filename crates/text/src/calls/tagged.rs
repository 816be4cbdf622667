//! Calls whose arguments stand between tags: Qwen3-Coder's `<function=NAME><parameter=KEY>VALUE</parameter></function>`
//! and GLM's `NAME<arg_key>KEY</arg_key><arg_value>VALUE</arg_value>`.
//!
//! A value is text. Where the tool's schema says that a parameter is a string, its text is given out as it comes; any
//! other value is held until it is whole, and is JSON where it reads as JSON, else a string.

use serde_json::Value;

use super::events::Events;
use super::machine::{Machine, Raw, Step};
use super::marks::Marks;
use super::tool::{Tool, find};

pub(super) const OPENER: &str = "<tool_call>";
pub(super) const FUNCTION: &str = "<function=";
const CLOSER: &str = "</tool_call>";

/// The tags of a format.
#[derive(Debug)]
pub(super) struct Tags {
    /// Before the name; nothing where the name follows the opener.
    function: &'static str,
    /// Behind the name: one of these.
    name_ends: &'static [&'static str],
    key: &'static str,
    key_end: &'static str,
    /// Before the value; nothing where it follows the key.
    value: &'static str,
    /// Behind the value: the first of these, or what shows that it was forgotten.
    value_ends: &'static [&'static str],
    /// Behind the last argument.
    end: &'static str,
}

pub(super) static QWEN_CODER: Tags = Tags {
    function: FUNCTION,
    name_ends: &[">"],
    key: "<parameter=",
    key_end: ">",
    value: "",
    value_ends: &["</parameter>", "<parameter=", "</function>", CLOSER],
    end: "</function>",
};

pub(super) static GLM: Tags = Tags {
    function: "",
    name_ends: &["\n", "<arg_key>", CLOSER],
    key: "<arg_key>",
    key_end: "</arg_key>",
    value: "<arg_value>",
    value_ends: &["</arg_value>", "<arg_key>", CLOSER],
    end: CLOSER,
};

/// Reads calls between tags.
#[derive(Debug)]
pub(super) struct TaggedCalls {
    tags: &'static Tags,
    raw: Raw,
    marks: Marks,
    state: State,
    name: String,
    key: String,
    arguments: usize,
    value: TextValue,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    BeforeFunction,
    Name,
    Between,
    Key,
    BeforeValue,
    Value,
    /// Behind a call whose end is not the closer.
    After,
}

impl TaggedCalls {
    /// `opener` is the mark that was read.
    pub(super) fn new(tags: &'static Tags, opener: &str) -> Self {
        let has_name_next = tags.function.is_empty() || opener == tags.function;
        Self {
            tags,
            raw: Raw::new(opener),
            marks: Marks::default(),
            state: if has_name_next { State::Name } else { State::BeforeFunction },
            name: String::new(),
            key: String::new(),
            arguments: 0,
            value: TextValue::default(),
        }
    }

    fn before_function(&mut self, letter: char) -> Step {
        let found = self.marks.push(letter, &[self.tags.function]);
        if !found.text.trim().is_empty() {
            return Step::Malformed;
        }
        if found.mark.is_some() {
            self.state = State::Name;
        }
        Step::Inside
    }

    fn name(&mut self, letter: char, events: &mut Events) -> Step {
        let found = self.marks.push(letter, self.tags.name_ends);
        self.name += &found.text;
        let Some(mark) = found.mark else { return Step::Inside };
        let name = self.name.trim();
        if name.is_empty() && self.tags.name_ends[mark] == "\n" {
            return Step::Inside;
        }
        if name.is_empty() || name.contains(['<', '{', '"']) {
            return Step::Malformed;
        }
        events.start(name);
        events.arguments("{");
        self.raw.given_out();
        self.name = name.to_owned();
        self.arguments = 0;
        self.state = State::Between;
        let mark = self.tags.name_ends[mark];
        if mark == self.tags.key {
            self.begin_key();
        }
        if mark == self.tags.end { self.end(events) } else { Step::Inside }
    }

    fn begin_key(&mut self) {
        self.key.clear();
        self.state = State::Key;
    }

    fn between(&mut self, letter: char, events: &mut Events) -> Step {
        let found = self.marks.push(letter, &[self.tags.key, self.tags.end, CLOSER]);
        match found.mark {
            Some(0) => self.begin_key(),
            Some(mark) => {
                let step = self.end(events);
                return if mark == 2 { Step::Last } else { step };
            }
            None => {}
        }
        Step::Inside
    }

    fn key(&mut self, letter: char) -> Step {
        let found = self.marks.push(letter, &[self.tags.key_end]);
        self.key += &found.text;
        if found.mark.is_some() {
            self.value = TextValue::default();
            self.state = if self.tags.value.is_empty() { State::Value } else { State::BeforeValue };
        }
        Step::Inside
    }

    fn before_value(&mut self, letter: char) -> Step {
        if self.marks.push(letter, &[self.tags.value]).mark.is_some() {
            self.state = State::Value;
        }
        Step::Inside
    }

    fn value(&mut self, letter: char, tools: &[Tool], events: &mut Events) -> Step {
        let found = self.marks.push(letter, self.tags.value_ends);
        self.begin_value(tools, events);
        found.text.chars().for_each(|letter| self.value.push(letter, events));
        let Some(mark) = found.mark else { return Step::Inside };
        self.value.end(events);
        self.state = State::Between;
        let mark = self.tags.value_ends[mark];
        if mark == self.tags.key {
            self.begin_key();
        }
        if mark == CLOSER {
            self.end(events);
            return Step::Last;
        }
        if mark == self.tags.end { self.end(events) } else { Step::Inside }
    }

    /// Gives out the key before the first letter of its value.
    fn begin_value(&mut self, tools: &[Tool], events: &mut Events) {
        if self.value.has_begun {
            return;
        }
        let separator = if self.arguments > 0 { ", " } else { "" };
        let key = self.key.trim();
        events.arguments(&format!("{separator}{}: ", Value::from(key)));
        let is_string = find(tools, &self.name).is_some_and(|tool| tool.is_string(key));
        self.arguments += 1;
        self.value.begin(is_string, events);
    }

    fn end(&mut self, events: &mut Events) -> Step {
        events.arguments("}");
        events.end();
        self.raw.restart();
        self.name.clear();
        self.state = State::After;
        if self.tags.end == CLOSER { Step::Last } else { Step::Inside }
    }

    fn after(&mut self, letter: char) -> Step {
        let found = self.marks.push(letter, &[CLOSER, self.tags.function]);
        if !found.text.trim().is_empty() {
            // Several letters may have been held; all of them are content.
            return Step::Malformed;
        }
        match found.mark {
            Some(0) => Step::Last,
            Some(_) => {
                self.state = State::Name;
                Step::Inside
            }
            None => Step::Inside,
        }
    }
}

impl Machine for TaggedCalls {
    fn step(&mut self, letter: char, tools: &[Tool], events: &mut Events) -> Step {
        match self.state {
            State::BeforeFunction => self.before_function(letter),
            State::Name => self.name(letter, events),
            State::Between => self.between(letter, events),
            State::Key => self.key(letter),
            State::BeforeValue => self.before_value(letter),
            State::Value => self.value(letter, tools, events),
            State::After => self.after(letter),
        }
    }

    fn finish(&mut self, tools: &[Tool], events: &mut Events) {
        if self.state == State::Value {
            self.begin_value(tools, events);
            let held = self.marks.finish();
            held.chars().for_each(|letter| self.value.push(letter, events));
            self.value.cut(events);
        }
    }

    fn raw(&mut self) -> &mut Raw {
        &mut self.raw
    }
}

/// A value that is written as text, on its way to JSON. One line break at each end is the tags' own.
#[derive(Debug, Default)]
struct TextValue {
    has_begun: bool,
    is_string: bool,
    letters: usize,
    /// A line break that may be the last.
    has_break: bool,
    held: String,
}

impl TextValue {
    fn begin(&mut self, is_string: bool, events: &mut Events) {
        (self.has_begun, self.is_string) = (true, is_string);
        if is_string {
            events.arguments("\"");
        }
    }

    fn push(&mut self, letter: char, events: &mut Events) {
        self.letters += 1;
        if letter == '\n' && self.letters == 1 {
            return;
        }
        if std::mem::replace(&mut self.has_break, letter == '\n') {
            self.write('\n', events);
        }
        if letter != '\n' {
            self.write(letter, events);
        }
    }

    fn write(&mut self, letter: char, events: &mut Events) {
        if self.is_string {
            events.arguments(inside_quotes(letter.encode_utf8(&mut [0; 4])).as_str());
        } else {
            self.held.push(letter);
        }
    }

    fn end(&mut self, events: &mut Events) {
        if self.is_string {
            events.arguments("\"");
        } else {
            events.arguments(&as_json(&self.held));
        }
    }

    /// The text ends inside of the value: what is there of it is given out, and stays open.
    fn cut(&mut self, events: &mut Events) {
        if !self.is_string && !self.held.is_empty() {
            events.arguments(&format!("\"{}", inside_quotes(&self.held)));
        }
    }
}

/// A text as JSON: itself where it reads as JSON, else a string.
fn as_json(text: &str) -> String {
    let trimmed = text.trim();
    match serde_json::from_str::<Value>(trimmed) {
        Ok(_) => trimmed.to_owned(),
        Err(_) => Value::from(text).to_string(),
    }
}

fn inside_quotes(text: &str) -> String {
    let quoted = Value::from(text).to_string();
    quoted[1..quoted.len() - 1].to_owned()
}
