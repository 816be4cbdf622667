//! What a draw remembers of its sequence: which tokens were seen, and how often each was generated.

use crate::TokenId;
use std::collections::HashMap;

/// The tokens before a draw.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct History {
    seen: HashMap<TokenId, u32>,
}

impl History {
    /// The history of a prompt and of what was generated after it.
    pub fn new(prompt: &[TokenId], generated: &[TokenId]) -> Self {
        let mut history = Self { seen: prompt.iter().map(|token| (*token, 0)).collect() };
        for token in generated {
            history.push(*token);
        }
        history
    }

    /// Adds a generated token.
    pub fn push(&mut self, token: TokenId) {
        *self.seen.entry(token).or_insert(0) += 1;
    }


    /// Each token seen, and how often it was generated, in no order.
    pub fn tokens(&self) -> impl Iterator<Item = (TokenId, u32)> + '_ {
        self.seen.iter().map(|(token, count)| (*token, *count))
    }

    /// Whether the token was seen at all.
    pub fn contains(&self, token: TokenId) -> bool {
        self.seen.contains_key(&token)
    }
}
