//! One message of a conversation.
//!
//! Role and content are what every template reads; the rest (tool calls, a tool's name, reasoning) differs by model and
//! is handed to the template as it is.
//!
//! Knows no protocol beyond the field names that templates share.

use serde_json::{Map, Value, json};

/// Who says what.
#[derive(Debug, Clone, PartialEq)]
pub struct Message {
    /// `system`, `user`, `assistant`, `tool` or what the template knows.
    pub role: String,
    /// What is said.
    pub content: Content,
    /// All other fields by name: `tool_calls`, `tool_call_id`, `name`, `reasoning_content`, ...
    pub rest: Map<String, Value>,
}

/// What a message says.
#[derive(Debug, Clone, PartialEq)]
pub enum Content {
    /// Plain text.
    Text(String),
    /// Typed parts, `{"type": "text", "text": ...}` for text.
    Parts(Vec<Value>),
    /// Null, as in an assistant's message that only calls tools.
    Null,
    /// No such field.
    Absent,
}

impl Message {
    /// A message of plain text.
    pub fn new(role: &str, text: &str) -> Self {
        Self { role: role.to_owned(), content: Content::Text(text.to_owned()), rest: Map::new() }
    }

    /// Takes a message object apart; `None` unless it is one, with a string as its `role` and text, a list, null or
    /// nothing as its `content`.
    pub fn from_json(message: Value) -> Option<Self> {
        let Value::Object(mut rest) = message else {
            return None;
        };
        let Some(Value::String(role)) = rest.shift_remove("role") else {
            return None;
        };
        let content = match rest.shift_remove("content") {
            None => Content::Absent,
            Some(Value::Null) => Content::Null,
            Some(Value::String(text)) => Content::Text(text),
            Some(Value::Array(parts)) => Content::Parts(parts),
            Some(Value::Bool(_) | Value::Number(_) | Value::Object(_)) => return None,
        };
        Some(Self { role, content, rest })
    }

    /// Turns the arguments of tool calls from JSON text, as clients send them, into objects, as templates expect them.
    /// Text that is no JSON object stays: the model wrote it so.
    pub fn parse_tool_arguments(&mut self) {
        let calls = self.rest.get_mut("tool_calls").and_then(Value::as_array_mut);
        for call in calls.into_iter().flatten() {
            let Some(arguments) = call.pointer_mut("/function/arguments") else {
                continue;
            };
            let parsed = arguments.as_str().and_then(|text| serde_json::from_str::<Value>(text).ok());
            if let Some(object) = parsed.filter(Value::is_object) {
                *arguments = object;
            }
        }
    }
}

impl Content {
    pub(super) fn text_part(text: &str) -> Self {
        Self::Parts(vec![json!({"type": "text", "text": text})])
    }

    /// Parts of text alone, joined by line breaks. Other parts can't become text and stay, for the template to refuse.
    pub fn into_text(self) -> Self {
        match self {
            Self::Parts(parts) => {
                let texts: Option<Vec<&str>> = parts.iter().map(part_text).collect();
                match texts {
                    Some(texts) => Self::Text(texts.join("\n")),
                    None => Self::Parts(parts),
                }
            }
            Self::Text(_) | Self::Null | Self::Absent => self,
        }
    }

    pub(super) fn into_parts(self) -> Self {
        match self {
            Self::Text(text) => Self::text_part(&text),
            Self::Parts(_) | Self::Null | Self::Absent => self,
        }
    }
}

fn part_text(part: &Value) -> Option<&str> {
    let kind = part.get("type").and_then(Value::as_str);
    part.get("text").and_then(Value::as_str).filter(|_| kind == Some("text"))
}
