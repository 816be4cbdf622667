//! Responses as objects, and as events.

use super::Keeper;
use super::items::{ItemEvent, Items};
use crate::error::ApiError;
use crate::generate::answering::{Answering, Finish, FinishKind, Total, Update};
use crate::generate::collect::Whole;
use crate::generate::params::Extras;
use crate::http::sse::{Protocol, SseEvent};
use crate::openai::request::Head;
use crate::openai::usage::timings;
use serde_json::{Map, Value, json};

/// The word for a response that a limit cut off.
const INCOMPLETE: &str = "incomplete";

/// What all states of a response have in common.
pub(super) struct Form {
    pub(super) head: Head,
    /// Parameters that are repeated.
    pub(super) echo: Map<String, Value>,
    pub(super) previous: Option<String>,
    pub(super) truncation: Truncation,
    pub(super) extras: Extras,
}

/// Whether messages may be left out, and how many were.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Truncation {
    Disabled,
    Auto { left_out: usize },
}

impl Form {
    /// A response that is being made.
    pub(super) fn running(&self) -> Value {
        self.object("in_progress", json!([]), None)
    }

    /// A response that is done.
    pub(super) fn ended(&self, answer: &Whole, answering: &Answering) -> Value {
        let status = status(answer.finish.as_ref());
        self.with_items(Items::of_whole(answer, status), status, answering)
    }

    fn with_items(&self, items: Vec<Value>, status: &str, answering: &Answering) -> Value {
        let mut object = self.object(status, Value::Array(items), Some(&answering.total));
        if self.extras.timings {
            object["timings"] = timings(answering);
        }
        if status == INCOMPLETE {
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
            "previous_response_id": self.previous,
        });
        match self.truncation {
            Truncation::Disabled => object["truncation"] = json!("disabled"),
            Truncation::Auto { left_out } => {
                object["truncation"] = json!("auto");
                object["truncated_messages"] = json!(left_out);
            }
        }
        for (name, value) in &self.echo {
            object[name] = value.clone();
        }
        let own = [
            ("temperature", json!(1.0)),
            ("top_p", json!(1.0)),
            ("background", json!(false)),
            ("parallel_tool_calls", json!(true)),
            ("tool_choice", json!("auto")),
            ("tools", json!([])),
            ("text", json!({"format": {"type": "text"}})),
            ("reasoning", json!({"effort": null, "summary": null})),
        ];
        for (name, own) in own {
            if object[name].is_null() {
                object[name] = own;
            }
        }
        object
    }
}

fn usage(total: &Total) -> Value {
    let mut usage = json!({
        "input_tokens": total.prompt_tokens,
        "input_tokens_details": {"cached_tokens": total.cached_tokens},
        "output_tokens": total.answer_tokens,
        "output_tokens_details": {"reasoning_tokens": total.reasoning_tokens},
        "total_tokens": total.prompt_tokens + total.answer_tokens,
    });
    if total.cut_tokens > 0 {
        usage["input_tokens_details"]["truncated_tokens"] = json!(total.cut_tokens);
    }
    usage
}

/// The word for how an answer ended.
fn status(finish: Option<&Finish>) -> &'static str {
    match finish.map(|finish| finish.kind) {
        Some(FinishKind::Length) => INCOMPLETE,
        Some(FinishKind::Stop | FinishKind::Calls) | None => "completed",
    }
}

/// A response as events, each with its number.
pub(super) struct ResponseStream {
    form: Form,
    keeper: Option<Keeper>,
    items: Items,
    sequence_number: u64,
    answer: Whole,
}

impl ResponseStream {
    pub(super) fn new(form: Form, keeper: Option<Keeper>) -> Self {
        Self { form, keeper, items: Items::default(), sequence_number: 0, answer: Whole::default() }
    }

    fn event(&mut self, name: &'static str, mut data: Value) -> SseEvent {
        data["type"] = json!(name);
        data["sequence_number"] = json!(self.sequence_number);
        self.sequence_number += 1;
        SseEvent { name: Some(name), data }
    }

    fn item_events(&mut self, events: Vec<ItemEvent>) -> Vec<SseEvent> {
        events.into_iter().map(|(name, data)| self.event(name, data)).collect()
    }
}

impl Protocol for ResponseStream {
    fn begin(&mut self) -> Vec<SseEvent> {
        let response = self.form.running();
        vec![
            self.event("response.created", json!({"response": response})),
            self.event("response.in_progress", json!({"response": response})),
        ]
    }

    fn update(&mut self, update: Update) -> Vec<SseEvent> {
        let mut told = Vec::new();
        for part in &update.parts {
            told.extend(self.items.push(part.clone()));
        }
        self.answer.push(update);
        self.item_events(told)
    }

    fn end(&mut self, answering: &Answering) -> Vec<SseEvent> {
        let status = status(self.answer.finish.as_ref());
        let told = self.items.end(status);
        let mut events = self.item_events(told);
        let response = self.form.with_items(self.items.values(status), status, answering);
        if let Some(keeper) = &self.keeper {
            keeper.keep(&self.form.head.id, &response, Some(&self.answer));
        }
        let name = if status == INCOMPLETE { "response.incomplete" } else { "response.completed" };
        events.push(self.event(name, json!({"response": response})));
        events
    }

    fn fail(&mut self, error: &ApiError) -> Vec<SseEvent> {
        let response = self.form.failed(error);
        vec![self.event("response.failed", json!({"response": response}))]
    }

    fn trailer(&self) -> &'static str {
        ""
    }
}
