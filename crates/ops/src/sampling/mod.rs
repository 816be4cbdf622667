//! Sampling, defined once: named filters on one row of scores, then a draw.
//!
//! A token is `argmax(log p + g(seed, choice, index, token))` with Gumbel noise g from a counter, after all
//! filters. So a seeded answer depends on its own scores alone: never on batch companions, preemption, nor on
//! whether a row was drafted. Temperature 0 is the plain argmax; ties go to the lowest id.

mod draw;

mod changes;
mod check;
mod dry;
pub mod passes;
mod scores;

mod filters;
mod noise;
mod running;

mod history;

pub use check::SamplingError;
pub use draw::{Draw, Drawer, draw, logprobs, logprobs_of};
pub use history::History;
pub use running::{ADAPTIVE_DECAY_MAX, Running};
pub use scores::Workspace;

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
    /// Tokens that this row may not draw beside those that no row may: the ends of a text that is too short yet.
    pub banned: Option<Arc<[TokenId]>>,
}

/// Filters, in the order in which they apply: bias, penalties, bans, top-n-sigma, top-k, temperature, typical-p, top-p,
/// min-p, XTC, then mirostat or adaptive-p. A value that says "off" leaves the row as it is.
#[derive(Clone, Debug, PartialEq)]
pub struct Sampling {
    /// Added to the scores of these tokens.
    pub logit_bias: Vec<(TokenId, f32)>,
    /// Tokens that are never drawn.
    pub banned: Vec<TokenId>,
    /// The only tokens that are drawn; all where empty.
    pub only: Vec<TokenId>,
    /// Scores of tokens in prompt or answer are divided by it where positive, multiplied where negative; 1 is off.
    pub repetition_penalty: f32,
    /// Subtracted from the score of each token of the answer; 0 is off.
    pub presence_penalty: f32,
    /// Subtracted from the score of each token of the answer as often as it occurs there; 0 is off.
    pub frequency_penalty: f32,
    /// Lowers what would go on repeating an earlier passage.
    pub dry: Option<Dry>,
    /// Divides the scores; 0 is greedy.
    pub temperature: f32,
    /// The temperature follows the row's entropy, up and down from `temperature`.
    pub dynamic_temperature: Option<DynamicTemperature>,
    /// Only tokens whose score is within so many standard deviations of the largest; 0 is off.
    pub top_n_sigma: f32,
    /// Only so many of the most likely tokens; 0 is off.
    pub top_k: u32,
    /// Only the tokens whose surprise is nearest to the entropy and that together reach this probability; 1 is off.
    pub typical_p: f32,
    /// Only the most likely tokens that together reach this probability; 1 is off.
    pub top_p: f32,
    /// Only tokens at least so likely as this share of the most likely one; 0 is off.
    pub min_p: f32,
    /// Sometimes without the likeliest choices.
    pub xtc: Option<Xtc>,
    /// Steers the surprise of the answer.
    pub mirostat: Option<Mirostat>,
    /// Steers the probability of the answer's tokens; not together with mirostat.
    pub adaptive: Option<Adaptive>,
}

/// Mirostat 2 (Basu et al., 2021): tokens whose surprise is above a running limit are left out, and after each draw
/// the limit moves by `rate * (target - surprise)`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Mirostat {
    /// The surprise to hold, in bits; above 0.
    pub target: f32,
    /// How fast the limit moves; from 0 to 1.
    pub rate: f32,
}

/// Adaptive-p (llama.cpp, pull request 17927): tokens near a target probability are favoured, and the target is moved
/// against the mean of what was drawn so far.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Adaptive {
    /// The probability to hold, from 0 to 1.
    pub target: f32,
    /// How much each token before counts less than the next; from 0 to [`ADAPTIVE_DECAY_MAX`].
    pub decay: f32,
}

/// "Don't repeat yourself": a token that would go on with a passage of n tokens that stood before loses
/// `multiplier * base^(n - allowed_length)`, where n is at least `allowed_length`.
#[derive(Clone, Debug, PartialEq)]
pub struct Dry {
    /// The penalty of the shortest passage that counts.
    pub multiplier: f32,
    /// The growth with each token more.
    pub base: f32,
    /// Tokens of the shortest passage that counts; at least 1.
    pub allowed_length: u32,
    /// Tokens at the end of the sequence that are looked at; 0 for all.
    pub last_tokens: u32,
    /// Tokens that no passage reaches across.
    pub breakers: Vec<TokenId>,
}

/// The temperature is `t - range` where one token has all probability, `t + range` where all are equally likely, and
/// between them by `(entropy / largest entropy)^exponent`; never below 0.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DynamicTemperature {
    /// How far from the temperature.
    pub range: f32,
    /// The bend of the way between.
    pub exponent: f32,
}

/// "Exclude top choices": with this probability, of the tokens at least as likely as the threshold all but the least
/// likely are left out.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Xtc {
    /// How often.
    pub probability: f32,
    /// The share of probability from which a token is a top choice.
    pub threshold: f32,
}

impl SampleRow {
    /// Whether the token is the likeliest of all by the model's own scores, whatever was before.
    pub fn is_plain(&self) -> bool {
        let Sampling { logit_bias, banned, only, dry, temperature, dynamic_temperature, .. } =
            &*self.sampling;
        let changes_nothing = logit_bias.is_empty() && banned.is_empty() && only.is_empty() && dry.is_none();
        let is_greedy = *temperature == 0.0 && dynamic_temperature.is_none();
        let all_may = self.allowed.is_none() && self.banned.is_none();
        is_greedy && changes_nothing && all_may && !self.sampling.counts_tokens()
    }
}

impl Sampling {
    /// The most likely token, always.
    pub fn greedy() -> Self {
        Self {
            logit_bias: Vec::new(),
            banned: Vec::new(),
            only: Vec::new(),
            repetition_penalty: 1.0,
            presence_penalty: 0.0,
            frequency_penalty: 0.0,
            dry: None,
            temperature: 0.0,
            dynamic_temperature: None,
            top_n_sigma: 0.0,
            top_k: 0,
            typical_p: 1.0,
            top_p: 1.0,
            min_p: 0.0,
            xtc: None,
            mirostat: None,
            adaptive: None,
        }
    }

    /// Whether scores depend on which tokens were before, and how often.
    pub fn counts_tokens(&self) -> bool {
        self.repetition_penalty != 1.0 || self.presence_penalty != 0.0 || self.frequency_penalty != 0.0
    }
}
