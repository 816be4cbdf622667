//! Token ids back to text, one at a time.
//!
//! Bytes wait in `pending` until they are whole characters, so what comes out is always text and the pieces joined are
//! the text of all ids at once. Bytes that can't become a character are U+FFFD, one for each maximal broken sequence
//! (Unicode 3.9, the W3C's and `String::from_utf8_lossy`'s rule).
//!
//! Knows no stop string and no end of text: ids come in, text goes out.

use std::sync::Arc;

use crate::tokenizer::{TokenId, Tokenizer};
use crate::vocabulary::Vocabulary;

/// Whether control tokens appear in decoded text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SpecialTokens {
    /// Left out: the reader's view.
    Skip,
    /// By their names.
    Show,
}

/// Where in the text the first decoded token stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// At its start: a space that encoding put there is taken off again.
    Start,
    /// Somewhere behind: what comes out continues other text.
    Middle,
}

/// Decodes one stream of ids.
#[derive(Debug, Clone)]
pub struct Decoder {
    vocabulary: Arc<Vocabulary>,
    special_tokens: SpecialTokens,
    spaces_to_drop: usize,
    // Invariant: the beginning of a character, at most three bytes.
    pending: Vec<u8>,
}

impl Decoder {
    /// A decoder for ids of `tokenizer`.
    pub fn new(tokenizer: &Tokenizer, special_tokens: SpecialTokens, place: Place) -> Self {
        let vocabulary = Arc::clone(tokenizer.vocabulary());
        let spaces_to_drop = match place {
            Place::Start => vocabulary.leading_spaces(),
            Place::Middle => 0,
        };
        Self { vocabulary, special_tokens, spaces_to_drop, pending: Vec::new() }
    }

    /// The text that became whole with `id`, possibly none. An id without a token has no text.
    pub fn push(&mut self, id: TokenId) -> String {
        if self.special_tokens == SpecialTokens::Skip && self.vocabulary.is_special(id) {
            return String::new();
        }
        let mut bytes = self.vocabulary.bytes(id).unwrap_or_default();
        while self.spaces_to_drop > 0 && !bytes.is_empty() {
            match bytes.strip_prefix(b" ") {
                Some(rest) => (bytes, self.spaces_to_drop) = (rest, self.spaces_to_drop - 1),
                None => self.spaces_to_drop = 0,
            }
        }
        self.pending.extend_from_slice(bytes);
        self.take_whole()
    }

    /// What is left when no more ids come: U+FFFD if the last character is unfinished, else nothing.
    pub fn finish(&mut self) -> String {
        let rest = String::from_utf8_lossy(&self.pending).into_owned();
        self.pending.clear();
        rest
    }

    fn take_whole(&mut self) -> String {
        let mut text = String::new();
        let mut rest = self.pending.as_slice();
        for chunk in self.pending.utf8_chunks() {
            text.push_str(chunk.valid());
            rest = &rest[chunk.valid().len()..];
            let unfinished = std::str::from_utf8(rest).is_err_and(|error| error.error_len().is_none());
            if chunk.invalid().is_empty() || unfinished {
                break;
            }
            text.push(char::REPLACEMENT_CHARACTER);
            rest = &rest[chunk.invalid().len()..];
        }
        let taken = self.pending.len() - rest.len();
        self.pending.drain(..taken);
        text
    }
}

impl Tokenizer {
    /// The text of `ids` from its start.
    pub fn decode(&self, ids: &[TokenId], special_tokens: SpecialTokens) -> String {
        let mut decoder = Decoder::new(self, special_tokens, Place::Start);
        let mut text: String = ids.iter().map(|&id| decoder.push(id)).collect();
        text.push_str(&decoder.finish());
        text
    }
}
