//! JSON schemas, regular expressions and Lark grammars to token masks, over the llguidance crate.
//!
//! A model has one [`Grammars`], which knows the bytes of its tokens; it compiles a [`Grammar`] to a
//! [`GrammarConstraint`], which a request carries:
//!
//! ```no_run
//! # fn example(tokenizer: &gannet_text::tokenizer::Tokenizer, request: &mut gannet_engine::Request)
//! # -> Result<(), gannet_grammar::GrammarError> {
//! use gannet_grammar::{Grammar, Grammars};
//!
//! let grammars = Grammars::new(tokenizer)?; // once a model: about a second for 262,144 tokens
//! let schema = Grammar::json_schema_from_text(r#"{"type": "object", "properties": {"n": {"type": "integer"}}}"#)?;
//! request.constraint = Some(Box::new(grammars.compile(&schema)?));
//! # Ok(())
//! # }
//! ```
//!
//! Another answer to the same prompt takes a copy (`Constraint::copy`), or compiles again: what was compiled lately is
//! kept. Which tokens end an answer the request says; the grammar only says where.
//!
//!
//! Schemas, expressions and grammars come from strangers. They are bounded before they are compiled (`limits`), compiled
//! on a thread of their own with a deadline, and a mask has limits too; what is refused is refused with the path of the
//! keyword.
//!
//! Knows no request, no model and no device.

#![forbid(unsafe_code)]

mod grammar;

mod grammars;
mod schema;
mod vocabulary;

mod constraint;

mod error;
pub mod limits;

pub use constraint::GrammarConstraint;
pub use error::GrammarError;
pub use grammar::Grammar;
pub use grammars::Grammars;
