//! Calls as JSON: `{"name": ..., "arguments": {...}}`, one or several, in a list or not; and the end of any JSON value.
//!
//! The text of the arguments is given out as the model wrote it. Arguments that are a string are the JSON text inside of
//! it. Braces that are missing at the end are forgiven.

use super::events::Events;
use super::machine::{Machine, Raw, Step};
use super::marks::Marks;
use super::tool::{Tool, find};

/// Finds the end of a JSON value without judging what is in it.
#[derive(Debug, Default)]
pub(super) struct ValueEnd {
    depth: usize,
    in_string: bool,
    is_escaped: bool,
    is_scalar: bool,
    letters: usize,
}

/// What a character is to a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ValueStep {
    Inside,
    /// Its last character.
    Last,
    /// The first behind it.
    After,
}

impl ValueEnd {
    /// Reads a character; the first is not white space.
    pub(super) fn step(&mut self, letter: char) -> ValueStep {
        self.letters += 1;
        if self.in_string {
            return self.step_in_string(letter);
        }
        match letter {
            '"' if !self.is_scalar => {
                self.in_string = true;
                ValueStep::Inside
            }
            '{' | '[' if !self.is_scalar => {
                self.depth += 1;
                ValueStep::Inside
            }
            '}' | ']' if self.depth > 0 => {
                self.depth -= 1;
                if self.depth == 0 { ValueStep::Last } else { ValueStep::Inside }
            }
            _ if self.depth > 0 => {
                let belongs =
                    letter.is_whitespace() || letter.is_ascii_alphanumeric() || ",:+-.".contains(letter);
                if belongs { ValueStep::Inside } else { ValueStep::After }
            }
            _ if letter.is_ascii_alphanumeric() || "+-.".contains(letter) => {
                self.is_scalar = true;
                ValueStep::Inside
            }
            _ => ValueStep::After,
        }
    }

    /// Whether nothing was read.
    pub(super) fn is_fresh(&self) -> bool {
        self.letters == 0
    }

    fn step_in_string(&mut self, letter: char) -> ValueStep {
        match letter {
            _ if self.is_escaped => self.is_escaped = false,
            '\\' => self.is_escaped = true,
            '"' => {
                self.in_string = false;
                return if self.depth == 0 { ValueStep::Last } else { ValueStep::Inside };
            }
            _ => {}
        }
        ValueStep::Inside
    }
}

/// Reads calls as JSON objects up to a closing mark, or as far as they go where there is none.
#[derive(Debug)]
pub(super) struct JsonCalls {
    closer: Option<&'static str>,
    /// Only tools that are there are called: nothing but the name tells a call from other JSON.
    only_known: bool,
    raw: Raw,
    state: State,
    marks: Marks,
    call: Call,
    in_list: bool,
}

#[derive(Debug)]
enum State {
    /// Before a call, or behind one.
    Between,
    BeforeKey,
    Key {
        text: String,
        is_escaped: bool,
    },
    Colon,
    BeforeValue,
    Value(ValueEnd),
    AfterValue,
}

/// What is known of the present call.
#[derive(Debug, Default)]
struct Call {
    key: String,
    /// The value of the present key, where it is needed whole.
    value: String,
    name: Option<String>,
    /// Arguments that came before the name.
    early: String,
    arguments: bool,
    /// Objects around the present one: `{"function": {...}}`.
    depth: usize,
    is_string: bool,
}

impl JsonCalls {
    pub(super) fn new(opener: &str, closer: Option<&'static str>, only_known: bool) -> Self {
        Self {
            closer,
            only_known,
            raw: Raw::new(opener),
            state: State::Between,
            marks: Marks::default(),
            call: Call::default(),
            in_list: false,
        }
    }

    fn between(&mut self, letter: char) -> Step {
        if let Some(step) = self.closer.and_then(|closer| self.marks.close(letter, closer)) {
            return step;
        }
        match letter {
            '{' => {
                self.call = Call::default();
                self.state = State::BeforeKey;
                Step::Inside
            }
            '[' if !self.in_list => {
                self.in_list = true;
                Step::Inside
            }
            ']' if self.in_list => {
                self.in_list = false;
                if self.closer.is_none() { Step::Last } else { Step::Inside }
            }
            ',' | ';' => Step::Inside,
            _ if letter.is_whitespace() => Step::Inside,
            _ => Step::After,
        }
    }

    fn before_value(&mut self, letter: char) -> Step {
        if letter.is_whitespace() {
            return Step::Inside;
        }
        if letter == '{' && self.call.key == "function" {
            self.call.depth += 1;
            self.state = State::BeforeKey;
            return Step::Inside;
        }
        self.call.value.clear();
        self.call.is_string = letter == '"';
        self.state = State::Value(ValueEnd::default());
        Step::Inside
    }

