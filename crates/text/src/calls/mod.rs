//! What a model's answer consists of: content, reasoning and tool calls, from text as it comes.
//!
//! A parser is chosen by what the chat template shows ([`CallFormat::of_template`]) or by name, and gives events:
//!
//! ```
//! use gannet_text::calls::{AnswerEvent, AnswerParser, CallFormat, ReasoningFormat, Tool};
//!
//! let tool = serde_json::json!({"type": "function", "function": {"name": "add", "parameters": {}}});
//! let tools = vec![Tool::from_json(&tool).expect("a function")];
//! let mut parser = AnswerParser::new(CallFormat::Hermes, Some(ReasoningFormat::Think), tools);
//! let mut events = parser.push("<think>hm</think>Sure. <tool_call>{\"name\": \"add\", \"argu");
//! events.extend(parser.push("ments\": {\"a\": 1}}</tool_call>"));
//! events.extend(parser.finish());
//! assert_eq!(events[0], AnswerEvent::Reasoning("hm".to_owned()));
//! assert_eq!(events[1], AnswerEvent::Content("Sure.".to_owned()));
//! assert_eq!(events[2], AnswerEvent::CallStart { index: 0, name: "add".to_owned() });
//! assert_eq!(events[3], AnswerEvent::CallArguments { index: 0, json: "{\"a\": 1}".to_owned() });
//! assert_eq!(events[4], AnswerEvent::CallEnd { index: 0 });
//! ```
//!
//! [`AnswerDecoder`] makes the same of token ids, and hides the control tokens that no format reads.
//!
//! A parser is a machine that reads one character after the other, so how the text is cut changes nothing but where
//! events are cut. Arguments only grow: what was given out stands. White space beside a mark is dropped, and nothing
//! else: what looks like a call and is none becomes content, mark and all, as long as no part of it was given out. A
//! call that the text's end cuts off is reported as it stands, without its `CallEnd`.
//!
//! Knows no request and no protocol.

mod answer;
mod decoder;
mod events;
mod format;

mod deepseek;
mod harmony;
mod json;
mod mistral;
mod python;
mod tagged;

mod machine;
mod marks;
mod tool;

pub use answer::AnswerParser;
pub use decoder::AnswerDecoder;
pub use events::AnswerEvent;
pub use format::{CallFormat, ReasoningFormat};
pub use tool::Tool;
