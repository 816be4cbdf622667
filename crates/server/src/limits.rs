//! Every limit of the server in one place: what a client may send, how long it may take, how much may wait.
//!
//! `docs/server.md` lists them in the same order. Those that a person may want to change are flags of `gannet serve`.
//!
//! Knows no route.

use std::time::Duration;

/// Limits that a person may choose.
#[derive(Clone, Debug, PartialEq)]
pub struct Limits {
    /// Connections that are open at once; further ones wait to be accepted.
    pub connections: usize,
    /// Time for the head of a request to arrive, idle time on a kept connection included.
    pub header_time: Duration,
    /// Bytes of a request's head.
    pub header_bytes: usize,
    /// Time for the body of a request to arrive.
    pub body_time: Duration,
    /// Bytes of a request's body.
    pub body_bytes: usize,
    /// Requests that may wait for a sequence of the engine; beyond, they are refused.
    pub waiting: usize,
    /// Time for a request from its arrival to its end.
    pub request_time: Duration,
    /// Requests of one key, or of all without keys, that are answered at once.
    pub concurrent_per_key: usize,
    /// Requests of one key a minute; no limit where absent.
    pub requests_per_minute: Option<u32>,
    /// Silence in a stream after which a comment is sent.
    pub keep_alive: Duration,
    /// Time for running requests to end when the server stops.
    pub drain_time: Duration,
    /// Time in which a busy engine must make a step, to count as healthy.
    pub stall_time: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 4096,
            header_time: Duration::from_secs(10),
            header_bytes: 64 << 10,
            body_time: Duration::from_secs(30),
            body_bytes: 32 << 20,
            waiting: 256,
            request_time: Duration::from_secs(600),
            concurrent_per_key: 1024,
            requests_per_minute: None,
            keep_alive: Duration::from_secs(15),
            drain_time: Duration::from_secs(30),
            stall_time: Duration::from_secs(120),
        }
    }
}

/// Header lines of a request.
pub(crate) const HEADERS: usize = 100;
/// Bytes of a body over its limit that are read and thrown away, so that the client hears why.
pub(crate) const DISCARDED_BYTES: usize = 1 << 30;
/// Time for throwing them away.
pub(crate) const DISCARD_TIME: Duration = Duration::from_secs(5);
/// Nesting of lists and objects in a body.
pub(crate) const JSON_DEPTH: usize = 64;
/// Messages of a conversation.
pub(crate) const MESSAGES: usize = 8192;
/// Parts of one message.
pub(crate) const CONTENT_PARTS: usize = 1024;
/// Tool calls of one message.
pub(crate) const TOOL_CALLS: usize = 128;
/// Tools of a request.
pub(crate) const TOOLS: usize = 256;
/// Characters of the name of a tool or a schema.
pub(crate) const NAME_LETTERS: usize = 64;
/// Texts of which an answer may be one.
pub(crate) const CHOICE_TEXTS: usize = 1024;
/// Prompts of one completion request.
pub(crate) const PROMPTS: usize = 256;
/// Answers to one prompt.
pub(crate) const CHOICES: u64 = 128;
/// Log-probabilities beside each token.
pub(crate) const LOGPROBS: u64 = 20;
/// Entries of a logit bias.
pub(crate) const BIASES: usize = 4096;
/// Stop strings of a request.
pub(crate) const STOPS: usize = 16;
/// Token ids of a list that isn't a prompt.
pub(crate) const TOKEN_IDS: usize = 1024;
/// Variables for the chat template.
pub(crate) const TEMPLATE_VARIABLES: usize = 64;
/// Bytes of a stream that a slow client has not taken yet.
pub(crate) const UNSENT_BYTES: usize = 8 << 20;
/// Responses that are kept.
pub(crate) const STORED_RESPONSES: usize = 1000;
/// Bytes of kept responses with their conversations.
pub(crate) const STORED_BYTES: usize = 64 << 20;
/// Renderings and encodings of prompts at once.
pub(crate) const ENCODERS: usize = 4;
