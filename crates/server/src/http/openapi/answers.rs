//! What routes answer: a schema an answer.

use super::kinds::{any, flag, given, one_of, optional, text};
use serde_json::{Map, Value, json};

/// All of them.
pub(super) fn schemas() -> Map<String, Value> {
    let entries = [
        ("Error", error()),
        ("AnthropicError", anthropic_error()),
        ("ChatAnswer", chat()),
        ("CompletionAnswer", completion()),
        ("ResponseAnswer", response()),
        ("MessageAnswer", message()),
        ("Counted", given(&[("input_tokens", count())], &[])),
        ("Vectors", vectors()),
        ("Rendered", rendered()),
        ("RenderedList", json!({"type": "array", "items": rendered()})),
        ("Tokens", tokens()),
        ("Text", given(&[("prompt", text())], &[])),
        ("Roles", json!({"type": "object", "additionalProperties": {"type": "string"}})),
        ("Models", given(&[("object", one_of(&["list"])), ("data", any(model()))], &[])),
        ("Model", model()),
        (
            "Deleted",
            given(
                &[("id", text()), ("object", one_of(&["response"])), ("deleted", json!({"const": true}))],
                &[],
            ),
        ),
        ("Status", given(&[("status", one_of(&["ok", "ready"]))], &[])),
        ("Version", given(&[("version", text()), ("server", text())], &[])),
    ];
    entries.into_iter().map(|(name, schema)| (name.to_owned(), schema)).collect()
}

fn count() -> Value {
    json!({"type": "integer", "minimum": 0})
}

fn id(prefix: &str) -> Value {
    json!({"type": "string", "pattern": format!("^{prefix}[0-9a-f]+$")})
}

fn number() -> Value {
    json!({"type": "number"})
}

fn error() -> Value {
    let inside = given(
        &[("message", text()), ("type", text()), ("param", optional(text())), ("code", optional(text()))],
        &[],
    );
    // Probes say in words of their own what is wrong.
    let probe = given(
        &[("status", one_of(&["failing", "stuck", "draining"]))],
        &[("models", any(text())), ("no_step_for_seconds", count())],
    );
    json!({"anyOf": [given(&[("error", inside)], &[]), probe]})
}

fn anthropic_error() -> Value {
    let kinds = [
        "invalid_request_error",
        "authentication_error",
        "not_found_error",
        "request_too_large",
        "rate_limit_error",
        "overloaded_error",
        "timeout_error",
        "api_error",
    ];
    let inside = given(
        &[
            ("type", one_of(&kinds)),
            ("message", text()),
            ("param", optional(text())),
            ("code", optional(text())),
        ],
        &[],
    );
    given(&[("type", one_of(&["error"])), ("error", inside)], &[])
}

/// What is told of a prompt: how much of it was known, and how much was cut off where that was asked for.
fn prompt_details() -> Value {
    given(&[("cached_tokens", count())], &[("truncated_tokens", count())])
}

fn usage() -> Value {
    let answer = given(&[("reasoning_tokens", count())], &[]);
    given(
        &[
            ("prompt_tokens", count()),
            ("completion_tokens", count()),
            ("total_tokens", count()),
            ("prompt_tokens_details", prompt_details()),
            ("completion_tokens_details", answer),
        ],
        &[],
    )
}

fn timings() -> Value {
    let times = ["queue_ms", "prefill_ms", "decode_ms"].map(|name| (name, number()));
    let counts =
        ["prompt_tokens", "reused_tokens", "first_different_token", "generated_tokens", "preemptions"];
    given(&[&times[..], &counts.map(|name| (name, count()))].concat(), &[])
}

