//! `/openapi.json`: the routes and their parameters for programs, as OpenAPI 3.1.
//!
//! Schemas name every parameter that works, with its kind and range; what isn't named is refused.

use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde_json::{Map, Value, json};

/// The document.
pub(super) async fn document() -> Response {
    (StatusCode::OK, [("content-type", "application/json")], whole().to_string()).into_response()
}

/// A route that takes a JSON body: its path, the schema of its body, what it does.
const POSTS: [(&str, &str, &str); 11] = [
    ("/v1/chat/completions", "Chat", "Continue a conversation"),
    ("/v1/chat/completions/render", "Chat", "The token ids that a conversation becomes"),
    ("/v1/completions", "Completion", "Continue texts or token ids"),
    ("/v1/completions/render", "Completion", "The token ids that texts become"),
    ("/v1/responses", "Response", "Make a response that is kept"),
    ("/v1/responses/{id}/cancel", "Nothing", "Stop a response that is made in the background"),
    ("/v1/embeddings", "Embedding", "Vectors of texts or token ids"),
    ("/v1/messages", "Message", "Continue a conversation, in Anthropic's form"),
    ("/v1/messages/count_tokens", "Count", "Tokens of a conversation, in Anthropic's form"),
    ("/tokenize", "Tokenize", "Text or conversation to token ids"),
    ("/detokenize", "Detokenize", "Token ids to text"),
];

/// A route without a body: its path and what it does.
const GETS: [(&str, &str); 7] = [
    ("/v1/models", "Which models there are"),
    ("/v1/models/{id}", "One model"),
    ("/v1/responses/{id}", "A kept response"),
    ("/health", "Whether engines make steps"),
    ("/ready", "Whether new requests are taken"),
    ("/version", "Which version this is"),
    ("/metrics", "Numbers for Prometheus"),
];

