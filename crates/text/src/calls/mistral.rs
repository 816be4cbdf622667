//! Mistral's calls behind `[TOOL_CALLS]`: a JSON list of calls, or `NAME[ARGS]{...}`, each behind a mark of its own.

use super::events::Events;
use super::json::{JsonCalls, ValueEnd, ValueStep};
use super::machine::{Machine, Raw, Step};
use super::marks::Marks;
use super::tool::Tool;

pub(super) const OPENER: &str = "[TOOL_CALLS]";
const CALL_ID: &str = "[CALL_ID]";
const ARGUMENTS: &str = "[ARGS]";
pub(super) const MARKS: [&str; 3] = [OPENER, CALL_ID, ARGUMENTS];

/// Reads what follows one `[TOOL_CALLS]`.
#[derive(Debug)]
pub(super) struct MistralCalls {
    raw: Raw,
    marks: Marks,
    state: State,
    name: String,
    has_id: bool,
}

#[derive(Debug)]
enum State {
    Start,
    List(Box<JsonCalls>),
    Name,
    BeforeValue,
    Value(ValueEnd),
}

impl MistralCalls {
    pub(super) fn new() -> Self {
        Self {
            raw: Raw::new(OPENER),
            marks: Marks::default(),
            state: State::Start,
            name: String::new(),
            has_id: false,
        }
    }

    fn start(&mut self, letter: char, tools: &[Tool], events: &mut Events) -> Step {
        if letter.is_whitespace() {
            return Step::Inside;
        }
        if letter == '[' || letter == '{' {
            let mut list = JsonCalls::new("", None, false);
            // What was read up to here is this machine's; the list keeps what it reads itself.
            *list.raw() = std::mem::take(&mut self.raw);
            let step = list.step(letter, tools, events);
            self.state = State::List(Box::new(list));
            return step;
        }
        self.state = State::Name;
        self.name(letter, events)
    }

    fn name(&mut self, letter: char, events: &mut Events) -> Step {
        let found = self.marks.push(letter, &[ARGUMENTS, CALL_ID]);
        if found.text.contains('{') {
            return self.begin(events).unwrap_or_else(|| {
                self.state = State::Value(ValueEnd::default());
                self.value(letter, events)
            });
        }
        if !self.has_id {
            self.name += &found.text;
        }
        match found.mark {
            Some(0) => self.begin(events).unwrap_or(Step::Inside),
            Some(_) => {
                self.has_id = true;
                Step::Inside
            }
            None => Step::Inside,
        }
    }

    /// Begins the call; a step where it can't.
    fn begin(&mut self, events: &mut Events) -> Option<Step> {
        let name = self.name.trim();
        if name.is_empty() || name.contains(char::is_whitespace) {
            return Some(Step::Malformed);
        }
        events.start(name);
        self.raw.given_out();
        self.state = State::BeforeValue;
        None
    }

    fn before_value(&mut self, letter: char, events: &mut Events) -> Step {
        match letter {
            '{' | '[' => {
                self.state = State::Value(ValueEnd::default());
                self.value(letter, events)
            }
            _ if letter.is_whitespace() => Step::Inside,
            _ => {
                events.arguments("{}");
                events.end();
                Step::After
            }
        }
    }

    fn value(&mut self, letter: char, events: &mut Events) -> Step {
        let State::Value(end) = &mut self.state else { return Step::Malformed };
        let step = end.step(letter);
        if step != ValueStep::After {
            events.arguments(letter.encode_utf8(&mut [0; 4]));
        }
        match step {
            ValueStep::Inside => Step::Inside,
            ValueStep::Last | ValueStep::After => {
                events.end();
                if step == ValueStep::Last { Step::Last } else { Step::After }
            }
        }
    }
}

impl Machine for MistralCalls {
    fn step(&mut self, letter: char, tools: &[Tool], events: &mut Events) -> Step {
        match &mut self.state {
            State::Start => self.start(letter, tools, events),
            State::List(list) => list.step(letter, tools, events),
            State::Name => self.name(letter, events),
            State::BeforeValue => self.before_value(letter, events),
            State::Value(_) => self.value(letter, events),
        }
    }

    fn finish(&mut self, _tools: &[Tool], events: &mut Events) {
        if let State::BeforeValue = self.state {
            events.arguments("{}");
            events.end();
        }
    }

    fn raw(&mut self) -> &mut Raw {
        match &mut self.state {
            State::List(list) => list.raw(),
            State::Start | State::Name | State::BeforeValue | State::Value(_) => &mut self.raw,
        }
    }
}
