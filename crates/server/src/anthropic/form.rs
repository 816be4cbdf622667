//! Answers in this protocol's form: whole, and as events.

use crate::error::ApiError;
use crate::generate::answering::{Answering, Finish, FinishKind, Total, Update};
use crate::generate::collect::Whole;
use crate::generate::parts::Part;
use crate::http::sse::{Protocol, SseEvent};
use crate::openai::chat_form::json;
use crate::openai::request::Head;
use axum::response::Response;
use serde_json::{Value, json};

/// The whole answer.
pub(super) fn whole(head: &Head, answer: Whole, total: &Total) -> Response {
    let content =
        if answer.content.is_empty() { json!([]) } else { json!([{"type": "text", "text": answer.content}]) };
    let mut message = message(head, &content);
    message["stop_reason"] = stop_reason(answer.finish.as_ref());
    message["stop_sequence"] = stop_sequence(answer.finish.as_ref());
    message["usage"] = usage(total);
    json(&message)
}

fn message(head: &Head, content: &Value) -> Value {
    json!({
        "id": head.id, "type": "message", "role": "assistant", "model": head.model, "content": content,
        "stop_reason": null, "stop_sequence": null, "usage": {"input_tokens": 0, "output_tokens": 0},
    })
}

fn stop_reason(finish: Option<&Finish>) -> Value {
    match finish {
        Some(Finish { stop_text: Some(_), .. }) => json!("stop_sequence"),
        Some(Finish { kind: FinishKind::Stop, .. }) => json!("end_turn"),
        Some(Finish { kind: FinishKind::Length, .. }) => json!("max_tokens"),
        None => Value::Null,
    }
}

fn stop_sequence(finish: Option<&Finish>) -> Value {
    json!(finish.and_then(|finish| finish.stop_text.as_ref()))
}

/// Tokens that were known count apart from the others here.
fn usage(total: &Total) -> Value {
    json!({
        "input_tokens": total.prompt_tokens - total.cached_tokens,
        "cache_read_input_tokens": total.cached_tokens,
        "cache_creation_input_tokens": 0,
        "output_tokens": total.answer_tokens,
    })
}

/// An answer as events: one block of text.
pub(super) struct MessageStream {
    head: Head,
    finish: Option<Finish>,
}

impl MessageStream {
    pub(super) fn new(head: Head) -> Self {
        Self { head, finish: None }
    }
}

fn event(name: &'static str, mut data: Value) -> SseEvent {
    data["type"] = json!(name);
    SseEvent { name: Some(name), data }
}

impl Protocol for MessageStream {
    fn begin(&mut self) -> Vec<SseEvent> {
        vec![
            event("message_start", json!({"message": message(&self.head, &json!([]))})),
            event("content_block_start", json!({"index": 0, "content_block": {"type": "text", "text": ""}})),
        ]
    }

    fn update(&mut self, update: Update) -> Vec<SseEvent> {
        self.finish = update.finish.or(self.finish.take());
        let delta = |part| match part {
            Part::Content(text) => event(
                "content_block_delta",
                json!({"index": 0, "delta": {"type": "text_delta", "text": text}}),
            ),
        };
        update.parts.into_iter().map(delta).collect()
    }

    fn end(&mut self, answering: &Answering) -> Vec<SseEvent> {
        let finish = self.finish.as_ref();
        let delta = json!({"stop_reason": stop_reason(finish), "stop_sequence": stop_sequence(finish)});
        vec![
            event("content_block_stop", json!({"index": 0})),
            event("message_delta", json!({"delta": delta, "usage": usage(&answering.total)})),
            event("message_stop", json!({})),
        ]
    }

    fn fail(&mut self, error: &ApiError) -> Vec<SseEvent> {
        vec![SseEvent { name: Some("error"), data: error.anthropic_body() }]
    }

    fn trailer(&self) -> &'static str {
        ""
    }
}
