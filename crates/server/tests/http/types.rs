//! Answers as another author's types of OpenAI's API read them.

use crate::support::Server;
use async_openai::types::chat::{CreateChatCompletionResponse, CreateChatCompletionStreamResponse};
use async_openai::types::completions::CreateCompletionResponse;
use async_openai::types::embeddings::{CreateBase64EmbeddingResponse, CreateEmbeddingResponse};
use async_openai::types::models::{ListModelResponse, Model};
use async_openai::types::responses::{DeleteResponse, Response, ResponseStreamEvent};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

fn read<T: DeserializeOwned>(value: &Value) -> T {
    serde_json::from_value(value.clone()).unwrap_or_else(|error| panic!("{error}: {value}"))
}

fn server() -> Server {
    Server::with(|setup| {
        setup.names = vec!["toy", "vectors"];
        setup.context = Some(2048);
    })
}

fn with(mut body: Value, more: &Value) -> Value {
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    body
}

/// A tool in the protocol's form: its parts beside one another, or apart.
fn tools(is_flat: bool) -> Value {
    let function = json!({"name": "look", "parameters": {
        "type": "object", "properties": {"x": {"enum": ["a", "b"]}}, "required": ["x"], "additionalProperties": false,
    }});
    match is_flat {
        true => json!([with(function, &json!({"type": "function", "strict": true}))]),
        false => json!([{"type": "function", "function": function}]),
    }
}

#[test]
fn chats_are_read() {
    let server = server();
    let body = json!({"model": "toy", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 200, "seed": 1});
    for more in [
        json!({"n": 2, "logprobs": true, "top_logprobs": 3, "max_tokens": 8}),
        json!({"guided_choice": ["yes"]}),
        json!({"tools": tools(false), "tool_choice": "required", "parallel_tool_calls": false}),
    ] {
        let body = with(body.clone(), &more);
        let whole: CreateChatCompletionResponse = read(&server.ask("/v1/chat/completions", &body));
        assert!(whole.choices.iter().all(|choice| choice.finish_reason.is_some()));
        let streamed = with(body, &json!({"stream": true, "stream_options": {"include_usage": true}}));
        let events = server.post("/v1/chat/completions", &streamed).events();
        let chunks: Vec<CreateChatCompletionStreamResponse> = events.iter().map(read).collect();
        let told: u32 =
            chunks.iter().filter_map(|chunk| chunk.usage.as_ref()).map(|usage| usage.completion_tokens).sum();
        assert_eq!(Some(told), whole.usage.map(|usage| usage.completion_tokens));
    }
}

#[test]
fn completions_vectors_and_models_are_read() {
    let server = server();
    let body = json!({"model": "toy", "prompt": ["a", "b"], "max_tokens": 4, "logprobs": 2, "echo": true});
    let whole: CreateCompletionResponse = read(&server.ask("/v1/completions", &body));
    assert_eq!(whole.choices.len(), 2);
    let streamed = json!({"model": "toy", "prompt": "a", "max_tokens": 4, "stream": true});
    for event in server.post("/v1/completions", &streamed).events() {
        let chunk: CreateCompletionResponse = read(&event);
        assert_eq!(chunk.object, "text_completion");
    }
    let input = json!({"model": "vectors", "input": ["a", "b"]});
    let vectors: CreateEmbeddingResponse = read(&server.ask("/v1/embeddings", &input));
    let packed = with(input, &json!({"encoding_format": "base64"}));
    let packed: CreateBase64EmbeddingResponse = read(&server.ask("/v1/embeddings", &packed));
    assert_eq!((vectors.data.len(), packed.data.len()), (2, 2));
    let models: ListModelResponse = read(&server.get("/v1/models").json());
    assert_eq!(models.data.len(), 2);
    let model: Model = read(&server.get("/v1/models/toy").json());
    assert_eq!(model.id, "toy");
}

#[test]
fn responses_and_their_events_are_read() {
    let server = server();
    let body = json!({"model": "toy", "input": "hi", "max_output_tokens": 200, "seed": 1});
    for more in [
        json!({"max_output_tokens": 4, "instructions": "brief", "metadata": {"a": "b"}}),
        json!({"guided_choice": ["yes"]}),
        json!({"tools": tools(true), "tool_choice": "required", "parallel_tool_calls": false}),
        json!({"background": true, "max_output_tokens": 4}),
    ] {
        let body = with(body.clone(), &more);
        let whole = server.ask("/v1/responses", &body);
        let Response { id, .. } = read(&whole);
        let _kept: Response = read(&server.get(&format!("/v1/responses/{id}")).json());
        if more["background"] != true {
            let streamed = with(body, &json!({"stream": true}));
            let text = server.post("/v1/responses", &streamed).body;
            let events: Vec<ResponseStreamEvent> = text
                .lines()
                .filter_map(|line| line.strip_prefix("data: "))
                .map(|data| read(&serde_json::from_str(data).unwrap()))
                .collect();
            assert!(matches!(events.first(), Some(ResponseStreamEvent::ResponseCreated(_))));
        }
        let gone = server
            .connect()
            .send(&format!("DELETE /v1/responses/{id} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"));
        let gone: DeleteResponse = read(&gone.json());
        assert!(gone.deleted);
    }
}
