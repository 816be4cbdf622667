//! The messages of a conversation: each kind with the fields that it may have.

use crate::error::ApiError;
use crate::wire::fields::{Field, Fields};
use gannet_text::chat::{Content, Message};
use serde_json::{Map, Value, json};

const ROLES: &str = "one of system, developer, user, assistant, tool";

/// Takes a conversation apart.
pub(crate) fn messages(field: Field) -> Result<Vec<Message>, ApiError> {
    let empty = field.beyond("at least one message");
    let messages: Vec<Message> =
        field.list_within(|limits| limits.messages)?.into_iter().map(message).collect::<Result<_, _>>()?;
    if messages.is_empty() { Err(empty) } else { Ok(messages) }
}

/// The items of a response's input as messages of a chat. What one answer consists of becomes one message.
pub(crate) fn of_items(items: Vec<Field>) -> Result<Vec<Value>, ApiError> {
    let mut messages: Vec<Value> = Vec::new();
    for item in items {
        let (path, most_calls) = (item.path.clone(), item.limits.tool_calls);
        let (mut message, goes_on) = of_item(item)?;
        match messages.last_mut().filter(|last| goes_on && can_go_on(last, &message)) {
            Some(last) => {
                let calls = last["tool_calls"].as_array_mut().map(std::mem::take).unwrap_or_default();
                let more = message["tool_calls"].as_array_mut().map(std::mem::take).unwrap_or_default();
                for (name, value) in message.as_object().into_iter().flatten() {
                    last[name] = value.clone();
                }
                let calls: Vec<Value> = calls.into_iter().chain(more).collect();
                if calls.len() > most_calls {
                    let why =
                        format!("{most_calls} calls follow each other, which is the most for one answer");
                    return Err(ApiError::Invalid { path, why });
                }
                if calls.is_empty() {
                    last.as_object_mut().and_then(|last| last.shift_remove("tool_calls"));
                } else {
                    last["tool_calls"] = json!(calls);
                }
            }
            None => messages.push(message),
        }
    }
    Ok(messages)
}

/// Whether an assistant's message takes up what comes next: reasoning first, then words, then calls.
fn can_go_on(last: &Value, next: &Value) -> bool {
    let rank = |message: &Value| {
        let has = |name: &str| !message[name].is_null();
        u8::from(has("reasoning_content"))
            .max(2 * u8::from(has("content")))
            .max(3 * u8::from(has("tool_calls")))
    };
    let (before, after) = (rank(last), rank(next));
    last["role"] == "assistant" && (before < after || (before, after) == (3, 3))
}

/// An item as a message, and whether it may be part of the message before.
fn of_item(field: Field) -> Result<(Value, bool), ApiError> {
    let path = field.path.clone();
    let mut item = field.object()?;
    let kind = item.string("type")?.unwrap_or_else(|| "message".to_owned());
    // Items of answers come back with what they are called.
    item.accept("id");
    item.accept("status");
    let message = match kind.as_str() {
        "message" => {
            item.accept("phase");
            let role = item.require("role", ROLES)?;
            let content = item.require("content", "a string or a list of parts")?.value;
            item.finish()?;
            if role.value == "tool" {
                return Err(role.unsupported("a result of a tool is an item of type `function_call_output`"));
            }
            let is_answer = role.value == "assistant";
            return Ok((json!({"role": role.value, "content": content}), is_answer));
        }
        "reasoning" => reasoning_item(&mut item)?,
        "function_call" => {
            let id = item.require("call_id", "a string")?.string()?;
            let name = item.require("name", "a string")?.string()?;
            let arguments = item.require("arguments", "JSON text")?.string()?;
            let function = json!({"name": name, "arguments": arguments});
            json!({"role": "assistant", "tool_calls": [{"id": id, "type": "function", "function": function}]})
        }
        "function_call_output" => {
            let id = item.require("call_id", "a string")?.string()?;
            let output = item.require("output", "a string or a list of parts")?.value;
            item.finish()?;
            return Ok((json!({"role": "tool", "tool_call_id": id, "content": output}), false));
        }
        other => {
            let kind = crate::wire::fields::shortened(other);
            let why = format!("items of type `{kind}` can't be given to this model");
            return Err(ApiError::Unsupported { path, why });
        }
    };
    item.finish()?;
    Ok((message, true))
}

