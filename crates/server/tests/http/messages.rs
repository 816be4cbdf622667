//! Anthropic's routes.

use crate::support::Server;
use gannet_server::Keys;
use serde_json::{Value, json};

const PATH: &str = "/v1/messages";

fn greedy(more: Value) -> Value {
    let mut body = json!({
        "model": "toy", "system": "brief", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 8,
        "temperature": 0, "ignore_eos": true,
    });
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    body
}

#[test]
fn an_answer_has_the_protocols_form_and_the_text_of_the_other_protocol() {
    let server = Server::start();
    let answer = server.ask(PATH, &greedy(json!({})));
    assert_eq!((&answer["type"], &answer["role"]), (&json!("message"), &json!("assistant")));
    assert_eq!(answer["stop_reason"], "max_tokens");
    let chat = json!({
        "model": "toy", "max_tokens": 8, "temperature": 0, "ignore_eos": true,
        "messages": [{"role": "system", "content": "brief"}, {"role": "user", "content": "hi"}],
    });
    let other = server.ask("/v1/chat/completions", &chat);
    assert_eq!(answer["content"][0]["text"], other["choices"][0]["message"]["content"]);
    assert_eq!(answer["usage"]["output_tokens"], 8);
    let count = json!({"model": "toy", "system": "brief", "messages": [{"role": "user", "content": "hi"}]});
    let counted = server.ask("/v1/messages/count_tokens", &count);
    assert_eq!(counted["input_tokens"], other["usage"]["prompt_tokens"]);
}

#[test]
fn events_come_in_the_protocols_order() {
    let server = Server::start();
    let whole = server.ask(PATH, &greedy(json!({})));
    let answer = server.post(PATH, &greedy(json!({"stream": true})));
    let blocks: Vec<(String, Value)> = answer
        .body
        .split("\n\n")
        .filter(|block| !block.is_empty())
        .map(|block| {
            let (name, data) = block.split_once("\ndata: ").unwrap();
            (name.strip_prefix("event: ").unwrap().to_owned(), serde_json::from_str(data).unwrap())
        })
        .collect();
    assert!(blocks.iter().all(|(name, data)| data["type"] == name.as_str()));
    let mut names: Vec<&str> = blocks.iter().map(|(name, _)| name.as_str()).collect();
    names.dedup();
    let expected = [
        "message_start",
        "content_block_start",
        "content_block_delta",
        "content_block_stop",
        "message_delta",
        "message_stop",
    ];
    assert_eq!(names, expected);
    let text: String = blocks.iter().filter_map(|(_, data)| data["delta"]["text"].as_str()).collect();
    assert_eq!(text, whole["content"][0]["text"]);
    let asked = greedy(json!({}));
    let said = json!({"model": "toy", "system": asked["system"], "messages": asked["messages"]});
    let counted = server.ask("/v1/messages/count_tokens", &said);
    assert_eq!(blocks[0].1["message"]["usage"]["input_tokens"], counted["input_tokens"]);
    let delta = &blocks[blocks.len() - 2].1;
    assert_eq!(delta["delta"]["stop_reason"], "max_tokens");
    assert_eq!(delta["usage"]["output_tokens"], 8);
}

#[test]
fn a_stop_sequence_is_named() {
    let server = Server::start();
    let whole = server.ask(PATH, &greedy(json!({})));
    let text = whole["content"][0]["text"].as_str().unwrap();
    let stop: String = text.chars().skip(2).take(2).collect();
    let answer = server.ask(PATH, &greedy(json!({"stop_sequences": [stop]})));
    assert_eq!((&answer["stop_reason"], &answer["stop_sequence"]), (&json!("stop_sequence"), &json!(stop)));
}

#[test]
fn refusals_have_the_protocols_form() {
    let server = Server::start();
    let check = |name: &str, value: Value, status: u16, kind: &str, part: &str| {
        let mut body = greedy(json!({}));
        body[name] = value;
        let answer = server.post(PATH, &body);
        assert_eq!(answer.status, status, "{answer:?}");
        let body = answer.json();
        assert_eq!((&body["type"], &body["error"]["type"]), (&json!("error"), &json!(kind)));
        assert!(body["error"]["message"].as_str().unwrap().contains(part), "{body}");
    };
    check("model", json!("absent"), 404, "not_found_error", "absent");
    check("max_tokens", Value::Null, 400, "invalid_request_error", "`max_tokens` is missing");
    check("messages", json!([]), 400, "invalid_request_error", "`messages`");
    check("tools", json!([{"name": "f g"}]), 400, "invalid_request_error", "`tools[0].name`");
    check("tool_choice", json!({"type": "any"}), 400, "invalid_request_error", "`tool_choice.type`");
    check(
        "thinking",
        json!({"type": "enabled", "budget_tokens": 9}),
        400,
        "invalid_request_error",
        "`thinking`",
    );
    check("n", json!(2), 400, "invalid_request_error", "`n`");
    let closed = Server::with(|setup| setup.config.keys = Keys::parse("first-key").unwrap());
    let answer = closed.post(PATH, &greedy(json!({})));
    assert_eq!((answer.status, &answer.json()["error"]["type"]), (401, &json!("authentication_error")));
    check("bogus", json!(2), 400, "invalid_request_error", "`bogus`");
}
