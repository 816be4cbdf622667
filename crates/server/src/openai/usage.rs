//! What an answer took, in this protocol's words, and in ours.

use crate::generate::answering::{Answering, Total};
use crate::generate::params::Extras;
use serde_json::{Map, Value, json};
use std::time::Duration;

/// The usage of all answers together.
pub(crate) fn usage(total: &Total) -> Value {
    let mut usage = json!({
        "prompt_tokens": total.prompt_tokens,
        "completion_tokens": total.answer_tokens,
        "total_tokens": total.prompt_tokens + total.answer_tokens,
        "prompt_tokens_details": {"cached_tokens": total.cached_tokens},
        "completion_tokens_details": {"reasoning_tokens": total.reasoning_tokens},
    });
    if total.cut_tokens > 0 {
        usage["prompt_tokens_details"]["truncated_tokens"] = json!(total.cut_tokens);
    }
    usage
}

/// Adds to a whole answer what it took, and how long where that is asked for.
pub(super) fn account(object: &mut Map<String, Value>, extras: Extras, answering: &Answering) {
    object.insert("usage".to_owned(), usage(&answering.total));
    if extras.timings {
        object.insert("timings".to_owned(), timings(answering));
    }
}

/// How long the parts of the first answer took, and what was known of its prompt.
pub(crate) fn timings(answering: &Answering) -> Value {
    let course = &answering.course;
    let (usage, timings) = (course.usage, course.usage.timings);
    let milliseconds = |time: Duration| time.as_secs_f64() * 1000.0;
    json!({
        "queue_ms": milliseconds(timings.queued),
        "prefill_ms": milliseconds(timings.prefill),
        "decode_ms": milliseconds(timings.decode),
        "prompt_tokens": usage.prompt_tokens,
        "reused_tokens": usage.reused_tokens,
        "first_different_token": course.first_different,
        "generated_tokens": usage.generated_tokens,
        "preemptions": usage.preemptions,
    })
}
