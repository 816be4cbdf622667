//! OpenAI's protocol, with the extensions that the field uses.
//!
//! A route takes its body apart, makes prompts of it, has them answered, and says the answers in the protocol's form,
//! whole or as they come.

pub(crate) mod chat;
pub(crate) mod completions;
pub(crate) mod embeddings;
pub(crate) mod responses;

pub(crate) mod chat_form;
mod chunks;
mod completion_form;
pub(crate) mod format;
mod logprobs;
mod messages;
pub(crate) mod request;
pub(crate) mod tools;
pub(crate) mod usage;

pub(crate) mod models;
pub(crate) mod tokens;
