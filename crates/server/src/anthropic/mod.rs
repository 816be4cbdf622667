//! Anthropic's protocol: `/v1/messages` and the count of a prompt's tokens.

mod conversation;
mod form;
pub(crate) mod messages;