/// What answers of both of the protocol's older routes have in common.
fn answer(kind: &str, prefix: &str, choice: Value, at_times: &[(&'static str, Value)]) -> Value {
    given(
        &[
            ("id", id(prefix)),
            ("object", one_of(&[kind])),
            ("created", count()),
            ("model", text()),
            ("choices", any(choice)),
            ("system_fingerprint", text()),
            ("usage", usage()),
        ],
        &[&[("timings", timings())][..], at_times].concat(),
    )
}

fn ids() -> Value {
    any(count())
}

/// The scores of a prompt's tokens; none for the first.
fn prompt_scores() -> Value {
    let score = given(&[("logprob", number()), ("rank", optional(count())), ("decoded_token", text())], &[]);
    any(optional(json!({"type": "object", "additionalProperties": score})))
}

fn chat() -> Value {
    let function = given(&[("name", text()), ("arguments", text())], &[]);
    let call = given(&[("id", text()), ("type", one_of(&["function"])), ("function", function)], &[]);
    let message = given(
        &[
            ("role", one_of(&["assistant"])),
            ("content", optional(text())),
            ("refusal", json!({"type": "null"})),
        ],
        &[("reasoning_content", text()), ("tool_calls", any(call))],
    );
    let token = [
        ("token", text()),
        ("logprob", number()),
        ("bytes", any(json!({"type": "integer", "minimum": 0, "maximum": 255}))),
    ];
    let rivals = ("top_logprobs", any(given(&token, &[])));
    let tokens = any(given(&[&token[..], &[rivals]].concat(), &[]));
    let scores = given(&[("content", tokens), ("refusal", json!({"type": "null"}))], &[]);
    let choice = given(
        &[
            ("index", count()),
            ("message", message),
            ("logprobs", optional(scores)),
            ("finish_reason", one_of(&["stop", "length", "tool_calls"])),
            ("stop_reason", json!({"type": ["string", "integer", "null"]})),
        ],
        &[("token_ids", ids())],
    );
    answer(
        "chat.completion",
        "chatcmpl-",
        choice,
        &[("prompt_token_ids", ids()), ("prompt_logprobs", prompt_scores())],
    )
}

fn completion() -> Value {
    let rivals = json!({"type": "object", "additionalProperties": {"type": "number"}});
    let scores = given(
        &[
            ("tokens", any(text())),
            ("token_logprobs", any(optional(number()))),
            ("top_logprobs", any(optional(rivals))),
            ("text_offset", any(count())),
        ],
        &[],
    );
    let choice = given(
        &[
            ("text", text()),
            ("index", count()),
            ("logprobs", optional(scores)),
            ("finish_reason", one_of(&["stop", "length"])),
            ("stop_reason", json!({"type": ["string", "integer", "null"]})),
        ],
        &[("token_ids", ids()), ("prompt_token_ids", ids()), ("prompt_logprobs", prompt_scores())],
    );
    answer("text_completion", "cmpl-", choice, &[])
}

fn response() -> Value {
    let status = ["completed", "failed", "in_progress", "cancelled", "incomplete"];
    let usage = given(
        &[
            ("input_tokens", count()),
            ("input_tokens_details", prompt_details()),
            ("output_tokens", count()),
            ("output_tokens_details", given(&[("reasoning_tokens", count())], &[])),
            ("total_tokens", count()),
        ],
        &[],
    );
    let echoed = [
        "temperature",
        "top_p",
        "instructions",
        "max_output_tokens",
        "metadata",
        "user",
        "background",
        "tools",
        "tool_choice",
        "parallel_tool_calls",
        "text",
        "reasoning",
        "store",
    ]
    .map(|name| (name, json!({})));
    let own = [
        ("id", id("resp_")),
        ("object", one_of(&["response"])),
        ("created_at", count()),
        ("status", one_of(&status)),
        ("model", text()),
        ("error", optional(given(&[("code", text()), ("message", text())], &[]))),
        ("incomplete_details", optional(given(&[("reason", one_of(&["max_output_tokens"]))], &[]))),
        ("output", any(item())),
        ("usage", optional(usage)),
        ("previous_response_id", optional(text())),
        ("truncation", one_of(&["auto", "disabled"])),
    ];
    given(&[&own[..], &echoed].concat(), &[("truncated_messages", count()), ("timings", timings())])
}

/// An item of a response.
fn item() -> Value {
    let status = ("status", one_of(&["completed", "in_progress", "incomplete"]));
    let part = given(
        &[
            ("type", one_of(&["output_text"])),
            ("text", text()),
            ("annotations", json!({"const": []})),
            ("logprobs", json!({"const": []})),
        ],
        &[],
    );
    let thought = given(&[("type", one_of(&["reasoning_text"])), ("text", text())], &[]);
    json!({"anyOf": [
        given(&[("id", id("msg_")), ("type", one_of(&["message"])), status.clone(), ("role", one_of(&["assistant"])), ("content", any(part))], &[]),
        given(&[("id", id("rs_")), ("type", one_of(&["reasoning"])), status.clone(), ("summary", json!({"const": []})), ("content", any(thought))], &[]),
        given(&[("id", id("fc_")), ("type", one_of(&["function_call"])), status, ("call_id", text()), ("name", text()), ("arguments", text())], &[]),
    ]})
}

fn message() -> Value {
    let call = [
        ("type", one_of(&["tool_use"])),
        ("id", text()),
        ("name", text()),
        ("input", json!({"type": "object"})),
    ];
    let block = json!({"anyOf": [
        given(&[("type", one_of(&["text"])), ("text", text())], &[]),
        given(&[("type", one_of(&["thinking"])), ("thinking", text()), ("signature", text())], &[]),
        given(&call, &[]),
    ]});
    let counts = ["input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens", "output_tokens"];
    given(
        &[
            ("id", id("msg_")),
            ("type", one_of(&["message"])),
            ("role", one_of(&["assistant"])),
            ("model", text()),
            ("content", any(block)),
            ("stop_reason", one_of(&["end_turn", "max_tokens", "stop_sequence", "tool_use"])),
            ("stop_sequence", optional(text())),
            ("usage", given(&counts.map(|name| (name, count())), &[("truncated_input_tokens", count())])),
        ],
        &[("timings", timings())],
    )
}

fn vectors() -> Value {
    let vector = json!({"anyOf": [any(number()), text()]});
    let entry = given(&[("object", one_of(&["embedding"])), ("index", count()), ("embedding", vector)], &[]);
    let usage = given(
        &[("prompt_tokens", count()), ("total_tokens", count()), ("prompt_tokens_details", prompt_details())],
        &[],
    );
    given(&[("object", one_of(&["list"])), ("data", any(entry)), ("model", text()), ("usage", usage)], &[])
}

fn rendered() -> Value {
    given(&[("model", text()), ("token_ids", ids()), ("features", json!({"type": "null"}))], &[])
}

fn tokens() -> Value {
    given(
        &[
            ("count", count()),
            ("max_model_len", count()),
            ("tokens", ids()),
            ("token_strs", optional(any(text()))),
        ],
        &[],
    )
}

fn model() -> Value {
    given(
        &[
            ("id", text()),
            ("object", one_of(&["model"])),
            ("created", count()),
            ("owned_by", text()),
            ("root", text()),
            ("parent", json!({"type": "null"})),
            ("max_model_len", optional(count())),
            ("loaded", flag()),
        ],
        &[],
    )
}
