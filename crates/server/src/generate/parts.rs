//! What an answer's text is made of.
//!
//! The text of an answer may be content, reasoning or tool calls; who splits it takes text as it becomes certain, and
//! gives parts that only grow.

/// A piece of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// What the reader is told.
    Content(String),
}

/// Splits one answer's text into parts.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Splitter {
    /// All of it is content.
    Plain,
}

impl Splitter {
    /// The parts that are certain with this text.
    pub(crate) fn push(&mut self, text: String) -> Vec<Part> {
        match self {
            Splitter::Plain if text.is_empty() => Vec::new(),
            Splitter::Plain => vec![Part::Content(text)],
        }
    }

    /// The parts that are left at the end.
    pub(crate) fn finish(&mut self) -> Vec<Part> {
        match self {
            Splitter::Plain => Vec::new(),
        }
    }
}
