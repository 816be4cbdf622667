//! `/v1/responses`: made, kept, gone on from.

use crate::support::Server;
use gannet_server::Keys;
use serde_json::{Value, json};

const PATH: &str = "/v1/responses";

fn greedy(more: Value) -> Value {
    let mut body =
        json!({"model": "toy", "input": "hi", "max_output_tokens": 8, "temperature": 0, "ignore_eos": true});
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    body
}

fn text(response: &Value) -> &str {
    response["output"][0]["content"][0]["text"].as_str().unwrap()
}

#[test]
fn a_response_is_made_kept_and_forgotten() {
    let server = Server::start();
    let made = server.ask(PATH, &greedy(json!({"instructions": "brief"})));
    assert_eq!((&made["object"], &made["status"]), (&json!("response"), &json!("incomplete")));
    assert_eq!(made["incomplete_details"]["reason"], "max_output_tokens");
    let chat = json!({
        "model": "toy", "max_tokens": 8, "temperature": 0, "ignore_eos": true,
        "messages": [{"role": "system", "content": "brief"}, {"role": "user", "content": "hi"}],
    });
    let other = server.ask("/v1/chat/completions", &chat);
    assert_eq!(text(&made), other["choices"][0]["message"]["content"]);
    assert_eq!(made["usage"]["total_tokens"], other["usage"]["total_tokens"]);
    let path = format!("{PATH}/{}", made["id"].as_str().unwrap());
    assert_eq!(server.get(&path).json(), made);
    let delete = format!("DELETE {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
    assert_eq!(server.connect().send(&delete).json()["deleted"], true);
    server.get(&path).is_error(404, None);
}

#[test]
fn a_response_goes_on_from_the_one_before() {
    let server = Server::start();
    let first = server.ask(PATH, &greedy(json!({})));
    let second = server.ask(PATH, &greedy(json!({"input": "so?", "previous_response_id": first["id"]})));
    let whole = json!([
        {"role": "user", "content": "hi"}, first["output"][0], {"role": "user", "content": "so?"},
    ]);
    let at_once = server.ask(PATH, &greedy(json!({"input": whole, "store": false})));
    assert_eq!(text(&second), text(&at_once));
    assert_eq!(second["usage"]["input_tokens"], at_once["usage"]["input_tokens"]);
    server.get(&format!("{PATH}/{}", at_once["id"].as_str().unwrap())).is_error(404, None);
    server.post(PATH, &greedy(json!({"previous_response_id": "resp_absent"}))).is_error(404, None);
}

#[test]
fn events_are_numbered_and_end_with_the_response() {
    let server = Server::start();
    let whole = server.ask(PATH, &greedy(json!({})));
    let answer = server.post(PATH, &greedy(json!({"stream": true})));
    let events: Vec<Value> = answer
        .body
        .split("\n\n")
        .filter(|block| !block.is_empty())
        .map(|block| serde_json::from_str(block.split_once("\ndata: ").unwrap().1).unwrap())
        .collect();
    for (number, event) in events.iter().enumerate() {
        assert_eq!(event["sequence_number"], number);
    }
    let mut kinds: Vec<&str> = events.iter().map(|event| event["type"].as_str().unwrap()).collect();
    kinds.dedup();
    assert_eq!(
        kinds,
        [
            "response.created",
            "response.in_progress",
            "response.output_item.added",
            "response.content_part.added",
            "response.output_text.delta",
            "response.output_text.done",
            "response.content_part.done",
            "response.output_item.done",
            "response.incomplete",
        ]
    );
    let said: String = events.iter().filter_map(|event| event["delta"].as_str()).collect();
    assert_eq!(said, text(&whole));
    let last = &events[events.len() - 1]["response"];
    assert_eq!(server.get(&format!("{PATH}/{}", last["id"].as_str().unwrap())).json(), *last);
}

#[test]
fn a_response_in_the_background_can_be_waited_for_and_cancelled() {
    let server = Server::start();
    let begun = server.ask(PATH, &greedy(json!({"background": true})));
    assert_eq!(begun["status"], "in_progress");
    let path = format!("{PATH}/{}", begun["id"].as_str().unwrap());
    let done =
        (0..10_000).map(|_| server.get(&path).json()).find(|response| response["status"] != "in_progress");
    assert_eq!(done.unwrap()["status"], "incomplete");
    let begun = server.ask(PATH, &greedy(json!({"background": true, "max_output_tokens": 480})));
    let path = format!("{PATH}/{}", begun["id"].as_str().unwrap());
    let cancelled = server.ask(&format!("{path}/cancel"), &json!({}));
    assert_eq!(cancelled["status"], "cancelled");
    assert_eq!(server.get(&path).json()["status"], "cancelled");
    let made = server.ask(PATH, &greedy(json!({})));
    server
        .post(&format!("{PATH}/{}/cancel", made["id"].as_str().unwrap()), &json!({}))
        .is_error(400, Some("response_id"));
}

#[test]
fn a_response_is_its_keys_own() {
    let server = Server::with(|setup| setup.config.keys = Keys::parse("first-key\nsecond-key").unwrap());
    let body = greedy(json!({})).to_string();
    let made =
        server.connect().post_with(PATH, "authorization: Bearer first-key\r\n", body.as_bytes()).json();
    let get = |key: &str| {
        let id = made["id"].as_str().unwrap();
        let head = format!(
            "GET {PATH}/{id} HTTP/1.1\r\nhost: x\r\nconnection: close\r\nauthorization: Bearer {key}\r\n\r\n"
        );
        server.connect().send(&head).status
    };
    assert_eq!((get("first-key"), get("second-key")), (200, 404));
}

#[test]
fn what_can_not_be_done_is_named() {
    let server = Server::start();
    for (name, value, param) in [
        ("input", json!(5), "input"),
        ("input", json!([]), "input"),
        ("input", json!([{"type": "item_reference", "id": "1"}]), "input[0]"),
        ("input", json!([{"type": "function_call_output", "call_id": "1"}]), "input[0].output"),
        ("input", json!([{"role": "user", "content": [{"type": "input_image"}]}]), "input[0].content[0]"),
        ("tools", json!([{"type": "web_search"}]), "tools[0].type"),
        ("tool_choice", json!({"type": "function", "name": "f"}), "tool_choice.name"),
        ("text", json!({"format": {"type": "xml"}}), "text.format.type"),
        ("text", json!({"verbosity": "low"}), "text.verbosity"),
        ("truncation", json!("sometimes"), "truncation"),
        ("return_token_ids", json!(true), "return_token_ids"),
        ("reasoning", json!({"effort": "low"}), "reasoning.effort"),
        ("include", json!(["message.output_text.logprobs"]), "include"),
        ("max_output_tokens", json!(0), "max_output_tokens"),
        ("n", json!(2), "n"),
        ("background", json!("x"), "background"),
        ("bogus", json!(1), "bogus"),
    ] {
        let mut body = greedy(json!({}));
        body[name] = value;
        server.refuses(PATH, &body, 400, param);
    }
}

#[test]
fn the_oldest_messages_are_left_out_where_that_is_asked_for() {
    let server = Server::start();
    let said = |number: usize| json!({"role": if number.is_multiple_of(2) { "user" } else { "assistant" }, "content": format!("{number} {}", "hen ".repeat(40))});
    let items: Vec<Value> = (0..21).map(said).collect();
    let mut body = greedy(json!({"input": items, "instructions": "Be brief.", "timings": true}));
    server.refuses(PATH, &body, 400, "input");
    body["truncation"] = json!("auto");
    let response = server.ask(PATH, &body);
    assert_eq!(response["truncation"], "auto");
    let left_out = response["truncated_messages"].as_u64().unwrap();
    assert!((1..21).contains(&left_out), "{response}");
    // No more is left out than must be, and the answer is that of the rest.
    let rest = |from: u64| greedy(json!({"input": items[from as usize..], "instructions": "Be brief."}));
    server.refuses(PATH, &rest(left_out - 1), 400, "input");
    let of_rest = server.ask(PATH, &rest(left_out));
    assert_eq!(response["output"][0]["content"], of_rest["output"][0]["content"]);
    assert_eq!(response["usage"]["input_tokens"], of_rest["usage"]["input_tokens"]);
    assert_eq!(response["timings"]["prompt_tokens"], response["usage"]["input_tokens"]);
    assert_eq!(of_rest.get("truncated_messages"), None);
}

#[test]
fn tools_are_strict_unless_they_say_otherwise() {
    let server = Server::with(|setup| setup.context = Some(1024));
    let tool = |name: &str, more: Value| {
        let schema = json!({"type": "object", "properties": {"x": {"type": "integer"}}, "additionalProperties": false});
        let mut tool = json!({"type": "function", "name": name, "parameters": schema});
        tool.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        tool
    };
    let not_held = json!({"parameters": {"type": "object", "properties": {"x": {"not": {}}}}});
    let tools = json!([tool("a", json!({})), tool("b", json!({"strict": false})), tool("c", not_held)]);
    let response = server.ask(PATH, &greedy(json!({"tools": tools})));
    let strict: Vec<&Value> =
        response["tools"].as_array().unwrap().iter().map(|tool| &tool["strict"]).collect();
    assert_eq!(strict, [&json!(true), &json!(false), &json!(false)]);
    // Who asks for what can't be held hears so.
    let asked = json!({"strict": true, "parameters": {"type": "object", "properties": {"x": {"not": {}}}}});
    server.refuses(
        PATH,
        &greedy(json!({"tools": [tool("c", asked)]})),
        400,
        "tools[0].parameters.properties.x.not",
    );
}

#[test]
fn more_calls_in_a_row_than_one_answer_may_have_are_refused_at_their_item() {
    let server = Server::with(|setup| setup.limits.tool_calls = 3);
    let call = json!({"type": "function_call", "call_id": "1", "name": "weather", "arguments": "{}"});
    let body = json!({"model": "toy", "input": vec![call; 4]});
    let message = server.refuses("/v1/responses", &body, 400, "input[3]");
    assert!(message.contains("3 calls follow each other"), "{message}");
}
