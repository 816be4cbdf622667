//! Marks in a text that comes one character at a time.

use super::machine::Step;

/// Holds back what may become a mark.
#[derive(Debug, Default)]
pub(super) struct Marks {
    held: String,
}

/// What a character made of the text so far.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Found {
    /// Text that belongs to no mark.
    pub(super) text: String,
    /// The mark that is whole now, by its place in the list.
    pub(super) mark: Option<usize>,
}

impl Marks {
    /// Reads a character. `marks` may change only where nothing is held: after a mark, or at the start.
    pub(super) fn push(&mut self, letter: char, marks: &[&str]) -> Found {
        self.held.push(letter);
        let mut text = String::new();
        loop {
            if let Some(mark) = marks.iter().position(|mark| *mark == self.held) {
                self.held.clear();
                return Found { text, mark: Some(mark) };
            }
            if self.held.is_empty() || marks.iter().any(|mark| mark.starts_with(self.held.as_str())) {
                return Found { text, mark: None };
            }
            let first = self.held.remove(0);
            text.push(first);
        }
    }

    /// Reads a character where a call may end; nothing where it is no part of the closer, to be read as it is.
    pub(super) fn close(&mut self, letter: char, closer: &str) -> Option<Step> {
        let found = self.push(letter, &[closer]);
        if found.mark.is_some() {
            return Some(Step::Last);
        }
        if found.text.is_empty() {
            return Some(Step::Inside);
        }
        (found.text.chars().count() > 1).then_some(Step::Malformed)
    }

    /// Whether nothing is held.
    pub(super) fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    /// What was held, as text.
    pub(super) fn finish(&mut self) -> String {
        std::mem::take(&mut self.held)
    }
}
