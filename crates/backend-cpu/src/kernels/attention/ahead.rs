//! Asking memory for later keys or values while the present ones are worked on.
//!
//! What one head has of a page is a few kilobytes, and the next of it lies elsewhere: a processor that looks ahead by itself
//! stops at each small page of memory, and met the first lines of every run of keys and values late. So the run that is read
//! next is asked for whole, and one that is read a few runs later is brought half the way, since lines that come from memory
//! to the nearest cache are few at a time. Lines are asked for in their order, which lets the processor look ahead by itself too.

use super::super::pages::Elements;
use crate::simd::{LINE, prefetch, prefetch_far};

/// Blocks from the one that is worked on to that of which keys or values are brought half the way.
pub(super) const FAR_BLOCKS: usize = 2;

/// Bytes that will be read next and later, of which each pass over the present ones asks for its share. Asking reads nothing.
#[derive(Clone, Copy)]
pub(super) struct Ahead {
    next: *const u8,
    later: *const u8,
    lines: usize,
    pass: usize,
    passes: usize,
}

impl Ahead {
    /// Of these elements, or of what is near already where nothing is to come.
    #[inline(always)]
    pub(super) fn of(next: Option<Elements<'_>>, later: Option<Elements<'_>>, present: Elements<'_>) -> Self {
        let bytes = |elements: Option<Elements<'_>>| {
            elements.map_or(present.bytes().as_ptr(), |x| x.bytes().as_ptr())
        };
        let lines = next.unwrap_or(present).bytes().len().div_ceil(LINE);
        Self { next: bytes(next), later: bytes(later), lines, pass: 0, passes: 1 }
    }

    /// The share of one of some passes that follow each other in place of one.
    #[inline(always)]
    pub(super) fn of_pass(self, pass: usize, passes: usize) -> Self {
        Self { pass: self.pass * passes + pass, passes: self.passes * passes, ..self }
    }

    /// Asks for nothing.
    #[inline(always)]
    pub(super) fn none(self) -> Self {
        Self { lines: 0, ..self }
    }

    /// Begins a pass of so many steps.
    #[inline(always)]
    pub(super) fn begin(self, steps: usize) -> Asking {
        let first = self.pass * self.lines / self.passes * LINE;
        Asking {
            next: self.next.wrapping_add(first),
            later: self.later.wrapping_add(first),
            each: self.lines,
            sum: 0,
            line: steps * self.passes,
        }
    }
}

/// A pass that asks for some lines at each step.
pub(super) struct Asking {
    next: *const u8,
    later: *const u8,
    /// What a step adds to the sum, and what a line takes from it.
    each: usize,
    sum: usize,
    line: usize,
}

impl Asking {
    #[inline(always)]
    pub(super) fn step(&mut self) {
        self.sum += self.each;
        while self.sum >= self.line {
            self.sum -= self.line;
            prefetch(self.next);
            prefetch_far(self.later);
            self.next = self.next.wrapping_add(LINE);
            self.later = self.later.wrapping_add(LINE);
        }
    }
}
