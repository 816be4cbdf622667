//! What all chunks of an answer in this protocol's form have in common.

use super::request::Head;
use super::usage::{timings, usage};
use crate::generate::answering::{Answering, PromptProgress};
use crate::generate::params::Extras;
use crate::http::sse::SseEvent;
use serde_json::{Map, Value, json};

/// What stands behind the last chunk.
pub(super) const DONE: &str = "data: [DONE]\n\n";

/// The chunks of one answer.
pub(super) struct Chunks {
    pub(super) head: Head,
    /// What kind of object a chunk is.
    pub(super) kind: &'static str,
    pub(super) extras: Extras,
    /// Whether the last one tells the usage.
    pub(super) with_usage: bool,
}

impl Chunks {
    /// One with these choices.
    pub(super) fn chunk(&self, choices: Vec<Value>) -> Map<String, Value> {
        let mut chunk = self.head.object(self.kind, choices);
        if self.with_usage {
            chunk.insert("usage".to_owned(), Value::Null);
        }
        chunk
    }

    /// One that says how far a prompt is.
    pub(super) fn progress(&self, progress: &PromptProgress) -> SseEvent {
        let PromptProgress { tokens, reused, computed, time } = progress;
        let mut chunk = self.chunk(Vec::new());
        let told = json!({"total": tokens, "cache": reused, "processed": computed, "time_ms": time.as_millis() as u64});
        chunk.insert("prompt_progress".to_owned(), told);
        Value::Object(chunk).into()
    }

    /// The last one, where there is something to tell.
    pub(super) fn end(&self, answering: &Answering) -> Vec<SseEvent> {
        if !self.with_usage && !self.extras.timings {
            return Vec::new();
        }
        let mut chunk = self.chunk(Vec::new());
        if self.with_usage {
            chunk.insert("usage".to_owned(), usage(&answering.total));
        }
        if self.extras.timings {
            chunk.insert("timings".to_owned(), timings(answering));
        }
        vec![Value::Object(chunk).into()]
    }
}
