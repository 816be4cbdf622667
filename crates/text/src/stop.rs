//! Stop strings in a stream of text.
//!
//! The answer ends before the first stop string to be completed, character by character; among several completed by one
//! character, the longest. That doesn't depend on how the stream is cut into pieces: text that may be the beginning of a
//! stop string is held back until it is clear.
//!
//! Knows no tokens: it works on decoded text.

use crate::error::TextError;

/// Most stop strings of one request.
pub const MAX_STOPS: usize = 64;
/// Longest stop string, in bytes.
pub const MAX_STOP_BYTES: usize = 4096;

/// Looks for the stop strings of one stream.
#[derive(Debug, Clone)]
pub struct StopStrings {
    stops: Vec<String>,
    // Invariant: the longest end of the stream that begins a stop string.
    held: String,
    released_bytes: usize,
    stopped: Option<Stop>,
}

/// Where a stop string ended the stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stop {
    /// Which one, by its place in the list.
    pub index: usize,
    /// The stop string's first byte in the stream; equally, how many bytes of text were let through.
    pub start_bytes: usize,
}

impl StopStrings {
    /// Looks for `stops`; none is fine.
    ///
    /// # Errors
    /// `EmptyStop`, and `TooLarge` above `MAX_STOPS` or `MAX_STOP_BYTES`.
    pub fn new(stops: Vec<String>) -> Result<Self, TextError> {
        if stops.len() > MAX_STOPS {
            let (found, limit) = (stops.len(), MAX_STOPS);
            return Err(TextError::TooLarge { what: "the number of stop strings", found, limit });
        }
        for (index, stop) in stops.iter().enumerate() {
            if stop.is_empty() {
                return Err(TextError::EmptyStop { index });
            }
            if stop.len() > MAX_STOP_BYTES {
                let (found, limit) = (stop.len(), MAX_STOP_BYTES);
                return Err(TextError::TooLarge { what: "a stop string's length in bytes", found, limit });
            }
        }
        Ok(Self { stops, held: String::new(), released_bytes: 0, stopped: None })
    }

    /// Takes the next piece of the stream and returns the text that is now certain to come before any stop string.
    /// Nothing is returned once the stream is stopped.
    pub fn push(&mut self, text: &str) -> String {
        if self.stopped.is_some() {
            return String::new();
        }
        self.held.push_str(text);
        let released = match self.first_match() {
            Some((index, start)) => {
                self.stopped = Some(Stop { index, start_bytes: self.released_bytes + start });
                let released = self.held[..start].to_owned();
                self.held.clear();
                released
            }
            None => {
                let rest = self.held.split_off(self.certain_bytes());
                std::mem::replace(&mut self.held, rest)
            }
        };
        self.released_bytes += released.len();
        released
    }

    /// The stop string that was found, if one was.
    pub fn stopped(&self) -> Option<Stop> {
        self.stopped
    }

    /// The stream ends: what was held back was no stop string.
    pub fn finish(&mut self) -> String {
        let rest = std::mem::take(&mut self.held);
        self.released_bytes += rest.len();
        rest
    }

    /// (stop, start) of the match that ends first; of several, the one that begins first.
    fn first_match(&self) -> Option<(usize, usize)> {
        let matches = self.stops.iter().enumerate().filter_map(|(index, stop)| {
            self.held.find(stop.as_str()).map(|start| (start + stop.len(), start, index))
        });
        matches.min().map(|(_, start, index)| (index, start))
    }

    /// How much of `held` can't be part of a stop string.
    fn certain_bytes(&self) -> usize {
        let longest = self.stops.iter().map(String::len).max().unwrap_or(0);
        let first_candidate = (self.held.len() + 1).saturating_sub(longest);
        let starts = (first_candidate..self.held.len()).filter(|&start| self.held.is_char_boundary(start));
        let mut open =
            starts.filter(|&start| self.stops.iter().any(|stop| stop.starts_with(&self.held[start..])));
        open.next().unwrap_or(self.held.len())
    }
}
