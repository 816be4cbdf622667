//! Asking memory for the next keys or values while the present ones are worked on.
//!
//! What one head has of a page is a few kilobytes, and the next of it lies elsewhere: a processor that looks ahead by itself
//! stops at each small page of memory, and met the first lines of every run of keys and values late.

use super::super::pages::Elements;
use crate::simd::{LINE, prefetch};

/// Bytes that will be read next, of which each pass over the present ones asks for its share. Asking reads nothing.
#[derive(Clone, Copy)]
pub(super) struct Ahead {
    start: *const u8,
    /// Where the last line starts.
    last: usize,
    pass: usize,
    passes: usize,
}

impl Ahead {
    /// Of these elements, or of what is near already where nothing is to come.
    #[inline(always)]
    pub(super) fn of(next: Option<Elements<'_>>, present: Elements<'_>) -> Self {
        let (bytes, last) = match next.map(Elements::bytes) {
            Some(bytes) => (bytes, bytes.len().saturating_sub(1) / LINE * LINE),
            None => (present.bytes(), 0),
        };
        Self { start: bytes.as_ptr(), last, pass: 0, passes: 1 }
    }

    /// The share of one of some passes.
    #[inline(always)]
    pub(super) fn of_pass(self, pass: usize, passes: usize) -> Self {
        Self { pass, passes, ..self }
    }

    /// Asks for the share of the lines of the row with this number, of rows of `row_lines`.
    #[inline(always)]
    pub(super) fn ask(self, row: usize, row_lines: usize) {
        let mut line = self.pass;
        while line < row_lines {
            // Beyond the end it is the last line again.
            prefetch(self.start.wrapping_add(((row * row_lines + line) * LINE).min(self.last)));
            line += self.passes;
        }
    }
}