fn reasoning_item(item: &mut Fields) -> Result<Value, ApiError> {
    item.only("encrypted_content", &[], "this server encrypts no reasoning")?;
    let mut texts = Vec::new();
    for name in ["summary", "content"] {
        let parts = item
            .take(name)
            .map(|field| field.list_within(|limits| limits.content_parts))
            .transpose()?
            .unwrap_or_default();
        let is_whole = name == "content" && !parts.is_empty();
        if is_whole {
            // The whole says what its summary does.
            texts.clear();
        }
        for part in parts {
            let mut part = part.object()?;
            part.only(
                "type",
                &[json!("reasoning_text"), json!("summary_text")],
                "only texts of reasoning stand here",
            )?;
            texts.push(part.require("text", "a string")?.string()?);
            part.finish()?;
        }
    }
    Ok(json!({"role": "assistant", "reasoning_content": texts.join("\n")}))
}

fn message(field: Field) -> Result<Message, ApiError> {
    let mut fields = field.object()?;
    let role = fields.require("role", ROLES)?;
    let role_path = role.path.clone();
    let role = role.string()?;
    let mut rest = Map::new();
    let name = fields.string("name")?;
    rest.extend(name.map(|name| ("name".to_owned(), json!(name))));
    let (role, content) = match role.as_str() {
        // Templates know the older name.
        "system" | "developer" => ("system", required_content(&mut fields)?),
        "user" => ("user", required_content(&mut fields)?),
        "tool" => {
            let id = fields.string("tool_call_id")?;
            rest.extend(id.map(|id| ("tool_call_id".to_owned(), json!(id))));
            ("tool", required_content(&mut fields)?)
        }
        "assistant" => ("assistant", assistant(&mut fields, &mut rest)?),
        "function" => {
            let why = "messages of functions are gone; send a message of role `tool`".to_owned();
            return Err(ApiError::Unsupported { path: role_path, why });
        }
        other => {
            let found = format!("the string \"{}\"", crate::wire::fields::shortened(other));
            return Err(ApiError::OutOfRange { path: role_path, found, expected: ROLES.to_owned() });
        }
    };
    fields.finish()?;
    let mut message = Message { role: role.to_owned(), content, rest };
    message.parse_tool_arguments();
    Ok(message)
}

fn assistant(fields: &mut Fields, rest: &mut Map<String, Value>) -> Result<Content, ApiError> {
    fields.refuse("audio", "this server knows text only")?;
    fields.refuse("function_call", "functions are gone; use `tool_calls`")?;
    fields.accept("refusal");
    // Answers carry it, so it comes back with them.
    fields.only("annotations", &[json!([])], "answers have no annotations")?;
    for name in ["reasoning_content", "reasoning"] {
        if let Some(text) = fields.string(name)? {
            rest.insert("reasoning_content".to_owned(), json!(text));
        }
    }
    let calls = fields.take("tool_calls").map(tool_calls).transpose()?.unwrap_or_default();
    let content = match fields.take("content") {
        Some(field) => content(field)?,
        None if calls.is_empty() && !rest.contains_key("reasoning_content") => {
            let path = fields.path_of("content");
            return Err(ApiError::Missing {
                path,
                expected: "a string or a list of parts, or tool calls instead",
            });
        }
        None => Content::Null,
    };
    if !calls.is_empty() {
        rest.insert("tool_calls".to_owned(), Value::Array(calls));
    }
    Ok(content)
}

