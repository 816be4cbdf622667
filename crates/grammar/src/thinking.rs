//! A bound on how much a model thinks: when it is reached, the mark that closes the reasoning is all that may follow.
//!
//! Marks are found in the text of the tokens, whether they are tokens of their own or spelt out. What the answer must look
//! like stays the business of the constraint that is bounded, which hears each token.

use gannet_engine::{Constraint, ConstraintError, MayEnd, Progress};
use gannet_ops::TokenId;
use gannet_text::calls::ReasoningFormat;
use gannet_text::tokenizer::{Specials, Tokenizer};

use crate::error::GrammarError;
use crate::tools::Reasoning;

/// Bytes of the longest character, and so tokens that one may be spelt by.
const CHARACTER_BYTES: u32 = 4;

/// Bounds the reasoning of one answer; see [`ThinkingBudget::new`].
pub struct ThinkingBudget {
    tokenizer: Tokenizer,
    marks: [&'static str; 2],
    /// The tokens that close the reasoning.
    closing: Vec<TokenId>,
    budget: u32,
    place: Place,
    /// Where it stood before each token.
    before: Vec<Place>,
    answer: Option<Box<dyn Constraint>>,
}

#[derive(Clone, Debug)]
enum Place {
    /// The model may open its reasoning; the end of the text so far.
    Outside(Vec<u8>),
    /// So many tokens of reasoning, and the end of their text.
    Inside(u32, Vec<u8>),
    /// So many tokens of the closing mark.
    Closing(usize),
    Behind,
}

impl ThinkingBudget {
    /// Bounds the reasoning of an answer to so many tokens; what is behind it, `answer` holds. `None` where the model
    /// doesn't reason, so that there is nothing to bound.
    ///
    /// # Errors
    /// The vocabulary has no tokens for the closing mark.
    pub fn new(
        tokenizer: &Tokenizer,
        reasoning: Reasoning,
        budget: u32,
        answer: Option<Box<dyn Constraint>>,
    ) -> Result<Option<Self>, GrammarError> {
        let (format, place): (ReasoningFormat, Place) = match reasoning {
            Reasoning::None => return Ok(None),
            Reasoning::MayOpen(format) => (format, Place::Outside(Vec::new())),
            Reasoning::IsOpen(format) => (format, Place::Inside(0, Vec::new())),
        };
        let marks = format.marks();
        let closing = tokenizer
            .encode(marks[1], Specials::Parse)
            .map_err(|error| GrammarError::Vocabulary { reason: error.to_string() })?;
        let closing = closing.into_iter().map(TokenId).collect();
        let tokenizer = tokenizer.clone();
        Ok(Some(Self { tokenizer, marks, closing, budget, place, before: Vec::new(), answer }))
    }

    /// The only token that may follow, where the budget is used up.
    fn forced_token(&self) -> Option<TokenId> {
        let place = match self.place {
            // Inside of a character nothing but its rest fits.
            Place::Inside(used, ref tail)
                if used >= self.budget.saturating_add(CHARACTER_BYTES)
                    || used >= self.budget && is_whole(tail) =>
            {
                0
            }
            Place::Closing(place) => place,
            Place::Outside(_) | Place::Inside(..) | Place::Behind => return None,
        };
        self.closing.get(place).copied()
    }

    fn after(&self, token: TokenId) -> Place {
        if self.forced_token() == Some(token) {
            let place = if let Place::Closing(place) = self.place { place + 1 } else { 1 };
            return if place < self.closing.len() { Place::Closing(place) } else { Place::Behind };
        }
        let read = |tail: &[u8], mark: &str| {
            let mut tail = tail.to_vec();
            tail.extend_from_slice(self.tokenizer.token_bytes(token.0).unwrap_or_default());
            let found = tail.windows(mark.len()).any(|window| window == mark.as_bytes());
            let kept = tail.len().saturating_sub(mark.len());
            (found, tail.split_off(kept))
        };
        match &self.place {
            Place::Outside(tail) => match read(tail, self.marks[0]) {
                (true, _) => Place::Inside(0, Vec::new()),
                (false, tail) => Place::Outside(tail),
            },
            Place::Inside(used, tail) => match read(tail, self.marks[1]) {
                (true, _) => Place::Behind,
                (false, tail) => Place::Inside(used + 1, tail),
            },
            Place::Closing(_) | Place::Behind => Place::Behind,
        }
    }
}

/// Whether text ends with a whole character.
fn is_whole(text: &[u8]) -> bool {
    let rest = text.iter().rev().take_while(|byte| **byte & 0xC0 == 0x80).count();
    let lead = text.len().checked_sub(rest + 1).map_or(0, |place| text[place]);
    let length = match lead {
        0xC0..=0xDF => 2,
        0xE0..=0xEF => 3,
        0xF0..=0xFF => 4,
        0x00..=0xBF => 1,
    };
    rest + 1 >= length
}

impl Constraint for ThinkingBudget {
    fn mask(&mut self, allowed: &mut [u32]) -> Result<MayEnd, ConstraintError> {
        if let Some(TokenId(token)) = self.forced_token() {
            if let Some(word) = allowed.get_mut(token as usize / 32) {
                *word |= 1 << (token % 32);
            }
            return Ok(MayEnd::No);
        }
        match &mut self.answer {
            Some(answer) => answer.mask(allowed),
            None => {
                allowed.fill(u32::MAX);
                Ok(MayEnd::Yes)
            }
        }
    }

    fn advance(&mut self, token: TokenId) -> Result<Progress, ConstraintError> {
        let after = self.after(token);
        self.before.push(std::mem::replace(&mut self.place, after));
        match &mut self.answer {
            Some(answer) => answer.advance(token),
            None => Ok(Progress::Open),
        }
    }

    fn rollback(&mut self, tokens: usize) -> Result<(), ConstraintError> {
        for _ in 0..tokens {
            let reason = || "more tokens are taken back than there were".to_owned();
            self.place = self.before.pop().ok_or_else(|| ConstraintError { reason: reason() })?;
        }
        self.answer.as_mut().map_or(Ok(()), |answer| answer.rollback(tokens))
    }

    fn forced(&mut self) -> Vec<TokenId> {
        match self.forced_token() {
            Some(token) => vec![token],
            None => self.answer.as_mut().map(|answer| answer.forced()).unwrap_or_default(),
        }
    }

    fn copy(&self) -> Box<dyn Constraint> {
        Box::new(Self {
            tokenizer: self.tokenizer.clone(),
            marks: self.marks,
            closing: self.closing.clone(),
            budget: self.budget,
            place: self.place.clone(),
            before: self.before.clone(),
            answer: self.answer.as_ref().map(|answer| answer.copy()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_whole_where_its_last_character_is() {
        for text in ["", "a", "é", "aé", "€", "🦀"] {
            assert!(is_whole(text.as_bytes()), "{text}");
            for cut in 1..text.chars().last().map_or(0, char::len_utf8) {
                let cut = &text.as_bytes()[..text.len() - cut];
                assert!(!is_whole(cut), "{cut:?}");
            }
        }
        // The tail of a text may begin inside of a character.
        assert!(is_whole(&"🦀".as_bytes()[1..]));
    }
}
