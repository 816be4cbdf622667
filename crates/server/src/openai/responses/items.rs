//! The items of a response: messages, reasoning and calls, as they grow, and the events that tell of it.

use crate::generate::collect::Whole;
use crate::generate::parts::Part;
use crate::names;
use serde_json::{Value, json};

/// The items of one response so far.
#[derive(Debug, Default)]
pub(super) struct Items(Vec<Item>);

/// One item.
#[derive(Debug)]
struct Item {
    id: String,
    kind: Kind,
    /// What it says: text, or arguments as JSON text.
    text: String,
}

#[derive(Debug, PartialEq, Eq)]
enum Kind {
    Message,
    Reasoning,
    Call { call_id: String, name: String },
}

/// An event about an item, without its number: its name and its data.
pub(super) type ItemEvent = (&'static str, Value);

impl Items {
    /// The items of a whole answer.
    pub(super) fn of_whole(answer: &Whole, status: &str) -> Vec<Value> {
        let mut items = Self::default();
        for part in &answer.parts {
            items.push(part.clone());
        }
        items.values(status)
    }

    /// All items; the last one has this status, those before it are whole.
    pub(super) fn values(&self, status: &str) -> Vec<Value> {
        let last = self.0.len().saturating_sub(1);
        let of = |(place, item): (usize, &Item)| item.value(if place == last { status } else { "completed" });
        self.0.iter().enumerate().map(of).collect()
    }

    /// Takes a part; what is to be told of it.
    pub(super) fn push(&mut self, part: Part) -> Vec<ItemEvent> {
        let (kind, text) = match part {
            Part::Content(text) => (Kind::Message, text),
            Part::Reasoning(text) => (Kind::Reasoning, text),
            Part::Call { id, name, .. } => {
                let mut events = self.end("completed");
                events.extend(self.begin(Kind::Call { call_id: id, name }));
                return events;
            }
            Part::Arguments { json, .. } => return self.grow(&json),
        };
        let mut events = Vec::new();
        if self.0.last().is_none_or(|last| last.kind != kind) {
            events.extend(self.end("completed"));
            events.extend(self.begin(kind));
        }
        events.extend(self.grow(&text));
        events
    }

    /// The last item has come to its end.
    pub(super) fn end(&self, status: &str) -> Vec<ItemEvent> {
        let Some(item) = self.0.last() else { return Vec::new() };
        let place = self.0.len() - 1;
        let (name, field) = match item.kind {
            Kind::Message => ("response.output_text.done", "text"),
            Kind::Reasoning => ("response.reasoning_text.done", "text"),
            Kind::Call { .. } => ("response.function_call_arguments.done", "arguments"),
        };
        let mut done = self.about(item);
        done[field] = json!(item.text);
        if let Kind::Call { name, .. } = &item.kind {
            done["name"] = json!(name);
        }
        let mut events = vec![(name, done)];
        if item.has_content() {
            let mut part = self.about(item);
            part["part"] = item.part(&item.text);
            events.push(("response.content_part.done", part));
        }
        let value = item.value(status);
        events.push(("response.output_item.done", json!({"output_index": place, "item": value})));
        events
    }

    fn begin(&mut self, kind: Kind) -> Vec<ItemEvent> {
        let prefix = match kind {
            Kind::Message => "msg_",
            Kind::Reasoning => "rs_",
            Kind::Call { .. } => "fc_",
        };
        let place = self.0.len();
        self.0.push(Item { id: names::fresh(prefix), kind, text: String::new() });
        let item = &self.0[place];
        let opened = item.opened();
        let mut events = vec![("response.output_item.added", json!({"output_index": place, "item": opened}))];
        if item.has_content() {
            let mut part = self.about(item);
            part["part"] = item.part("");
            events.push(("response.content_part.added", part));
        }
        events
    }

    fn grow(&mut self, text: &str) -> Vec<ItemEvent> {
        let Some(item) = self.0.last_mut() else { return Vec::new() };
        item.text.push_str(text);
        let item = &self.0[self.0.len() - 1];
        let name = match item.kind {
            Kind::Message => "response.output_text.delta",
            Kind::Reasoning => "response.reasoning_text.delta",
            Kind::Call { .. } => "response.function_call_arguments.delta",
        };
        let mut event = self.about(item);
        event["delta"] = json!(text);
        vec![(name, event)]
    }

    /// What events about an item's text have in common.
    fn about(&self, item: &Item) -> Value {
        let mut event = json!({"item_id": item.id, "output_index": self.0.len() - 1});
        if item.has_content() {
            event["content_index"] = json!(0);
        }
        if item.kind == Kind::Message {
            event["logprobs"] = json!([]);
        }
        event
    }
}

impl Item {
    fn has_content(&self) -> bool {
        match self.kind {
            Kind::Message | Kind::Reasoning => true,
            Kind::Call { .. } => false,
        }
    }

    fn part(&self, text: &str) -> Value {
        match self.kind {
            Kind::Message => json!({"type": "output_text", "text": text, "annotations": [], "logprobs": []}),
            Kind::Reasoning | Kind::Call { .. } => json!({"type": "reasoning_text", "text": text}),
        }
    }

    /// The item before any of its text.
    fn opened(&self) -> Value {
        let mut value = self.value("in_progress");
        if self.has_content() {
            value["content"] = json!([]);
        }
        value
    }

    fn value(&self, status: &str) -> Value {
        let Self { id, kind, text } = self;
        match kind {
            Kind::Message => {
                let content = [self.part(text)];
                json!({"id": id, "type": "message", "status": status, "role": "assistant", "content": content})
            }
            Kind::Reasoning => {
                let content = [self.part(text)];
                json!({"id": id, "type": "reasoning", "status": status, "summary": [], "content": content})
            }
            Kind::Call { call_id, name } => json!({
                "id": id, "type": "function_call", "status": status, "call_id": call_id, "name": name, "arguments": text,
            }),
        }
    }
}
