//! Sampling, defined once: named filters on one row of scores, then a draw.
//!
//! A token is `argmax(log p + g(seed, choice, index, token))` with Gumbel noise g from a counter, after all
//! filters. So a seeded answer depends on its own scores alone: never on batch companions, preemption, nor on
//! whether a row was drafted. Temperature 0 is the plain argmax; ties go to the lowest id.

mod draw;
mod filters;
mod history;
mod noise;

pub use draw::{Draw, draw, logprobs};
pub use history::History;

use crate::TokenId;
use std::sync::Arc;

/// How to draw one token.
#[derive(Clone, Debug, PartialEq)]
pub struct SampleRow {
    /// The request's filters; shared by all of its rows.
    pub sampling: Arc<Sampling>,
    /// The request's seed.
    pub seed: u64,
    /// Which of the request's answers this is.
    pub choice: u32,
    /// The index that the drawn token will have in its sequence.
    pub index: u32,
    /// Bits of the tokens that may be drawn, lowest id first in each word; all where absent.
    pub allowed: Option<Arc<[u32]>>,
}

/// Filters, in the order in which they apply: bias, penalties, temperature, top-k, top-p, min-p.
#[derive(Clone, Debug, PartialEq)]
pub struct Sampling {
    /// Added to the scores of these tokens.
    pub logit_bias: Vec<(TokenId, f32)>,
    /// Scores of tokens in prompt or answer are divided by it where positive, multiplied where negative; 1 is off.
    pub repetition_penalty: f32,
    /// Subtracted from the score of each token of the answer; 0 is off.
    pub presence_penalty: f32,
    /// Subtracted from the score of each token of the answer as often as it occurs there; 0 is off.
    pub frequency_penalty: f32,
    /// Divides the scores; 0 is greedy.
    pub temperature: f32,
    /// Only so many of the most likely tokens; 0 is off.
    pub top_k: u32,
    /// Only the most likely tokens that together reach this probability; 1 is off.
    pub top_p: f32,
    /// Only tokens at least so likely as this share of the most likely one; 0 is off.
    pub min_p: f32,
}

impl Sampling {
    /// The most likely token, always.
    pub fn greedy() -> Self {
        Self {
            logit_bias: Vec::new(),
            repetition_penalty: 1.0,
            presence_penalty: 0.0,
            frequency_penalty: 0.0,
            temperature: 0.0,
            top_k: 0,
            top_p: 1.0,
            min_p: 0.0,
        }
    }

    /// Whether the draw depends on the tokens before it.
    pub fn needs_history(&self) -> bool {
        self.repetition_penalty != 1.0 || self.presence_penalty != 0.0 || self.frequency_penalty != 0.0
    }
}