    fn value(&mut self, letter: char, tools: &[Tool], events: &mut Events) -> Step {
        let State::Value(end) = &mut self.state else { return Step::Malformed };
        let step = end.step(letter);
        let is_arguments = is_arguments(&self.call.key);
        if step != ValueStep::After {
            self.call.value.push(letter);
            if is_arguments && !self.call.is_string {
                self.argue(letter.encode_utf8(&mut [0; 4]), events);
            }
        }
        if step == ValueStep::Inside {
            return Step::Inside;
        }
        self.state = State::AfterValue;
        let text = serde_json::from_str::<String>(&self.call.value).ok();
        match (self.call.key.as_str(), text) {
            ("name" | "tool_name", Some(name)) => {
                if !self.begin(name, tools, events) {
                    return Step::Malformed;
                }
            }
            (_, Some(text)) if is_arguments => self.argue(&text, events),
            (_, None) if is_arguments && self.call.is_string => {
                let text = self.call.value.clone();
                self.argue(&text, events);
            }
            (_, _) => {}
        }
        if step == ValueStep::After { self.after_value(letter, events) } else { Step::Inside }
    }

    fn begin(&mut self, name: String, tools: &[Tool], events: &mut Events) -> bool {
        if self.call.name.is_some() || name.is_empty() || self.only_known && find(tools, &name).is_none() {
            return false;
        }
        events.start(&name);
        self.raw.given_out();
        self.call.name = Some(name);
        events.arguments(&std::mem::take(&mut self.call.early));
        true
    }

    fn argue(&mut self, text: &str, events: &mut Events) {
        self.call.arguments = true;
        match &self.call.name {
            Some(_) => events.arguments(text),
            None => self.call.early.push_str(text),
        }
    }

    fn after_value(&mut self, letter: char, events: &mut Events) -> Step {
        match letter {
            ',' => self.state = State::BeforeKey,
            '}' => return self.close(events),
            _ if letter.is_whitespace() => {}
            // A brace is missing; what follows may be the mark.
            _ => {
                let step = self.end_call(events);
                return if step == Step::Inside { self.between(letter) } else { step };
            }
        }
        Step::Inside
    }

    fn close(&mut self, events: &mut Events) -> Step {
        if self.call.depth > 0 {
            self.call.depth -= 1;
            self.state = State::AfterValue;
            return Step::Inside;
        }
        self.end_call(events)
    }

    fn end_call(&mut self, events: &mut Events) -> Step {
        if self.call.name.is_none() {
            return Step::Malformed;
        }
        if !self.call.arguments {
            events.arguments("{}");
        }
        events.end();
        self.raw.restart();
        self.state = State::Between;
        if self.closer.is_none() && !self.in_list && !self.only_known { Step::Last } else { Step::Inside }
    }
}

fn is_arguments(key: &str) -> bool {
    matches!(key, "arguments" | "parameters" | "args")
}

impl Machine for JsonCalls {
    fn step(&mut self, letter: char, tools: &[Tool], events: &mut Events) -> Step {
        match &mut self.state {
            State::Between => self.between(letter),
            State::BeforeKey => match letter {
                '"' => {
                    self.state = State::Key { text: "\"".to_owned(), is_escaped: false };
                    Step::Inside
                }
                '}' => self.close(events),
                ',' => Step::Inside,
                _ if letter.is_whitespace() => Step::Inside,
                _ => Step::Malformed,
            },
            State::Key { text, is_escaped } => {
                text.push(letter);
                match letter {
                    _ if *is_escaped => *is_escaped = false,
                    '\\' => *is_escaped = true,
                    '"' => {
                        self.call.key = serde_json::from_str(text).unwrap_or_default();
                        self.state = State::Colon;
                    }
                    _ => {}
                }
                Step::Inside
            }
            State::Colon => match letter {
                ':' => {
                    self.state = State::BeforeValue;
                    Step::Inside
                }
                _ if letter.is_whitespace() => Step::Inside,
                _ => Step::Malformed,
            },
            State::BeforeValue => match self.before_value(letter) {
                Step::Inside if matches!(self.state, State::Value(_)) => self.value(letter, tools, events),
                step @ (Step::Inside | Step::Last | Step::After | Step::Malformed) => step,
            },
            State::Value(_) => self.value(letter, tools, events),
            State::AfterValue => self.after_value(letter, events),
        }
    }

    fn finish(&mut self, _tools: &[Tool], _events: &mut Events) {}

    fn raw(&mut self) -> &mut Raw {
        &mut self.raw
    }
}
