//! A conversation in this protocol, as messages that templates know.
//!
//! A message here may hold what is several messages elsewhere: results of tools stand inside a user's message.

use crate::error::ApiError;
use crate::wire::fields::{Field, Fields, shortened};
use gannet_text::chat::{Content, Message};
use serde_json::{Value, json};

/// Takes system and messages apart.
pub(super) fn take(fields: &mut Fields) -> Result<Vec<Message>, ApiError> {
    let mut messages = Vec::new();
    if let Some(field) = fields.take("system") {
        messages.push(Message::new("system", &text(field)?));
    }
    let field = fields.require("messages", "a list of messages")?;
    let empty = field.beyond("at least one message");
    let entries = field.list_within(|limits| limits.messages)?;
    if entries.is_empty() {
        return Err(empty);
    }
    for entry in entries {
        messages.extend(message(entry)?);
    }
    Ok(messages)
}

/// A text, or text blocks one after another.
fn text(field: Field) -> Result<String, ApiError> {
    if field.value.is_string() {
        return field.string();
    }
    let blocks =
        field.list_within(|limits| limits.content_parts)?.into_iter().map(|field| match block(field)? {
            Block::Text(text) => Ok(text),
            Block::Thinking(path, _) | Block::Use(path, _) | Block::Result { path, .. } => {
                Err(ApiError::Unsupported { path, why: "only text may stand here".to_owned() })
            }
        });
    Ok(blocks.collect::<Result<Vec<_>, _>>()?.join("\n"))
}

/// A block of a message.
enum Block {
    Text(String),
    /// Where it stands, and what was thought.
    Thinking(String, String),
    /// Where it stands, and the call in the form that templates know.
    Use(String, Value),
    Result {
        path: String,
        id: String,
        text: String,
    },
}

fn message(field: Field) -> Result<Vec<Message>, ApiError> {
    let mut fields = field.object()?;
    let role = fields.require("role", "user or assistant")?;
    let known = role.value == "user" || role.value == "assistant";
    if !known {
        return Err(role.wrong("user or assistant"));
    }
    let role = role.string()?;
    let content = fields.require("content", "a string or a list of blocks")?;
    fields.finish()?;
    if content.value.is_string() {
        return Ok(vec![Message::new(&role, &content.string()?)]);
    }
    let blocks = content
        .list_within(|limits| limits.content_parts)?
        .into_iter()
        .map(block)
        .collect::<Result<Vec<_>, _>>()?;
    if role == "user" { said(blocks) } else { Ok(vec![answered(blocks)?]) }
}

/// A user's blocks: results of tools, each a message, then what is said.
fn said(blocks: Vec<Block>) -> Result<Vec<Message>, ApiError> {
    let (mut messages, mut texts) = (Vec::new(), Vec::new());
    for block in blocks {
        match block {
            Block::Text(text) => texts.push(text),
            Block::Result { id, text, .. } => {
                let mut message = Message::new("tool", &text);
                message.rest.insert("tool_call_id".to_owned(), json!(id));
                messages.push(message);
            }
            Block::Use(path, _) => {
                let why = "a user calls no tools".to_owned();
                return Err(ApiError::Unsupported { path, why });
            }
            Block::Thinking(..) => {}
        }
    }
    if !texts.is_empty() || messages.is_empty() {
        messages.push(Message::new("user", &texts.join("\n")));
    }
    Ok(messages)
}

/// An assistant's blocks as one message.
fn answered(blocks: Vec<Block>) -> Result<Message, ApiError> {
    let (mut texts, mut thoughts, mut calls) = (Vec::new(), Vec::new(), Vec::new());
    for block in blocks {
        match block {
            Block::Text(text) => texts.push(text),
            Block::Thinking(_, text) => thoughts.push(text),
            Block::Use(_, call) => calls.push(call),
            Block::Result { path, .. } => {
                let why = "results of tools stand in a user's message".to_owned();
                return Err(ApiError::Unsupported { path, why });
            }
        }
    }
    let mut message = Message::new("assistant", &texts.join("\n"));
    if texts.is_empty() {
        message.content = Content::Null;
    }
    if !thoughts.is_empty() {
        message.rest.insert("reasoning_content".to_owned(), json!(thoughts.join("\n")));
    }
    if !calls.is_empty() {
        message.rest.insert("tool_calls".to_owned(), Value::Array(calls));
    }
    Ok(message)
}

