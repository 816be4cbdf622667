//! What reads the inside of calls, one character at a time.

use super::events::Events;
use super::tool::Tool;

/// A reader of one format's calls, from behind the mark that opens them.
pub(super) trait Machine: std::fmt::Debug + Send {
    /// Reads a character.
    fn step(&mut self, letter: char, tools: &[Tool], events: &mut Events) -> Step;

    /// The text is at its end.
    fn finish(&mut self, tools: &[Tool], events: &mut Events);

    /// Text that was read and of which nothing was given out; it becomes content where it turns out to be no call.
    fn raw(&mut self) -> &mut Raw;
}

/// What a character was to a machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// Part of the calls.
    Inside,
    /// The last of them.
    Last,
    /// Not theirs any more: whoever comes next reads it.
    After,
    /// No call can have it: what is raw, with it, is content.
    Malformed,
}

/// Text of a call that has not begun for the reader.
#[derive(Debug, Default)]
pub(super) struct Raw {
    text: String,
    is_given_out: bool,
}

impl Raw {
    pub(super) fn new(text: &str) -> Self {
        Self { text: text.to_owned(), is_given_out: false }
    }

    pub(super) fn push(&mut self, letter: char) {
        if !self.is_given_out {
            self.text.push(letter);
        }
    }

    /// The call has begun; its text won't be content any more.
    pub(super) fn given_out(&mut self) {
        self.text.clear();
        self.is_given_out = true;
    }

    /// Another call may follow.
    pub(super) fn restart(&mut self) {
        *self = Self::default();
    }

    pub(super) fn take(&mut self) -> String {
        std::mem::take(&mut self.text)
    }
}
