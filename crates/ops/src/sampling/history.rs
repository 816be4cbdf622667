//! What a draw remembers of its sequence: its tokens in order, how often each was generated, and running parameters.

use super::{Draw, Running};
use crate::TokenId;

/// The tokens before a draw.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct History {
    tokens: Vec<TokenId>,
    // Invariant: each token once, ascending.
    generated: Vec<(TokenId, u32)>,
    running: Option<Running>,
}

impl History {
    /// The history of a prompt and of what was generated after it.
    pub fn new(prompt: &[TokenId], generated: &[TokenId]) -> Self {
        let mut seen: Vec<(TokenId, u32)> = prompt.iter().map(|token| (*token, 0)).collect();
        seen.sort_unstable();
        seen.dedup();
        let mut history = Self { tokens: prompt.to_vec(), generated: seen, running: None };
        for token in generated {
            history.push(*token);
        }
        history
    }

    /// With the running parameter that the last draw left, where a sampler steers.
    pub fn with_running(self, running: Option<Running>) -> Self {
        Self { running, ..self }
    }

    /// With room for so many more tokens, so that adding them takes no memory.
    pub fn with_room(mut self, tokens: usize) -> Self {
        self.tokens.reserve_exact(tokens);
        self.generated.reserve_exact(tokens);
        self
    }

    /// Adds a generated token.
    pub fn push(&mut self, token: TokenId) {
        self.tokens.push(token);
        match self.generated.binary_search_by_key(&token, |(token, _)| *token) {
            Ok(place) => self.generated[place].1 += 1,
            Err(place) => self.generated.insert(place, (token, 1)),
        }
    }

    /// All tokens, in order.
    pub fn tokens(&self) -> &[TokenId] {
        &self.tokens
    }

    /// Each token seen, ascending, and how often it was generated: 0 for those of the prompt alone.
    pub fn counts(&self) -> &[(TokenId, u32)] {
        &self.generated
    }

    /// What the last draw left; none before the first, and where no sampler steers.
    pub fn running(&self) -> Option<Running> {
        self.running
    }

    /// A draw stands: later ones look back at it.
    pub fn stands(&mut self, draw: Draw) {
        draw.token.into_iter().for_each(|token| self.push(token));
        self.running = draw.running.or(self.running);
    }
}
