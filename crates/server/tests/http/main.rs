//! The server over real connections, with a toy model behind it: every route, and what strangers send.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests too")]

mod support;

mod bad_input;
mod chat;
mod completions;
mod connections;
mod embeddings;
mod formats;
mod forms;
mod keys;
mod messages;
mod metrics;
mod models;
mod page;
mod responses;
mod room;
mod tls;
mod tokens;
mod tools;
mod types;
