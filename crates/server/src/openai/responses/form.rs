//! Responses as objects, and as events.

use super::Keeper;
use crate::error::ApiError;
use crate::generate::answering::{Answering, FinishKind, Total, Update};
use crate::generate::collect::Whole;
use crate::generate::parts::Part;
use crate::http::sse::{Protocol, SseEvent};
use crate::names;
use crate::openai::request::Head;
use serde_json::{Map, Value, json};

/// What all states of a response have in common.
pub(super) struct Form {
    pub(super) head: Head,
    /// Parameters that are repeated.
    pub(super) echo: Map<String, Value>,
    pub(super) previous: Option<String>,
}

impl Form {
    /// A response that is being made.
    pub(super) fn running(&self) -> Value {
        self.object("in_progress", json!([]), None)
    }

    /// A response that is done.
    pub(super) fn ended(&self, answer: &Whole, total: &Total) -> Value {
        let is_cut = answer.finish.as_ref().is_some_and(|finish| finish.kind == FinishKind::Length);
        let status = if is_cut { "incomplete" } else { "completed" };
        let item = item(&names::fresh("msg_"), status, Some(&answer.content));
        self.with_item(item, is_cut, total)
    }

    fn with_item(&self, item: Value, is_cut: bool, total: &Total) -> Value {
        let status = if is_cut { "incomplete" } else { "completed" };
        let mut object = self.object(status, json!([item]), Some(total));
        if is_cut {
            object["incomplete_details"] = json!({"reason": "max_output_tokens"});
        }
        object
    }

    /// A response that can't be made.
    pub(super) fn failed(&self, error: &ApiError) -> Value {
        let mut object = self.object("failed", json!([]), None);
        object["error"] = json!({"code": "server_error", "message": error.to_string()});
        object
    }

    fn object(&self, status: &str, output: Value, total: Option<&Total>) -> Value {
        let Head { id, created, model } = &self.head;
        let mut object = json!({
            "id": id, "object": "response", "created_at": created, "status": status, "model": model,
            "error": null, "incomplete_details": null, "output": output, "usage": total.map(usage),
            "previous_response_id": self.previous, "parallel_tool_calls": true, "tool_choice": "auto", "tools": [],
            "text": {"format": {"type": "text"}}, "truncation": "disabled", "reasoning": {"effort": null, "summary": null},
        });
        for (name, value) in &self.echo {
            object[name] = value.clone();
        }
        for (name, own) in [("temperature", json!(1.0)), ("top_p", json!(1.0)), ("background", json!(false))]
        {
            if object[name].is_null() {
                object[name] = own;
            }
        }
        object
    }
}

fn usage(total: &Total) -> Value {
    json!({
        "input_tokens": total.prompt_tokens,
        "input_tokens_details": {"cached_tokens": total.cached_tokens},
        "output_tokens": total.answer_tokens,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": total.prompt_tokens + total.answer_tokens,
    })
}

/// The message of an answer; none of its text yet where absent.
fn item(id: &str, status: &str, text: Option<&str>) -> Value {
    let content = text.map_or_else(|| json!([]), |text| json!([part(text)]));
    json!({"id": id, "type": "message", "status": status, "role": "assistant", "content": content})
}

fn part(text: &str) -> Value {
    json!({"type": "output_text", "text": text, "annotations": [], "logprobs": []})
}

/// A response as events, each with its number.
pub(super) struct ResponseStream {
    form: Form,
    keeper: Option<Keeper>,
    item_id: String,
    sequence_number: u64,
    answer: Whole,
}

impl ResponseStream {
    pub(super) fn new(form: Form, keeper: Option<Keeper>) -> Self {
        let item_id = names::fresh("msg_");
        Self { form, keeper, item_id, sequence_number: 0, answer: Whole::default() }
    }

    fn event(&mut self, name: &'static str, mut data: Value) -> SseEvent {
        data["type"] = json!(name);
        data["sequence_number"] = json!(self.sequence_number);
        self.sequence_number += 1;
        SseEvent { name: Some(name), data }
    }

    /// An event about the text.
    fn text_event(&mut self, name: &'static str, field: &str, value: Value) -> SseEvent {
        let mut data = json!({"item_id": self.item_id, "output_index": 0, "content_index": 0});
        data[field] = value;
        if name.starts_with("response.output_text") {
            data["logprobs"] = json!([]);
        }
        self.event(name, data)
    }
}

impl Protocol for ResponseStream {
    fn begin(&mut self) -> Vec<SseEvent> {
        let response = self.form.running();
        let opened = item(&self.item_id, "in_progress", None);
        vec![
            self.event("response.created", json!({"response": response})),
            self.event("response.in_progress", json!({"response": response})),
            self.event("response.output_item.added", json!({"output_index": 0, "item": opened})),
            self.text_event("response.content_part.added", "part", part("")),
        ]
    }

    fn update(&mut self, update: Update) -> Vec<SseEvent> {
        self.answer.finish = update.finish.or(self.answer.finish.take());
        let mut events = Vec::new();
        for part in update.parts {
            match part {
                Part::Content(text) => {
                    self.answer.content.push_str(&text);
                    events.push(self.text_event("response.output_text.delta", "delta", json!(text)));
                }
            }
        }
        events
    }

    fn end(&mut self, answering: &Answering) -> Vec<SseEvent> {
        let is_cut = self.answer.finish.as_ref().is_some_and(|finish| finish.kind == FinishKind::Length);
        let status = if is_cut { "incomplete" } else { "completed" };
        let text = self.answer.content.clone();
        let item = item(&self.item_id, status, Some(&text));
        let response = self.form.with_item(item.clone(), is_cut, &answering.total);
        if let Some(keeper) = &self.keeper {
            keeper.keep(&self.form.head.id, &response, Some(&self.answer));
        }
        let name = if is_cut { "response.incomplete" } else { "response.completed" };
        vec![
            self.text_event("response.output_text.done", "text", json!(text)),
            self.text_event("response.content_part.done", "part", part(&text)),
            self.event("response.output_item.done", json!({"output_index": 0, "item": item})),
            self.event(name, json!({"response": response})),
        ]
    }

    fn fail(&mut self, error: &ApiError) -> Vec<SseEvent> {
        let response = self.form.failed(error);
        vec![self.event("response.failed", json!({"response": response}))]
    }

    fn trailer(&self) -> &'static str {
        ""
    }
}
