//! Bodies that no client should send: a 4xx that names the field, quickly, and the next request is served.

use crate::support::Server;
use serde_json::{Value, json};

const CHAT: &str = "/v1/chat/completions";
const COMPLETIONS: &str = "/v1/completions";

#[test]
fn text_that_is_no_json_is_refused() {
    let server = Server::start();
    for (text, param) in [
        (&b""[..], None),
        (b"{", None),
        (b"nonsense", None),
        (b"{\"model\": \"toy\", }", None),
        (b"{\"temperature\": NaN}", Some("temperature")),
        (b"{\"top_p\": 1, \"temperature\": 1e999}", Some("temperature")),
        (b"{\"messages\": [{}, {\"content\": \"\\ud800\"}]}", Some("messages[1].content")),
        (b"{\"a\": \"\xff\"}", Some("a")),
        (b"{} {}", None),
    ] {
        let message = server.connect().post(CHAT, text).is_error(400, param);
        assert!(message.contains("no valid JSON"), "{message}");
    }
    for text in [&b"[]"[..], b"5", b"null", b"\"toy\""] {
        server.connect().post(CHAT, text).is_error(400, Some("body"));
    }
    let deep = format!("{{\"messages\": {}{}}}", "[".repeat(100_000), "]".repeat(100_000));
    let param = "messages[0][0][0][0][0][0][0]...";
    let message = server.connect().post(CHAT, deep.as_bytes()).is_error(400, Some(param));
    assert!(message.contains("64 levels"), "{message}");
    assert_eq!(server.get("/health").status, 200);
}

