//! What a draw remembers of its sequence: its tokens in order, and how often each was generated.

use crate::TokenId;
use std::collections::HashMap;

/// The tokens before a draw.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct History {
    tokens: Vec<TokenId>,
    /// How often each token was generated; 0 for those of the prompt alone.
    generated: HashMap<TokenId, u32>,
}

impl History {
    /// The history of a prompt and of what was generated after it.
    pub fn new(prompt: &[TokenId], generated: &[TokenId]) -> Self {
        let seen = prompt.iter().map(|token| (*token, 0)).collect();
        let mut history = Self { tokens: prompt.to_vec(), generated: seen };
        for token in generated {
            history.push(*token);
        }
        history
    }

    /// Adds a generated token.
    pub fn push(&mut self, token: TokenId) {
        self.tokens.push(token);
        *self.generated.entry(token).or_insert(0) += 1;
    }

    /// All tokens, in order.
    pub fn tokens(&self) -> &[TokenId] {
        &self.tokens
    }

    /// Each token seen, and how often it was generated, in no order.
    pub fn counts(&self) -> impl Iterator<Item = (TokenId, u32)> + '_ {
        self.generated.iter().map(|(token, count)| (*token, *count))
    }
}
