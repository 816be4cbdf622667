//! Events of an answer, and the white space between its parts.
//!
//! White space is held until it is known what follows. Between two parts it is nobody's and dropped; inside of one, and at
//! the beginning and the end of an answer, it stays.

/// A part of an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AnswerEvent {
    /// Text for the reader.
    Content(String),
    /// Text that the model thinks by.
    Reasoning(String),
    /// A call begins.
    CallStart {
        /// Its number in the answer, from 0.
        index: usize,
        /// The tool's name.
        name: String,
    },
    /// More of a call's arguments.
    CallArguments {
        /// The call's number.
        index: usize,
        /// What follows on the JSON text so far.
        json: String,
    },
    /// A call is whole.
    CallEnd {
        /// Its number.
        index: usize,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    Content,
    Reasoning,
    Call,
}

/// Events that are still to be given out.
#[derive(Debug)]
pub(super) struct Events {
    list: Vec<AnswerEvent>,
    part: Part,
    /// White space at the end of the present part.
    space: String,
    /// White space that comes now is dropped.
    is_fresh: bool,
    calls: usize,
    is_call_open: bool,
}

impl Events {
    pub(super) fn new() -> Self {
        Self {
            list: Vec::new(),
            part: Part::Content,
            space: String::new(),
            is_fresh: false,
            calls: 0,
            is_call_open: false,
        }
    }

    pub(super) fn take(&mut self) -> Vec<AnswerEvent> {
        std::mem::take(&mut self.list)
    }

    pub(super) fn content(&mut self, text: &str) {
        self.write(Part::Content, text);
    }

    pub(super) fn reasoning(&mut self, text: &str) {
        self.write(Part::Reasoning, text);
    }

    /// A part ends here, even if it was empty.
    pub(super) fn boundary(&mut self) {
        self.space.clear();
        self.is_fresh = true;
    }

    pub(super) fn start(&mut self, name: &str) {
        self.end();
        self.boundary();
        self.part = Part::Call;
        self.is_call_open = true;
        self.list.push(AnswerEvent::CallStart { index: self.calls, name: name.to_owned() });
        self.calls += 1;
    }

    /// More arguments of the call that began last.
    pub(super) fn arguments(&mut self, text: &str) {
        let now = self.calls - 1;
        if text.is_empty() {
            return;
        }
        match self.list.last_mut() {
            Some(AnswerEvent::CallArguments { index, json }) if *index == now => json.push_str(text),
            Some(_) | None => {
                self.list.push(AnswerEvent::CallArguments { index: now, json: text.to_owned() })
            }
        }
    }

    /// The call that began last is whole, if it was not yet.
    pub(super) fn end(&mut self) {
        if !std::mem::replace(&mut self.is_call_open, false) {
            return;
        }
        self.list.push(AnswerEvent::CallEnd { index: self.calls - 1 });
    }

    /// Calls that have begun.
    pub(super) fn calls(&self) -> usize {
        self.calls
    }

    /// The text is at its end, so white space that was held belongs to it.
    pub(super) fn finish(&mut self) {
        let space = std::mem::take(&mut self.space);
        if !space.is_empty() {
            self.append(&space);
        }
    }

    fn write(&mut self, part: Part, text: &str) {
        for letter in text.chars() {
            if letter.is_whitespace() {
                // White space of another part than the present one waits for the text that makes it that part's.
                if !self.is_fresh && self.part == part {
                    self.space.push(letter);
                }
                continue;
            }
            if self.part != part {
                self.boundary();
                self.part = part;
            }
            let mut text = std::mem::take(&mut self.space);
            text.push(letter);
            self.is_fresh = false;
            self.append(&text);
        }
    }

    fn append(&mut self, text: &str) {
        match (self.part, self.list.last_mut()) {
            (Part::Content, Some(AnswerEvent::Content(before))) => before.push_str(text),
            (Part::Reasoning, Some(AnswerEvent::Reasoning(before))) => before.push_str(text),
            (Part::Content, _) => self.list.push(AnswerEvent::Content(text.to_owned())),
            (Part::Reasoning, _) => self.list.push(AnswerEvent::Reasoning(text.to_owned())),
            (Part::Call, _) => {}
        }
    }
}
