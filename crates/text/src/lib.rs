//! Strings to token ids and back: tokenizers, chat templates, incremental decoding, stop strings.
//!
//! The way of a prompt: `chat` renders a conversation with the model's template, `tokenizer` turns the text into ids;
//! the model's ids come back through `decode`, then `stop`. `text` holds the first two of one model together. Tokenizers
//! come from tokenizer.json, from a SentencePiece or tiktoken file, or from GGUF metadata (`gguf`).
//!
//! Knows no file format, no model and no device, and depends on no other crate of the workspace.

#![forbid(unsafe_code)]

pub mod text;

pub mod chat;
pub mod tokenizer;

pub mod calls;
pub mod decode;
pub mod stop;

pub mod check;
pub mod error;
pub mod gguf;

mod sentencepiece;
mod tiktoken;

pub mod base64;
mod special;
mod vocabulary;
