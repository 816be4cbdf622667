//! Conversations with tools for models whose template knows none: what the template leaves out is said in words.
//!
//! The tools stand in the system message, calls are the JSON objects that the model is told to answer with, and results are
//! what the user says next.

use gannet_text::chat::{Content, Message};
use serde_json::{Value, json};

const HOW: &str = "You can call tools. To call one, answer with nothing but a JSON object \
                   {\"name\": NAME, \"arguments\": OBJECT}; to call several, answer with a list of such objects. \
                   Otherwise answer in words. The tools:";

/// Whether there is something that a template without tools would leave out.
pub(super) fn has_tools(messages: &[Message], tools: &[Value]) -> bool {
    let speaks = |message: &Message| message.role == "tool" || message.rest.contains_key("tool_calls");
    !tools.is_empty() || messages.iter().any(speaks)
}

/// The conversation in words.
pub(super) fn spelt(messages: Vec<Message>, tools: &[Value]) -> Vec<Message> {
    let mut spelt: Vec<Message> = messages.into_iter().map(message).collect();
    if tools.is_empty() {
        return spelt;
    }
    let mut text = HOW.to_owned();
    for tool in tools {
        text.push('\n');
        text.push_str(&tool["function"].to_string());
    }
    match spelt.first_mut().filter(|first| first.role == "system") {
        Some(first) => {
            let said = words(std::mem::replace(&mut first.content, Content::Null));
            first.content = Content::Text(format!("{said}\n\n{text}"));
        }
        None => spelt.insert(0, Message::new("system", &text)),
    }
    spelt
}

fn message(mut message: Message) -> Message {
    if message.role == "tool" {
        return Message::new("user", &format!("The tool's result: {}", words(message.content)));
    }
    let Some(Value::Array(calls)) = message.rest.shift_remove("tool_calls") else { return message };
    let said = words(std::mem::replace(&mut message.content, Content::Null));
    let call = |call: &Value| {
        let function = &call["function"];
        json!({"name": function["name"], "arguments": function["arguments"]})
    };
    let calls: Vec<Value> = calls.iter().map(call).collect();
    let calls = if let [call] = calls.as_slice() { call.to_string() } else { json!(calls).to_string() };
    message.content = Content::Text(if said.is_empty() { calls } else { format!("{said}\n{calls}") });
    message
}

fn words(content: Content) -> String {
    match content.into_text() {
        Content::Text(text) => text,
        Content::Parts(_) | Content::Null | Content::Absent => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tools_calls_and_results_are_said_in_words() {
        let tool = json!({"type": "function", "function": {"name": "add", "parameters": {}}});
        let mut call = Message::new("assistant", "");
        call.content = Content::Null;
        let calls = json!([{"id": "1", "function": {"name": "add", "arguments": {"a": 1}}}]);
        call.rest.insert("tool_calls".to_owned(), calls);
        let messages = vec![Message::new("user", "1 + 1?"), call, Message::new("tool", "2")];
        assert!(has_tools(&messages, &[]));
        assert!(!has_tools(&messages[..1], &[]));
        let spelt = spelt(messages, &[tool]);
        let text = |place: usize| words(spelt[place].content.clone());
        assert!(text(0).starts_with("You can call tools."));
        assert!(text(0).ends_with("{\"name\":\"add\",\"parameters\":{}}"));
        assert_eq!(text(1), "1 + 1?");
        assert_eq!(text(2), "{\"name\":\"add\",\"arguments\":{\"a\":1}}");
        assert_eq!((spelt[3].role.as_str(), text(3).as_str()), ("user", "The tool's result: 2"));
    }
}
