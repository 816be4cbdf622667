//! JSON schemas, regular expressions and Lark grammars to token masks, over the llguidance crate.
//!
//! A model has one [`Grammars`], which knows the bytes of its tokens; it compiles a [`Grammar`] to a
//! [`GrammarConstraint`], which a request carries:
//!
//! ```no_run
//! # fn example(tokenizer: &gannet_text::tokenizer::Tokenizer, request: &mut gannet_engine::Request)
//! # -> Result<(), gannet_grammar::GrammarError> {
//! use gannet_grammar::{Grammar, GrammarLimits, Grammars};
//!
//! let limits = GrammarLimits::DEFAULT;
//! let grammars = Grammars::new(tokenizer, limits)?; // once a model: about a second for 262,144 tokens
//! let schema = r#"{"type": "object", "properties": {"n": {"type": "integer"}}}"#;
//! let schema = Grammar::json_schema_from_text(schema, &limits)?;
//! request.constraint = Some(Box::new(grammars.compile(&schema)?));
//! # Ok(())
//! # }
//! ```
//!
//! Another answer to the same prompt takes a copy (`Constraint::copy`), or compiles again: what was compiled lately is
//! kept. Which tokens end an answer the request says; the grammar only says where.
//!
//! [`Grammars::for_tools`] makes the grammar that holds a model to its own format of tool calls:
//!
//! ```no_run
//! # fn example(grammars: &gannet_grammar::Grammars, tools: &[gannet_text::calls::Tool])
//! # -> Result<(), gannet_grammar::GrammarError> {
//! use gannet_grammar::{Reasoning, ToolChoice};
//! use gannet_text::calls::CallFormat;
//!
//! let choice = ToolChoice::Required { parallel: false };
//! let grammar = grammars.for_tools(CallFormat::Hermes, tools, choice, Reasoning::None)?;
//! let constraint = grammar.map(|grammar| grammars.compile(&grammar)).transpose()?;
//! # Ok(())
//! # }
//! ```
//!
//! Schemas, expressions and grammars come from strangers. They are bounded before they are compiled (`limits`), compiled
//! on a thread of their own with a deadline, and a mask has limits too; what is refused is refused with the path of the
//! keyword.
//!
//! Knows no request, no model and no device.

#![forbid(unsafe_code)]

mod grammar;
mod tools;

mod grammars;
mod schema;
mod vocabulary;

mod constraint;
mod thinking;

mod error;
pub mod limits;

pub use constraint::GrammarConstraint;
pub use error::GrammarError;
pub use grammar::Grammar;
pub use grammars::Grammars;
pub use limits::GrammarLimits;
pub use thinking::ThinkingBudget;
pub use tools::{Reasoning, ToolChoice};
