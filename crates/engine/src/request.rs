//! What a client asks for, and what it hears.

use crate::Timings;
use crossbeam_channel::{Sender, TrySendError};
use gannet_ops::sampling::Sampling;
use gannet_ops::{TokenId, TokenLogprobs};
use std::fmt;
use std::sync::Arc;

/// A request's number; ascends in the order of submission.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RequestId(pub u64);

/// What a client asks for.
pub struct Request {
    /// The tokens to continue; at least one.
    pub prompt: Vec<TokenId>,
    /// Filters of each draw.
    pub sampling: Arc<Sampling>,
    /// The seed of the draws.
    pub seed: u64,
    /// The most tokens to generate.
    pub max_tokens: u32,
    /// Tokens that end the answer; the one that does is reported, as the reason.
    pub end_tokens: Vec<TokenId>,
    /// Log-probabilities with each token: of so many most likely ones beside the drawn one.
    pub logprobs: Option<u32>,
    /// Where events go.
    pub sink: Box<dyn Sink>,
}

/// Where a request's events go. Never waits.
pub trait Sink: Send {
    /// Takes an event, or says that nobody listens any more, which cancels the request.
    fn deliver(&mut self, event: Event) -> Result<(), SinkClosed>;
}

/// Nobody takes a request's events any more, or not fast enough.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SinkClosed;

impl Sink for Sender<Event> {
    fn deliver(&mut self, event: Event) -> Result<(), SinkClosed> {
        match self.try_send(event) {
            Ok(()) => Ok(()),
            Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => Err(SinkClosed),
        }
    }
}

/// What a client hears of its request.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// So many of the prompt's tokens are computed.
    Prefilled {
        /// Tokens computed.
        computed: u32,
        /// Tokens of the prompt.
        prompt: u32,
    },
    /// A token of the answer.
    Token {
        /// The token.
        token: TokenId,
        /// Its log-probabilities, where asked for.
        logprobs: Option<TokenLogprobs>,
    },
    /// The end; nothing follows.
    Finished {
        /// Why.
        reason: FinishReason,
        /// What it took.
        usage: Usage,
    },
}

/// Why a request ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FinishReason {
    /// The model made one of the request's end tokens.
    EndToken(TokenId),
    /// The request's limit of tokens is reached.
    MaxTokens,
    /// The context is full.
    ContextFull,
    /// The client asked to end it, or listens no more.
    Cancelled,
    /// It can't go on; the text says why.
    Failed(String),
}

impl FinishReason {
    /// The word that the field uses for it.
    pub fn name(&self) -> &'static str {
        match self {
            FinishReason::EndToken(_) => "stop",
            FinishReason::MaxTokens | FinishReason::ContextFull => "length",
            FinishReason::Cancelled => "cancelled",
            FinishReason::Failed(_) => "error",
        }
    }
}

impl fmt::Display for FinishReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FinishReason::EndToken(token) => write!(f, "end token {}", token.0),
            FinishReason::MaxTokens => write!(f, "the limit of tokens is reached"),
            FinishReason::ContextFull => write!(f, "the context is full"),
            FinishReason::Cancelled => write!(f, "cancelled"),
            FinishReason::Failed(why) => write!(f, "failed: {why}"),
        }
    }
}

/// What a request took.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Usage {
    /// Tokens of the prompt.
    pub prompt_tokens: u32,
    /// Tokens generated, the end token included.
    pub generated_tokens: u32,
    /// How long each part took.
    pub timings: Timings,
}
