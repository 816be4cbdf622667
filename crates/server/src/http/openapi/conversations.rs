//! Conversations in the three forms that routes take: messages of chats, items of responses, Anthropic's messages.

use super::bodies::{Bodies, constant, count, function_type};
use super::kinds::{Property, flag, list, one_of, taken, text};
use serde_json::{Value, json};

impl Bodies<'_> {
    /// The messages of a chat.
    pub(super) fn messages(&self) -> Value {
        let content = json!({"anyOf": [text(), self.parts()]});
        let said = taken(
            &["role", "content"],
            &[
                ("role", one_of(&["system", "developer", "user"])),
                ("content", content.clone()),
                ("name", text()),
            ],
        );
        let result = taken(
            &["role", "content"],
            &[
                ("role", one_of(&["tool"])),
                ("content", content.clone()),
                ("name", text()),
                ("tool_call_id", text()),
            ],
        );
        let call = function_call();
        let answer =
            |required: &'static str, calls| taken(&["role", required], &answered(content.clone(), calls));
        let calls = list(call.clone(), 0, self.limits.tool_calls);
        let mut kinds = vec![said, result, answer("tool_calls", list(call, 1, self.limits.tool_calls))];
        kinds.extend(["content", "reasoning_content", "reasoning"].map(|name| answer(name, calls.clone())));
        list(json!({"anyOf": kinds}), 1, self.limits.messages)
    }

    /// Texts as parts of a message's content.
    fn parts(&self) -> Value {
        let own = |kinds: &[&str], name: &'static str| {
            let annotations = constant(&json!([]));
            taken(
                &["type", name],
                &[
                    ("type", one_of(kinds)),
                    (name, text()),
                    ("annotations", annotations),
                    ("logprobs", json!({})),
                    ("cache_control", json!({})),
                ],
            )
        };
        let part = json!({"anyOf": [own(&["text", "input_text", "output_text"], "text"), own(&["refusal"], "refusal")]});
        list(part, 1, self.limits.content_parts)
    }

    /// The items of a response's input.
    pub(super) fn items(&self) -> Value {
        let item = |required: &[&str], kind: &str, own: &[Property]| {
            let common = [("type", one_of(&[kind])), ("id", json!({})), ("status", json!({}))];
            taken(&[&["type"], required].concat(), &[&common[..], own].concat())
        };
        let content = json!({"anyOf": [text(), self.parts()]});
        let said = [
            ("role", one_of(&["system", "developer", "user", "assistant"])),
            ("content", content.clone()),
            ("phase", json!({})),
            ("id", json!({})),
            ("status", json!({})),
            ("type", one_of(&["message"])),
        ];
        let thought =
            taken(&["text"], &[("type", one_of(&["reasoning_text", "summary_text"])), ("text", text())]);
        let thoughts = list(thought, 0, self.limits.content_parts);
        let item = json!({"anyOf": [
            taken(&["role", "content"], &said),
            item(&["call_id", "name", "arguments"], "function_call",
                &[("call_id", text()), ("name", text()), ("arguments", text())]),
            item(&["call_id", "output"], "function_call_output", &[("call_id", text()), ("output", content)]),
            item(&[], "reasoning", &[("summary", thoughts.clone()), ("content", thoughts)]),
        ]});
        list(item, 1, self.limits.messages)
    }

    /// A conversation in Anthropic's form.
    pub(super) fn conversation(&self) -> Vec<Property> {
        let blocks = |block: Value| list(block, 0, self.limits.content_parts);
        let block = |kind: &str, required: &[&str], own: &[Property]| {
            let common = [("type", one_of(&[kind])), ("cache_control", json!({}))];
            taken(&[&["type"], required].concat(), &[&common[..], own].concat())
        };
        let said = block("text", &["text"], &[("text", text()), ("citations", constant(&json!([])))]);
        let thought = block("thinking", &["thinking"], &[("thinking", text()), ("signature", json!({}))]);
        let call = [("id", text()), ("name", text()), ("input", json!({"type": "object"}))];
        let call = block("tool_use", &["id", "name", "input"], &call);
        let content = json!({"anyOf": [text(), blocks(said.clone())]});
        let result = [("tool_use_id", text()), ("content", content.clone()), ("is_error", flag())];
        let result = block("tool_result", &["tool_use_id"], &result);
        let message = |role: &str, block: Value| {
            let content = json!({"anyOf": [text(), blocks(block)]});
            taken(&["role", "content"], &[("role", one_of(&[role])), ("content", content)])
        };
        let user = message("user", json!({"anyOf": [said.clone(), thought.clone(), result]}));
        let assistant = message("assistant", json!({"anyOf": [said, thought, call]}));
        let thinking = [
            ("type", one_of(&["enabled", "adaptive", "disabled"])),
            ("budget_tokens", count(0)),
            ("display", one_of(&["summarized"])),
        ];
        vec![
            ("system", content),
            ("messages", list(json!({"anyOf": [user, assistant]}), 1, self.limits.messages)),
            ("thinking", taken(&["type"], &thinking)),
        ]
    }
}

fn function_call() -> Value {
    let function = taken(&["name"], &[("name", text()), ("arguments", text())]);
    taken(&["function"], &[("id", text()), function_type(), ("function", function), ("index", json!({}))])
}

/// An assistant's message.
fn answered(content: Value, calls: Value) -> Vec<Property> {
    vec![
        ("role", one_of(&["assistant"])),
        ("content", content),
        ("name", text()),
        ("refusal", json!({})),
        ("annotations", constant(&json!([]))),
        ("reasoning_content", text()),
        ("reasoning", text()),
        ("tool_calls", calls),
    ]
}