fn whole() -> Value {
    let mut paths = Map::new();
    for (path, schema, summary) in POSTS {
        let mut operation = operation(path, summary);
        let reference = json!({"schema": {"$ref": format!("#/components/schemas/{schema}")}});
        if schema != "Nothing" {
            operation["requestBody"] = json!({"required": true, "content": {"application/json": reference}});
        }
        paths.insert(path.to_owned(), json!({"post": operation}));
    }
    for (path, summary) in GETS {
        paths.insert(path.to_owned(), json!({"get": operation(path, summary)}));
    }
    paths["/v1/responses/{id}"]["delete"] = operation("/v1/responses/{id}", "Forget a kept response");
    json!({
        "openapi": "3.1.0",
        "info": {"title": "Gannet", "version": env!("CARGO_PKG_VERSION"), "license": {"name": "MIT OR Apache-2.0"}},
        "paths": paths,
        "security": [{}, {"key": []}],
        "components": {"schemas": schemas(), "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}}},
    })
}

fn operation(path: &str, summary: &str) -> Value {
    let error = json!({"description": "Refused; the body says why", "content": {"application/json": {
        "schema": {"$ref": "#/components/schemas/Error"}
    }}});
    let mut operation = json!({
        "summary": summary,
        "responses": {"200": {"description": "Done"}, "4XX": error, "5XX": error},
    });
    if path.contains("{id}") {
        operation["parameters"] =
            json!([{"name": "id", "in": "path", "required": true, "schema": {"type": "string"}}]);
    }
    operation
}

fn schemas() -> Value {
    let text = json!({"type": "string"});
    let messages = json!({"type": "array", "items": {"type": "object", "required": ["role"]}, "minItems": 1});
    let ids = json!({"type": "array", "items": {"type": "integer", "minimum": 0}});
    let prompt = json!({"anyOf": [{"type": "string"}, {"type": "array"}]});
    let flag = json!({"type": "boolean"});
    let count = json!({"type": "integer", "minimum": 1});
    let tools =
        [("tools", json!({"type": "array", "items": {"type": "object"}})), ("tool_choice", json!({}))];
    let forms = [
        ("response_format", json!({"type": "object", "required": ["type"]})),
        ("guided_json", json!({"type": ["object", "boolean", "string"]})),
        ("guided_regex", text.clone()),
        ("guided_grammar", text.clone()),
        ("guided_choice", json!({"type": "array", "items": {"type": "string"}, "minItems": 1})),
        ("structured_outputs", json!({"type": "object"})),
    ];
    let budget = ("thinking_token_budget", json!({"type": "integer", "minimum": 0}));
    let scores = ("prompt_logprobs", json!({"type": "integer", "minimum": 0, "maximum": 20}));
    let parallel = ("parallel_tool_calls", flag.clone());
    let chat = [
        ("messages", messages.clone()),
        ("max_tokens", count.clone()),
        ("max_completion_tokens", count.clone()),
        ("logprobs", flag.clone()),
        ("top_logprobs", json!({"type": "integer", "minimum": 0, "maximum": 20})),
        ("chat_template_kwargs", json!({"type": "object"})),
    ];
    let completion = [
        ("prompt", prompt.clone()),
        ("max_tokens", json!({"type": "integer", "minimum": 0})),
        ("logprobs", json!({"type": "integer", "minimum": 0, "maximum": 20})),
        ("echo", flag.clone()),
    ];
    let response = [
        ("input", prompt.clone()),
        ("instructions", text.clone()),
        ("previous_response_id", text.clone()),
        ("max_output_tokens", count.clone()),
        ("store", flag.clone()),
        ("background", flag),
    ];
    let message = [("messages", messages.clone()), ("system", json!({})), ("max_tokens", count.clone())];
    let embedding = [
        ("model", text.clone()),
        ("input", prompt),
        ("dimensions", count),
        ("encoding_format", json!({"enum": ["float", "base64"]})),
    ];
    let chat: Vec<_> =
        [&chat[..], &tools, &forms, &[budget.clone(), scores.clone(), parallel.clone()]].concat();
    let completion: Vec<_> = [&completion[..], &forms, &[scores]].concat();
    let response: Vec<_> = [&response[..], &tools, &forms[1..], &[budget, parallel]].concat();
    let message: Vec<_> = [&message[..], &tools, &forms[1..]].concat();
    json!({
        "Chat": answered(&["model", "messages"], &chat),
        "Completion": answered(&["model", "prompt"], &completion),
        "Response": answered(&["model", "input"], &response),
        "Embedding": object(&["model", "input"], &embedding),
        "Message": answered(&["model", "messages", "max_tokens"], &message),
        "Count": object(&["model", "messages"], &[("model", text.clone()), ("messages", messages.clone())]),
        "Tokenize": object(&[], &[("model", text.clone()), ("prompt", text.clone()), ("messages", messages)]),
        "Detokenize": object(&["tokens"], &[("model", text), ("tokens", ids)]),
        "Error": {"type": "object", "required": ["error"], "properties": {"error": {"type": "object"}}},
    })
}

/// A request for an answer: what all have, and these parameters.
fn answered(required: &[&str], own: &[(&str, Value)]) -> Value {
    let number = |least: f64, most: f64| json!({"type": "number", "minimum": least, "maximum": most});
    let mut all = vec![
        ("model", json!({"type": "string"})),
        ("stream", json!({"type": "boolean"})),
        ("temperature", number(0.0, 2.0)),
        ("top_p", json!({"type": "number", "exclusiveMinimum": 0, "maximum": 1})),
        ("top_k", json!({"type": "integer", "minimum": -1})),
        ("min_p", number(0.0, 1.0)),
        ("presence_penalty", number(-2.0, 2.0)),
        ("frequency_penalty", number(-2.0, 2.0)),
        ("repetition_penalty", number(0.01, 100.0)),
        ("seed", json!({"type": "integer"})),
        ("ignore_eos", json!({"type": "boolean"})),
    ];
    all.extend(own.iter().cloned());
    object(required, &all)
}

fn object(required: &[&str], properties: &[(&str, Value)]) -> Value {
    let properties: Map<String, Value> =
        properties.iter().map(|(name, schema)| ((*name).to_owned(), schema.clone())).collect();
    json!({"type": "object", "required": required, "properties": properties})
}
