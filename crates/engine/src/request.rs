//! What a client asks for, and what it hears.

use crate::{Constraint, Timings};
use crossbeam_channel::{Sender, TrySendError};
use gannet_ops::sampling::Sampling;
use gannet_ops::{TokenId, TokenLogprobs};
use std::fmt;
use std::sync::Arc;
use std::time::Instant;

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
    /// Which of several answers to one prompt this is; each has its own noise.
    pub choice: u32,
    /// The most tokens to generate.
    pub max_tokens: u32,
    /// Tokens before which no end token may be drawn.
    pub min_tokens: u32,
    /// Tokens that end the answer; the one that does is reported, as the reason.
    pub end_tokens: Vec<TokenId>,
    /// Log-probabilities with each token: of so many most likely ones beside the drawn one.
    pub logprobs: Option<u32>,
    /// Log-probabilities of the prompt's tokens but the first, and of so many most likely ones beside each. The rows
    /// that they come from are computed, whatever the prefix cache has.
    pub prompt_logprobs: Option<u32>,
    /// Higher ones go first, and are preempted last.
    pub priority: i32,
    /// When the request is given up.
    pub deadline: Option<Instant>,
    /// Requests of different salts share nothing of the prefix cache.
    pub cache_salt: u64,
    /// Indices of the prompt at which later prompts are likely to branch off: ends of messages and of what stands
    /// before them. Recurrent state is kept there, where the model has any.
    pub boundaries: Vec<u32>,
    /// What the answer must look like. `min_tokens` holds as far as it lets the answer go on.
    pub constraint: Option<Box<dyn Constraint>>,
    /// Where events go.
    pub sink: Arc<dyn Sink>,
}

impl Request {
    /// A greedy request with no end but its limit of tokens.
    pub fn greedy(prompt: Vec<TokenId>, max_tokens: u32, sink: Arc<dyn Sink>) -> Self {
        Self {
            prompt,
            sampling: Arc::new(Sampling::greedy()),
            seed: 0,
            choice: 0,
            max_tokens,
            min_tokens: 0,
            end_tokens: Vec::new(),
            logprobs: None,
            prompt_logprobs: None,
            priority: 0,
            deadline: None,
            cache_salt: 0,
            boundaries: Vec::new(),
            constraint: None,
            sink,
        }
    }
}

/// Where the events of requests go; one sink may serve many. Never waits.
pub trait Sink: Send + Sync {
    /// Takes all events of one step out of the list, in order; returns the requests that nobody listens to any more, which
    /// are then cancelled. What it leaves in the list is lost; the list's memory serves the next step if it stays there.
    fn deliver(&self, events: &mut Vec<(RequestId, Event)>) -> Vec<RequestId>;
}

/// A channel of one request's events. Where it is full or closed, nobody listens.
impl Sink for Sender<Event> {
    fn deliver(&self, events: &mut Vec<(RequestId, Event)>) -> Vec<RequestId> {
        for (id, event) in events.drain(..) {
            match self.try_send(event) {
                Ok(()) => {}
                Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => return vec![id],
            }
        }
        Vec::new()
    }
}

/// What a client hears of its request.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// The request has left the queue.
    Started {
        /// Tokens of the prompt that the prefix cache had, so that they needn't be computed.
        reused_tokens: u32,
        /// Tokens of the prompt that the prefix cache had in common: the next one is the first that differs. More than
        /// `reused_tokens` where the model can't resume in between.
        common_tokens: u32,
    },
    /// So many of the prompt's tokens are computed.
    Prefilled {
        /// Tokens computed.
        computed: u32,
        /// Tokens of the prompt.
        prompt: u32,
        /// Where asked for, of the prompt's next tokens: each token but the first comes once, in order.
        logprobs: Vec<TokenLogprobs>,
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
    /// The request's constraint lets nothing follow.
    Complete,
    /// The request's limit of tokens is reached.
    MaxTokens,
    /// The context is full.
    ContextFull,
    /// The client ended it at an earlier token.
    Truncated,
    /// The client asked to end it.
    Cancelled,
    /// Its sink took no more: nobody listens any more, or too slowly.
    Unheard,
    /// Its deadline has passed.
    TimedOut,
    /// No token of the vocabulary fits what the request allows: its constraint, the tokens that it allows and bans.
    NothingFits,
    /// It can't go on; the text says why.
    Failed(String),
}

impl FinishReason {
    /// The word that the field uses for it.
    pub fn name(&self) -> &'static str {
        match self {
            FinishReason::EndToken(_) | FinishReason::Complete | FinishReason::Truncated => "stop",
            FinishReason::MaxTokens | FinishReason::ContextFull => "length",
            FinishReason::Cancelled | FinishReason::Unheard => "cancelled",
            FinishReason::TimedOut => "timeout",
            FinishReason::NothingFits | FinishReason::Failed(_) => "error",
        }
    }
}

impl fmt::Display for FinishReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FinishReason::EndToken(token) => write!(f, "end token {}", token.0),
            FinishReason::Complete => write!(f, "the answer is whole by its grammar"),
            FinishReason::MaxTokens => write!(f, "the limit of tokens is reached"),
            FinishReason::ContextFull => write!(f, "the context is full"),
            FinishReason::Truncated => write!(f, "ended by the client at an earlier token"),
            FinishReason::Cancelled => write!(f, "cancelled"),
            FinishReason::Unheard => write!(f, "nobody listens any more, or too slowly"),
            FinishReason::TimedOut => write!(f, "the deadline has passed"),
            FinishReason::NothingFits => {
                write!(f, "no token of the vocabulary fits what the request allows here")
            }
            FinishReason::Failed(why) => write!(f, "failed: {why}"),
        }
    }
}

/// What a request took.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Usage {
    /// Tokens of the prompt.
    pub prompt_tokens: u32,
    /// Tokens of the prompt that the prefix cache had.
    pub reused_tokens: u32,
    /// Tokens generated, the end token included.
    pub generated_tokens: u32,
    /// Times that it had to make room for others and was computed again.
    pub preemptions: u32,
    /// How long each part took.
    pub timings: Timings,
}
