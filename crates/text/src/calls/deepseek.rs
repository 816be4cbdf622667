//! DeepSeek's calls: `<｜tool▁call▁begin｜>NAME<｜tool▁sep｜>{...}<｜tool▁call▁end｜>`, and the older form of V3 and R1,
//! `function<｜tool▁sep｜>NAME`, a line break and the arguments in a fence.

use super::events::Events;
use super::json::{ValueEnd, ValueStep};
use super::machine::{Machine, Raw, Step};
use super::marks::Marks;
use super::tool::Tool;

pub(super) const OPENER: &str = "<｜tool▁calls▁begin｜>";
const CALL: &str = "<｜tool▁call▁begin｜>";
const SEPARATOR: &str = "<｜tool▁sep｜>";
const CALL_END: &str = "<｜tool▁call▁end｜>";
const END: &str = "<｜tool▁calls▁end｜>";
pub(super) const MARKS: [&str; 5] = [OPENER, CALL, SEPARATOR, CALL_END, END];

/// Reads calls up to the mark that ends them all.
#[derive(Debug)]
pub(super) struct DeepSeekCalls {
    raw: Raw,
    marks: Marks,
    state: State,
    text: String,
}

#[derive(Debug)]
enum State {
    Between,
    /// The name, or the word `function` before it.
    Head,
    /// The name and the line of the fence; ends at the arguments.
    NameLine,
    BeforeValue,
    Value(ValueEnd),
    /// Behind the arguments, up to the end of the call.
    Tail,
}

impl DeepSeekCalls {
    pub(super) fn new() -> Self {
        Self { raw: Raw::new(OPENER), marks: Marks::default(), state: State::Between, text: String::new() }
    }

    fn between(&mut self, letter: char) -> Step {
        let found = self.marks.push(letter, &[CALL, END]);
        if !found.text.trim().is_empty() {
            return Step::Malformed;
        }
        match found.mark {
            Some(0) => {
                self.text.clear();
                self.state = State::Head;
                Step::Inside
            }
            Some(_) => Step::Last,
            None => Step::Inside,
        }
    }

    fn head(&mut self, letter: char, events: &mut Events) -> Step {
        let found = self.marks.push(letter, &[SEPARATOR]);
        self.text += &found.text;
        if found.mark.is_none() {
            return Step::Inside;
        }
        let head = std::mem::take(&mut self.text);
        match head.trim() {
            "function" => self.state = State::NameLine,
            "" => return Step::Malformed,
            name => self.begin(name, events),
        }
        Step::Inside
    }

    fn begin(&mut self, name: &str, events: &mut Events) {
        events.start(name);
        self.raw.given_out();
        self.state = State::BeforeValue;
    }

    fn name_line(&mut self, letter: char, events: &mut Events) -> Step {
        if letter != '\n' {
            self.text.push(letter);
            return Step::Inside;
        }
        let name = std::mem::take(&mut self.text);
        if name.trim().is_empty() {
            return Step::Malformed;
        }
        self.begin(name.trim(), events);
        Step::Inside
    }

    fn before_value(&mut self, letter: char, events: &mut Events) -> Step {
        let found = self.marks.push(letter, &[CALL_END]);
        if found.mark.is_some() {
            events.arguments("{}");
            return self.end(events);
        }
        if found.text.contains(['{', '[']) {
            self.state = State::Value(ValueEnd::default());
            return self.value(letter, events);
        }
        Step::Inside
    }

    fn value(&mut self, letter: char, events: &mut Events) -> Step {
        let State::Value(end) = &mut self.state else { return Step::Malformed };
        let step = end.step(letter);
        if step != ValueStep::After {
            events.arguments(letter.encode_utf8(&mut [0; 4]));
        }
        if step != ValueStep::Inside {
            self.state = State::Tail;
        }
        if step == ValueStep::After { self.tail(letter, events) } else { Step::Inside }
    }

    fn tail(&mut self, letter: char, events: &mut Events) -> Step {
        let found = self.marks.push(letter, &[CALL_END]);
        if found.mark.is_some() { self.end(events) } else { Step::Inside }
    }

    fn end(&mut self, events: &mut Events) -> Step {
        events.end();
        self.raw.restart();
        self.state = State::Between;
        Step::Inside
    }
}

impl Machine for DeepSeekCalls {
    fn step(&mut self, letter: char, _tools: &[Tool], events: &mut Events) -> Step {
        match self.state {
            State::Between => self.between(letter),
            State::Head => self.head(letter, events),
            State::NameLine => self.name_line(letter, events),
            State::BeforeValue => self.before_value(letter, events),
            State::Value(_) => self.value(letter, events),
            State::Tail => self.tail(letter, events),
        }
    }

    fn finish(&mut self, _tools: &[Tool], _events: &mut Events) {}

    fn raw(&mut self) -> &mut Raw {
        &mut self.raw
    }
}