#[test]
fn a_key_that_occurs_twice_is_named() {
    let server = Server::start();
    for (text, param) in [
        (r#"{"model": "toy", "model": "toy"}"#, "model"),
        (r#"{"messages": [{"role": "user", "content": "a", "role": "system"}]}"#, "messages[0].role"),
        (
            r#"{"tools": [{"function": {"parameters": {"a": {}, "\u0061": {}}}}]}"#,
            "tools[0].function.parameters.\\u0061",
        ),
    ] {
        let message = server.connect().post(CHAT, text.as_bytes()).is_error(400, Some(param));
        assert!(message.contains("occurs twice"), "{message}");
    }
    server.ask(CHAT, &chat("user", json!("u")));
}

#[test]
fn other_types_of_content_are_refused() {
    let server = Server::start();
    for kind in ["text/plain", "application/x-www-form-urlencoded", "application/jsonx"] {
        let head = format!(
            "POST {CHAT} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-type: {kind}\r\ncontent-length: 2\r\n\r\n{{}}"
        );
        server.connect().send(&head).is_error(415, None);
    }
}

#[test]
fn a_body_that_is_too_large_is_refused_while_it_is_sent() {
    let server = Server::start();
    let mut connection = server.connect();
    let length = 200 << 20;
    let head = format!(
        "POST {CHAT} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n"
    );
    connection.write(head.as_bytes());
    let piece = vec![b' '; 1 << 20];
    for _ in 0..200 {
        connection.write(&piece);
    }
    connection.read().is_error(413, None);
    let chunked = Server::with(|setup| setup.limits.body_bytes = 100);
    let mut connection = chunked.connect();
    connection.write(
        format!(
            "POST {CHAT} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n\
             c8\r\n{}\r\n0\r\n\r\n",
            " ".repeat(200)
        )
        .as_bytes(),
    );
    connection.read().is_error(413, None);
    assert_eq!(chunked.get("/health").status, 200);
}

fn chat(name: &str, value: Value) -> Value {
    let mut body = json!({"model": "toy", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 1});
    body[name] = value;
    body
}

#[test]
fn wrong_parameters_of_chats_are_named() {
    let server = Server::start();
    let huge: Vec<Value> =
        (0..100_000).map(|number| json!({"type": "function", "function": {"name": number}})).collect();
    for (name, value, param) in [
        ("model", json!("absent"), "model"),
        ("messages", json!([]), "messages"),
        ("messages", json!({}), "messages"),
        ("messages", json!([{"role": "robot", "content": "x"}]), "messages[0].role"),
        (
            "messages",
            json!([{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}]),
            "messages[0].content[0]",
        ),
        ("messages", json!(vec![json!({"role": "user", "content": "x"}); 10_000]), "messages"),
        ("n", json!(1_000_000_000), "n"),
        ("n", json!(0), "n"),
        ("n", json!("2"), "n"),
        ("n", json!(1.5), "n"),
        ("temperature", json!(-1), "temperature"),
        ("temperature", json!(2.5), "temperature"),
        ("temperature", json!("hot"), "temperature"),
        ("top_p", json!(0), "top_p"),
        ("top_p", json!(1.1), "top_p"),
        ("min_p", json!(2), "min_p"),
        ("top_k", json!(-2), "top_k"),
        ("presence_penalty", json!(3), "presence_penalty"),
        ("frequency_penalty", json!(-3), "frequency_penalty"),
        ("repetition_penalty", json!(0), "repetition_penalty"),
        ("max_tokens", json!(0), "max_tokens"),
        ("max_tokens", json!(-5), "max_tokens"),
        ("max_completion_tokens", json!(7), "max_tokens"),
        ("min_tokens", json!(2), "min_tokens"),
        ("logprobs", json!(1_000_000_000), "logprobs"),
        ("top_logprobs", json!(5), "top_logprobs"),
        ("top_logprobs", json!(1_000_000_000), "top_logprobs"),
        ("logit_bias", json!({"x": 1}), "logit_bias.x"),
        ("logit_bias", json!({"99999": 1}), "logit_bias.99999"),
        ("logit_bias", json!({"5": 1000}), "logit_bias.5"),
        ("logit_bias", json!([1]), "logit_bias"),
        ("stop", json!(5), "stop"),
        ("stop", json!(["a", ""]), "stop[1]"),
        ("stop", json!(vec!["a"; 100]), "stop"),
        ("stop", json!("x".repeat(10_000)), "stop"),
        ("stop_token_ids", json!([99_999]), "stop_token_ids[0]"),
        ("seed", json!("x"), "seed"),
        ("priority", json!(1_000_001), "priority"),
        ("priority", json!("high"), "priority"),
        ("stream", json!("yes"), "stream"),
        ("stream_options", json!({"include_usage": true}), "stream_options"),
        ("tools", json!(huge), "tools"),
        ("functions", json!([]), "functions"),
        ("modalities", json!(["audio"]), "modalities"),
        ("audio", json!({}), "audio"),
        ("store", json!(true), "store"),
        ("reasoning_effort", json!("low"), "reasoning_effort"),
        ("reasoning_effort", json!(5), "reasoning_effort"),
        ("chat_template", json!("{{ 1 }}"), "chat_template"),
        ("chat_template_kwargs", json!({"messages": []}), "chat_template_kwargs.messages"),
        ("bogus", json!(1), "bogus"),
        (&"x".repeat(1000), json!(1), &format!("{}...", "x".repeat(40))),
    ] {
        let status = if param == "model" { 404 } else { 400 };
        let message = server.refuses(CHAT, &chat(name, value), status, param);
        assert!(message.len() < 500, "{message}");
    }
    server.refuses(CHAT, &json!({"messages": []}), 400, "model");
    server.refuses(CHAT, &json!({"model": "toy"}), 400, "messages");
}

#[test]
fn wrong_forms_and_tools_are_named() {
    let server = Server::start();
    for (name, value, param) in [
        ("guided_json", json!(5), "guided_json"),
        ("guided_decoding_backend", json!("x"), "guided_decoding_backend"),
        ("response_format", json!({"type": "xml"}), "response_format.type"),
        ("tool_choice", json!("required"), "tool_choice"),
        ("thinking_token_budget", json!(-1), "thinking_token_budget"),
        ("prompt_logprobs", json!(1_000_000_000), "prompt_logprobs"),
    ] {
        server.refuses(CHAT, &chat(name, value), 400, param);
    }
}

#[test]
fn wrong_parameters_of_completions_are_named() {
    let server = Server::start();
    for (name, value, param) in [
        ("prompt", json!(5), "prompt"),
        ("prompt", json!([]), "prompt"),
        ("prompt", json!([[]]), "prompt[0]"),
        ("prompt", json!(["a", 5]), "prompt[1]"),
        ("prompt", json!([1, "a"]), "prompt[1]"),
        ("prompt", json!([100_000]), "prompt[0]"),
        ("prompt", json!(vec!["a"; 1000]), "prompt"),
        ("prompt", json!(vec![1; 1000]), "prompt"),
        ("suffix", json!("x"), "suffix"),
        ("best_of", json!(3), "best_of"),
        ("logprobs", json!(1_000_000_000), "logprobs"),
        ("logprobs", json!(true), "logprobs"),
        ("echo", json!("yes"), "echo"),
        ("max_tokens", json!(0), "max_tokens"),
        ("use_beam_search", json!(true), "use_beam_search"),
        ("messages", json!([]), "messages"),
    ] {
        let mut body = json!({"model": "toy", "prompt": "a", "max_tokens": 1});
        body[name] = value;
        server.refuses(COMPLETIONS, &body, 400, param);
    }
}

#[test]
fn parameters_in_an_address_are_refused_by_name() {
    let server = Server::start();
    let made = server.ask("/v1/responses", &json!({"model": "toy", "input": "hi", "max_output_tokens": 1}));
    let kept = format!("/v1/responses/{}", made["id"].as_str().unwrap());
    for (path, param) in [
        (format!("{kept}?stream=true&starting_after=1"), "stream"),
        (format!("{kept}?beta=1&include[]=x"), "include[]"),
        ("/v1/models?limit=5".to_owned(), "limit"),
        ("/models/toy?flag".to_owned(), "flag"),
    ] {
        server.get(&path).is_error(400, Some(param));
    }
    let body = chat("user", json!("u"));
    server.post(&format!("{CHAT}?temperature=0"), &body).is_error(400, Some("temperature"));
    let refused = server.post("/v1/messages?stream=true", &body).json();
    assert_eq!((&refused["type"], &refused["error"]["param"]), (&json!("error"), &json!("stream")));
    // Clients' libraries name the version that they speak, and who watches asks as they like.
    server.ask(&format!("{CHAT}?api-version=2026-01-01&beta=true"), &body);
    for path in ["/v1/models?", "/health?now=1", "/metrics?a=b", "/?x=y"] {
        assert_eq!(server.get(path).status, 200, "{path}");
    }
    server.get("/v1/nothing?x=1").is_error(404, None);
}

#[test]
fn what_would_be_costly_is_refused_quickly() {
    let server = Server::start();
    let deep = |name: &str, open: &str, close: &str| {
        let (open, close) = (open.repeat(10_000), close.repeat(10_000));
        let mut body = chat("user", json!("u")).to_string();
        body.truncate(body.len() - 1);
        format!("{body}, \"{name}\": {open}{{}}{close}}}")
    };
    for name in ["guided_json", "response_format", "tools"] {
        let body = deep(name, "{\"items\":", "}");
        let param = format!("{name}{}...", ".items".repeat(7));
        let message = server.connect().post(CHAT, body.as_bytes()).is_error(400, Some(&param));
        assert!(message.contains("64 levels"), "{message}");
    }
    let wide = json!({"enum": vec!["x"; 60_000]});
    let brackets = "(".repeat(10_000) + &")".repeat(10_000);
    for (name, value, param) in [
        ("guided_json", wide, "guided_json"),
        ("guided_json", json!("[".repeat(10_000)), "guided_json"),
        ("guided_regex", json!(brackets), "guided_regex"),
        ("guided_regex", json!("a".repeat(20_000)), "guided_regex"),
        ("guided_grammar", json!("start: ".to_owned() + &brackets), "guided_grammar"),
        ("guided_choice", json!(vec!["x"; 2000]), "guided_choice"),
        ("tools", json!(vec![json!({}); 100_000]), "tools"),
    ] {
        server.refuses(CHAT, &chat(name, value), 400, param);
    }
}

#[test]
fn half_a_character_is_no_text() {
    let server = Server::start();
    for text in ["\\ud800", "\\udc00x", "\\ud800\\ud800"] {
        let body = format!(
            "{{\"model\": \"toy\", \"messages\": [{{\"role\": \"user\", \"content\": \"{text}\"}}]}}"
        );
        server.connect().post(CHAT, body.as_bytes()).is_error(400, Some("messages[0].content"));
    }
    assert_eq!(server.get("/v1/models").status, 200);
}
