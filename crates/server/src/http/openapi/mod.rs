//! `/openapi.json`: the routes, what they take and what they answer, for programs, as OpenAPI 3.1.
//!
//! Bodies name every parameter that works, with its kind and range, and nothing else passes: a body that fits here is
//! refused only for what depends on the model or on several parameters together. `null` stands for absent everywhere.

mod answers;
mod bodies;
mod conversations;
mod kinds;

use crate::app::App;
use crate::limits::Limits;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde_json::{Map, Value, json};
use std::sync::Arc;

/// The document.
pub(super) async fn document(State(app): State<Arc<App>>) -> Response {
    let models: Vec<&str> = app.models.list().map(|(name, _)| name).collect();
    (StatusCode::OK, [("content-type", "application/json")], whole(&models, &app.config.limits).to_string())
        .into_response()
}

/// A route that takes a JSON body: its path, the schemas of its body and of its answer, what it does.
const POSTS: [(&str, &str, &str, &str); 11] = [
    ("/v1/chat/completions", "Chat", "ChatAnswer", "Continue a conversation"),
    ("/v1/chat/completions/render", "Chat", "Rendered", "The token ids that a conversation becomes"),
    ("/v1/completions", "Completion", "CompletionAnswer", "Continue texts or token ids"),
    ("/v1/completions/render", "Completion", "RenderedList", "The token ids that texts become"),
    ("/v1/responses", "Response", "ResponseAnswer", "Make a response that is kept"),
    (
        "/v1/responses/{id}/cancel",
        NOTHING,
        "ResponseAnswer",
        "Stop a response that is made in the background",
    ),
    ("/v1/embeddings", "Embedding", "Vectors", "Vectors of texts or token ids"),
    ("/v1/messages", "Message", "MessageAnswer", "Continue a conversation, in Anthropic's form"),
    ("/v1/messages/count_tokens", "Count", "Counted", "Tokens of a conversation, in Anthropic's form"),
    ("/tokenize", "Tokenize", "Tokens", "Text or conversation to token ids"),
    ("/detokenize", "Detokenize", "Text", "Token ids to text"),
];
/// The body of a route that takes none.
const NOTHING: &str = "";

/// A route without a body: its path, the schema of its answer, what it does.
const GETS: [(&str, &str, &str); 7] = [
    ("/v1/models", "Models", "Which models there are"),
    ("/v1/models/{id}", "Model", "One model"),
    ("/v1/responses/{id}", "ResponseAnswer", "A kept response"),
    ("/tokenizer_info", "Roles", "Which tokens have a role, and the chat template"),
    ("/health", "Status", "Whether engines make steps"),
    ("/ready", "Status", "Whether new requests are taken"),
    ("/version", "Version", "Which version this is"),
];

/// Routes whose answers may come as server-sent events.
const STREAMED: [&str; 4] = ["/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages"];

fn whole(models: &[&str], limits: &Limits) -> Value {
    let mut paths = Map::new();
    for (path, body, answer, summary) in POSTS {
        let mut operation = operation(path, summary, answer);
        if body != NOTHING {
            operation["requestBody"] =
                json!({"required": true, "content": {"application/json": {"schema": named(body)}}});
        }
        paths.insert(path.to_owned(), json!({"post": operation}));
    }
    for (path, answer, summary) in GETS {
        paths.insert(path.to_owned(), json!({"get": operation(path, summary, answer)}));
    }
    paths["/v1/responses/{id}"]["delete"] =
        operation("/v1/responses/{id}", "Forget a kept response", "Deleted");
    let mut numbers = operation("/metrics", "Numbers for Prometheus", "");
    numbers["responses"]["200"]["content"] = json!({"text/plain": {"schema": {"type": "string"}}});
    paths.insert("/metrics".to_owned(), json!({"get": numbers}));
    let mut schemas = answers::schemas();
    schemas.extend(bodies::schemas(models, limits));
    json!({
        "openapi": "3.1.0",
        "info": {"title": "Gannet", "version": env!("CARGO_PKG_VERSION"), "license": {"name": "MIT OR Apache-2.0"}},
        "paths": paths,
        "security": [{}, {"key": []}],
        "components": {"schemas": schemas, "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}}},
    })
}

fn named(schema: &str) -> Value {
    json!({"$ref": format!("#/components/schemas/{schema}")})
}

fn operation(path: &str, summary: &str, answer: &str) -> Value {
    let headers = json!({"x-request-id": {
        "description": "The client's own, or a fresh one", "required": true, "schema": {"type": "string"}
    }});
    let mut content = json!({"application/json": {"schema": named(answer)}});
    if STREAMED.contains(&path) {
        content["text/event-stream"] = json!({"schema": {"type": "string"}});
    }
    let error = if path.starts_with("/v1/messages") { "AnthropicError" } else { "Error" };
    let refused = |description: &str| {
        let content = json!({"application/json": {"schema": named(error)}});
        json!({"description": description, "headers": headers, "content": content})
    };
    let mut operation = json!({
        "summary": summary,
        "responses": {
            "200": {"description": "Done", "headers": headers, "content": content},
            "4XX": refused("Refused; the body says why"),
            "5XX": refused("Failed, or not possible now; the body says why"),
        },
    });
    if path.contains("{id}") {
        operation["parameters"] =
            json!([{"name": "id", "in": "path", "required": true, "schema": {"type": "string"}}]);
    }
    operation
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each name that is referred to is there.
    #[test]
    fn every_reference_leads_somewhere() {
        let document = whole(&["toy"], &Limits::default());
        let text = document.to_string();
        let mut names: Vec<&str> =
            text.split("#/components/schemas/").skip(1).filter_map(|rest| rest.split('"').next()).collect();
        names.sort_unstable();
        names.dedup();
        assert!(names.len() > 20, "{names:?}");
        for name in names {
            assert!(document["components"]["schemas"][name].is_object(), "{name}");
        }
    }
}
