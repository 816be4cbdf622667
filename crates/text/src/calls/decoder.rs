//! Token ids to the parts of an answer.

use std::collections::HashSet;

use super::answer::AnswerParser;
use super::events::AnswerEvent;
use crate::decode::{Decoder, Place, SpecialTokens};
use crate::tokenizer::{TokenId, Tokenizer};

/// Token ids to the parts of an answer. Control tokens are read where they are marks of the parser's formats, and are no
/// text otherwise.
#[derive(Debug)]
pub struct AnswerDecoder {
    tokenizer: Tokenizer,
    decoder: Decoder,
    parser: AnswerParser,
    /// Control tokens that are marks.
    marks: HashSet<TokenId>,
}

impl AnswerDecoder {
    /// A decoder of an answer that begins at `place`.
    pub fn new(tokenizer: &Tokenizer, place: Place, parser: AnswerParser) -> Self {
        let marks = parser.marks().into_iter().filter_map(|mark| tokenizer.id_of(mark)).collect();
        let decoder = Decoder::new(tokenizer, SpecialTokens::Show, place);
        Self { tokenizer: tokenizer.clone(), decoder, parser, marks }
    }

    /// Reads a token; the events that are certain now.
    pub fn push(&mut self, token: TokenId) -> Vec<AnswerEvent> {
        if self.tokenizer.is_special(token) && !self.marks.contains(&token) {
            return Vec::new();
        }
        let text = self.decoder.push(token);
        self.parser.push(&text)
    }

    /// The answer is at its end; the events that were held back.
    pub fn finish(&mut self) -> Vec<AnswerEvent> {
        let text = self.decoder.finish();
        let mut events = self.parser.push(&text);
        events.extend(self.parser.finish());
        events
    }
}