fn block(field: Field) -> Result<Block, ApiError> {
    let path = field.path.clone();
    let mut fields = field.object()?;
    let kind = fields.require("type", "the kind of the block, such as `text`")?.string()?;
    // A hint of where a prompt may be cut for a cache, which is found by itself here.
    fields.accept("cache_control");
    let block = match kind.as_str() {
        "text" => {
            fields.only("citations", &[json!([])], "there are no citations")?;
            Block::Text(fields.require("text", "a string")?.string()?)
        }
        "thinking" => {
            fields.accept("signature");
            Block::Thinking(path, fields.require("thinking", "a string")?.string()?)
        }
        "tool_use" => {
            let id = fields.require("id", "a string")?.string()?;
            let name = fields.require("name", "a string")?.string()?;
            let input = fields.require("input", "an object")?.object()?.into_rest();
            let function = json!({"name": name, "arguments": input});
            Block::Use(path, json!({"id": id, "type": "function", "function": function}))
        }
        "tool_result" => {
            let id = fields.require("tool_use_id", "a string")?.string()?;
            fields.boolean("is_error")?;
            let text = fields.take("content").map(text).transpose()?.unwrap_or_default();
            Block::Result { path, id, text }
        }
        other => {
            let why = format!(
                "blocks of type `{}` can't be given to this model, which reads text only",
                shortened(other)
            );
            return Err(ApiError::Unsupported { path, why });
        }
    };
    fields.finish()?;
    Ok(block)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(body: Value) -> Result<Vec<Message>, String> {
        take(&mut Fields::of_body(body, &std::sync::Arc::default()).unwrap())
            .map_err(|error| error.to_string())
    }

    #[test]
    fn blocks_become_messages_that_templates_know() {
        let messages = taken(json!({"system": [{"type": "text", "text": "brief"}], "messages": [
            {"role": "user", "content": "hi"},
            {"role": "assistant", "content": [
                {"type": "thinking", "thinking": "hm", "signature": "x"},
                {"type": "tool_use", "id": "1", "name": "f", "input": {"x": 1}},
            ]},
            {"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": "1", "content": [{"type": "text", "text": "2"}]},
                {"type": "text", "text": "so?"},
            ]},
        ]}))
        .unwrap();
        let roles: Vec<&str> = messages.iter().map(|message| message.role.as_str()).collect();
        assert_eq!(roles, ["system", "user", "assistant", "tool", "user"]);
        assert_eq!(messages[2].content, Content::Null);
        assert_eq!(messages[2].rest["reasoning_content"], "hm");
        assert_eq!(messages[2].rest["tool_calls"][0]["function"]["arguments"]["x"], 1);
        assert_eq!(messages[3].content, Content::Text("2".to_owned()));
    }

    #[test]
    fn faults_name_the_block() {
        let check = |content: Value, part: &str| {
            let error = taken(json!({"messages": [{"role": "user", "content": content}]})).unwrap_err();
            assert!(error.contains(part), "{part} is not in {error}");
        };
        check(json!([{"type": "image", "source": {}}]), "`messages[0].content[0]` is not supported");
        check(json!([{"type": "text"}]), "`messages[0].content[0].text` is missing");
        check(
            json!([{"type": "text", "text": "a", "mood": 1}]),
            "unknown parameter `messages[0].content[0].mood`",
        );
        check(json!(5), "`messages[0].content` is the number 5");
        let error = taken(json!({"messages": [{"role": "system", "content": "x"}]})).unwrap_err();
        assert!(error.contains("`messages[0].role`"), "{error}");
    }
}
