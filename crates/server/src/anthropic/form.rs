//! Answers in this protocol's form: whole, and as events.

use crate::error::ApiError;
use crate::generate::answering::{Answering, Finish, FinishKind, Total, Update};
use crate::generate::collect::{Call, Whole};
use crate::generate::params::Extras;
use crate::generate::parts::Part;
use crate::http::sse::{Protocol, SseEvent};
use crate::openai::chat_form::json;
use crate::openai::request::Head;
use crate::openai::usage::timings;
use axum::response::Response;
use serde_json::{Value, json};

/// The whole answer.
pub(super) fn whole(head: &Head, answer: &Whole, answering: &Answering, extras: Extras) -> Response {
    let mut message = message(head, &json!(blocks(answer)));
    message["stop_reason"] = stop_reason(answer.finish.as_ref());
    message["stop_sequence"] = stop_sequence(answer.finish.as_ref());
    message["usage"] = usage(&answering.total);
    if extras.timings {
        message["timings"] = timings(answering);
    }
    json(&message)
}

/// The blocks of a whole answer, in the order in which they came.
fn blocks(answer: &Whole) -> Vec<Value> {
    let mut calls = answer.calls().into_iter();
    let mut block = |part: &Part| match part {
        Part::Content(text) => Some(json!({"type": "text", "text": text})),
        Part::Reasoning(text) => Some(json!({"type": "thinking", "thinking": text, "signature": ""})),
        Part::Call { .. } => calls.next().map(|Call { id, name, arguments }| {
            // A call that was cut off has no whole input.
            let input: Value = serde_json::from_str(&arguments).unwrap_or_else(|_| json!({}));
            json!({"type": "tool_use", "id": id, "name": name, "input": input})
        }),
        Part::Arguments { .. } => None,
    };
    answer.parts.iter().filter_map(&mut block).collect()
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
        Some(Finish { kind: FinishKind::Calls, .. }) => json!("tool_use"),
        Some(Finish { kind: FinishKind::Length, .. }) => json!("max_tokens"),
        None => Value::Null,
    }
}

fn stop_sequence(finish: Option<&Finish>) -> Value {
    json!(finish.and_then(|finish| finish.stop_text.as_ref()))
}

/// Tokens that were known count apart from the others here.
fn usage(total: &Total) -> Value {
    let mut usage = json!({
        "input_tokens": total.prompt_tokens - total.cached_tokens,
        "cache_read_input_tokens": total.cached_tokens,
        "cache_creation_input_tokens": 0,
        "output_tokens": total.answer_tokens,
    });
    if total.cut_tokens > 0 {
        usage["truncated_input_tokens"] = json!(total.cut_tokens);
    }
    usage
}

/// An answer as events, in blocks.
pub(super) struct MessageStream {
    head: Head,
    extras: Extras,
    /// Tokens of the prompt, which the first event tells; how many of them were known comes with the last.
    prompt_tokens: u64,
    finish: Option<Finish>,
    /// The kind of the block that is open.
    open: Option<BlockKind>,
    /// Blocks that were opened.
    blocks: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BlockKind {
    Text,
    Thinking,
    ToolUse,
}

impl MessageStream {
    pub(super) fn new(head: Head, extras: Extras, prompt_tokens: u64) -> Self {
        Self { head, extras, prompt_tokens, finish: None, open: None, blocks: 0 }
    }

    /// Opens a block, after the one that was open.
    fn begin_block(&mut self, kind: BlockKind, block: &Value, events: &mut Vec<SseEvent>) {
        self.end_block(events);
        self.open = Some(kind);
        self.blocks += 1;
        let start = json!({"index": self.blocks - 1, "content_block": block});
        events.push(event("content_block_start", start));
    }

    fn end_block(&mut self, events: &mut Vec<SseEvent>) {
        if let Some(kind) = self.open.take() {
            if kind == BlockKind::Thinking {
                self.delta(&json!({"type": "signature_delta", "signature": ""}), events);
            }
            events.push(event("content_block_stop", json!({"index": self.blocks - 1})));
        }
    }

    fn delta(&self, delta: &Value, events: &mut Vec<SseEvent>) {
        events.push(event("content_block_delta", json!({"index": self.blocks - 1, "delta": delta})));
    }

    fn part(&mut self, part: Part, events: &mut Vec<SseEvent>) {
        match part {
            Part::Content(text) => {
                if self.open != Some(BlockKind::Text) {
                    self.begin_block(BlockKind::Text, &json!({"type": "text", "text": ""}), events);
                }
                self.delta(&json!({"type": "text_delta", "text": text}), events);
            }
            Part::Reasoning(text) => {
                if self.open != Some(BlockKind::Thinking) {
                    let block = json!({"type": "thinking", "thinking": "", "signature": ""});
                    self.begin_block(BlockKind::Thinking, &block, events);
                }
                self.delta(&json!({"type": "thinking_delta", "thinking": text}), events);
            }
            Part::Call { id, name, .. } => {
                let block = json!({"type": "tool_use", "id": id, "name": name, "input": {}});
                self.begin_block(BlockKind::ToolUse, &block, events);
            }
            Part::Arguments { json, .. } => {
                self.delta(&json!({"type": "input_json_delta", "partial_json": json}), events);
            }
        }
    }
}

fn event(name: &'static str, mut data: Value) -> SseEvent {
    data["type"] = json!(name);
    SseEvent { name: Some(name), data }
}

impl Protocol for MessageStream {
    fn begin(&mut self) -> Vec<SseEvent> {
        let mut message = message(&self.head, &json!([]));
        message["usage"]["input_tokens"] = json!(self.prompt_tokens);
        vec![event("message_start", json!({"message": message}))]
    }

    fn update(&mut self, update: Update) -> Vec<SseEvent> {
        self.finish = update.finish.or(self.finish.take());
        let mut events = Vec::new();
        for part in update.parts {
            self.part(part, &mut events);
        }
        events
    }

    fn end(&mut self, answering: &Answering) -> Vec<SseEvent> {
        let mut events = Vec::new();
        self.end_block(&mut events);
        let finish = self.finish.as_ref();
        let delta = json!({"stop_reason": stop_reason(finish), "stop_sequence": stop_sequence(finish)});
        let mut last = json!({"delta": delta, "usage": usage(&answering.total)});
        if self.extras.timings {
            last["timings"] = timings(answering);
        }
        events.push(event("message_delta", last));
        events.push(event("message_stop", json!({})));
        events
    }

    fn fail(&mut self, error: &ApiError) -> Vec<SseEvent> {
        vec![SseEvent { name: Some("error"), data: error.anthropic_body() }]
    }

    fn trailer(&self) -> &'static str {
        ""
    }
}