fn tool_calls(field: Field) -> Result<Vec<Value>, ApiError> {
    let call = |field: Field| {
        let mut fields = field.object()?;
        let id = fields.string("id")?;
        fields.only("type", &[json!("function")], "only calls of functions are known")?;
        fields.accept("index");
        let mut function = fields.require("function", "an object with name and arguments")?.object()?;
        let name = function.require("name", "a string")?.string()?;
        let arguments = function.string("arguments")?.unwrap_or_default();
        function.finish()?;
        fields.finish()?;
        Ok(json!({"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}))
    };
    field.list_within(|limits| limits.tool_calls)?.into_iter().map(call).collect()
}

fn required_content(fields: &mut Fields) -> Result<Content, ApiError> {
    content(fields.require("content", "a string or a list of parts")?)
}

fn content(field: Field) -> Result<Content, ApiError> {
    if field.value.is_string() {
        return field.string().map(Content::Text);
    }
    if !field.value.is_array() {
        return Err(field.wrong("a string or a list of parts"));
    }
    let empty = field.beyond("at least one part");
    let parts: Vec<Value> =
        field.list_within(|limits| limits.content_parts)?.into_iter().map(part).collect::<Result<_, _>>()?;
    if parts.is_empty() { Err(empty) } else { Ok(Content::Parts(parts)) }
}

fn part(field: Field) -> Result<Value, ApiError> {
    let path = field.path.clone();
    let mut fields = field.object()?;
    let kind = fields.require("type", "the kind of the part, such as `text`")?.string()?;
    let text = match kind.as_str() {
        "text" | "input_text" | "output_text" => fields.require("text", "a string")?.string()?,
        "refusal" => fields.require("refusal", "a string")?.string()?,
        other => {
            let kind = crate::wire::fields::shortened(other);
            let why = format!("parts of type `{kind}` can't be given to this model, which reads text only");
            return Err(ApiError::Unsupported { path, why });
        }
    };
    fields.only("annotations", &[json!([])], "texts have no annotations")?;
    // Texts of answers come back with it.
    fields.accept("logprobs");
    fields.accept("cache_control");
    fields.finish()?;
    Ok(json!({"type": "text", "text": text}))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take(value: Value) -> Result<Vec<Message>, ApiError> {
        messages(Field { path: "messages".to_owned(), value, limits: std::sync::Arc::default() })
    }

    #[test]
    fn each_kind_of_message_is_taken() {
        let taken = take(json!([
            {"role": "developer", "content": "be brief"},
            {"role": "user", "content": [{"type": "text", "text": "hi"}], "name": "ann"},
            {"role": "assistant", "content": null, "tool_calls": [
                {"id": "1", "type": "function", "function": {"name": "f", "arguments": "{\"x\": 1}"}}
            ]},
            {"role": "tool", "tool_call_id": "1", "content": "2"},
            {"role": "assistant", "content": "two", "refusal": null},
        ]))
        .unwrap();
        let roles: Vec<&str> = taken.iter().map(|message| message.role.as_str()).collect();
        assert_eq!(roles, ["system", "user", "assistant", "tool", "assistant"]);
        assert_eq!(taken[1].rest["name"], "ann");
        assert_eq!(taken[2].rest["tool_calls"][0]["function"]["arguments"]["x"], 1);
    }

    #[test]
    fn faults_name_the_message_and_the_field() {
        let check = |value: Value, part: &str| {
            let error = take(value).unwrap_err().to_string();
            assert!(error.contains(part), "{part} is not in {error}");
        };
        check(json!([]), "`messages` is a list of 0, expected at least one message");
        check(json!("hi"), "`messages` is the string \"hi\", expected a list");
        check(json!(["hi"]), "`messages[0]` is the string \"hi\", expected an object");
        check(json!([{"content": "x"}]), "`messages[0].role` is missing");
        check(json!([{"role": "robot", "content": "x"}]), "`messages[0].role` is the string \"robot\"");
        check(json!([{"role": "user"}]), "`messages[0].content` is missing");
        check(json!([{"role": "user", "content": 5}]), "`messages[0].content` is the number 5");
        check(json!([{"role": "user", "content": []}]), "`messages[0].content` is a list of 0");
        check(json!([{"role": "assistant"}]), "`messages[0].content` is missing");
        check(
            json!([{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "image_url"}]}]),
            "`messages[0].content[1]` is not supported: parts of type `image_url`",
        );
        check(json!([{"role": "user", "content": "x", "mood": 1}]), "unknown parameter `messages[0].mood`");
    }
}
