//! What holds answers to a form: `response_format` and the field's names for grammars, on every route.

use crate::support::Server;
use serde_json::{Value, json};

const CHAT: &str = "/v1/chat/completions";
/// A template whose answers begin inside of the reasoning.
const THINKS: &str = "{% for message in messages %}{{ message.content }}{% endfor %}<think>";

fn chat(more: Value) -> Value {
    let mut body = json!({
        "model": "toy", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 64, "temperature": 1, "seed": 1,
    });
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    body
}

fn schema() -> Value {
    let properties = json!({"a": {"enum": ["x", "y"]}, "b": {"type": "boolean"}});
    json!({"type": "object", "properties": properties, "required": ["a", "b"], "additionalProperties": false})
}

fn is_valid(text: &str) {
    let value: Value = serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"));
    assert!(value["a"] == "x" || value["a"] == "y", "{value}");
    assert!(value["b"].is_boolean(), "{value}");
}

#[test]
fn every_name_of_a_form_holds_a_chat_to_it() {
    let server = Server::start();
    let format =
        json!({"type": "json_schema", "json_schema": {"name": "n", "strict": true, "schema": schema()}});
    for more in [
        json!({"response_format": format}),
        json!({"guided_json": schema()}),
        json!({"structured_outputs": {"json": schema().to_string()}}),
        json!({"response_format": format, "n": 3, "stop": ["never"], "logprobs": true}),
    ] {
        let answer = server.ask(CHAT, &chat(more));
        for choice in answer["choices"].as_array().unwrap() {
            is_valid(choice["message"]["content"].as_str().unwrap());
            assert_eq!(choice["finish_reason"], "stop");
        }
    }
    let says = |more: Value| {
        let answer = server.ask(CHAT, &chat(more));
        answer["choices"][0]["message"]["content"].as_str().unwrap().to_owned()
    };
    assert!(["yes", "no"].contains(&says(json!({"guided_choice": ["yes", "no"]})).as_str()));
    assert_eq!(says(json!({"structured_outputs": {"regex": "a{3}b"}})), "aaab");
    assert_eq!(says(json!({"guided_grammar": "start: \"q\" \"r\""})), "qr");
    let object = says(json!({"response_format": {"type": "json_object"}, "max_tokens": 200}));
    assert!(object.starts_with('{'), "{object}");
}

#[test]
fn a_stream_is_held_too() {
    let server = Server::start();
    let events = server.post(CHAT, &chat(json!({"guided_json": schema(), "stream": true}))).events();
    let text: String =
        events.iter().filter_map(|event| event["choices"][0]["delta"]["content"].as_str()).collect();
    is_valid(&text);
}

#[test]
fn other_routes_hold_answers_too() {
    let server = Server::start();
    let body = json!({"model": "toy", "prompt": ["a", "b"], "max_tokens": 64, "guided_json": schema()});
    for choice in server.ask("/v1/completions", &body)["choices"].as_array().unwrap() {
        is_valid(choice["text"].as_str().unwrap());
    }
    let format = json!({"type": "json_schema", "name": "n", "schema": schema(), "strict": true});
    let body = json!({"model": "toy", "input": "hi", "max_output_tokens": 64, "text": {"format": format}});
    let response = server.ask("/v1/responses", &body);
    is_valid(response["output"][0]["content"][0]["text"].as_str().unwrap());
    assert_eq!(response["text"]["format"]["name"], "n");
    let messages = json!([{"role": "user", "content": "hi"}]);
    let body = json!({"model": "toy", "messages": messages, "max_tokens": 64, "guided_json": schema()});
    is_valid(server.ask("/v1/messages", &body)["content"][0]["text"].as_str().unwrap());
}

#[test]
fn an_answer_that_is_cut_says_so() {
    let server = Server::start();
    let answer = server.ask(CHAT, &chat(json!({"guided_regex": "a{50}", "max_tokens": 5})));
    assert_eq!(answer["choices"][0]["message"]["content"], "aaaaa");
    assert_eq!(answer["choices"][0]["finish_reason"], "length");
}

#[test]
fn a_form_that_the_allowed_tokens_can_not_write_is_the_requests_matter() {
    let server = Server::start();
    let answer = server.post(CHAT, &chat(json!({"guided_choice": ["yes"], "allowed_token_ids": [0]})));
    let message = answer.is_error(400, None);
    assert!(message.contains("after 0 tokens"), "{message}");
    assert_eq!(answer.json()["error"]["code"], "unsupported_by_model");
}

#[test]
fn faults_of_schemas_and_expressions_are_told_by_their_place() {
    let server = Server::start();
    let refused = |more: Value, param: &str| server.refuses(CHAT, &chat(more), 400, param);
    let format = |schema: Value| json!({"response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": schema}}});
    let at = |rest: &str| format!("response_format.json_schema.schema{rest}");
    refused(format(json!({"properties": {"a": {"type": "strange"}}})), &at(".properties.a"));
    refused(format(json!({"properties": {"a": {"pattern": "("}}})), &at(".properties.a.pattern"));
    refused(json!({"guided_regex": "("}), "guided_regex");
    refused(json!({"guided_regex": "(".repeat(5000)}), "guided_regex");
    refused(json!({"guided_grammar": "start: missing"}), "guided_grammar");
    refused(json!({"guided_choice": []}), "guided_choice");
    refused(json!({"guided_json": "{"}), "guided_json");
    refused(json!({"thinking_token_budget": 5}), "thinking_token_budget");
    // An expression that backtracking engines never end on is none to this one.
    let answer = server.ask(CHAT, &chat(json!({"guided_regex": "^(a+)+$", "max_tokens": 4})));
    assert!(answer["choices"][0]["message"]["content"].as_str().unwrap().chars().all(|letter| letter == 'a'));
}

#[test]
fn reasoning_stands_apart_is_bounded_and_goes_before_a_form() {
    let server = Server::with(|setup| setup.template = Some(THINKS));
    let budgeted = chat(json!({"thinking_token_budget": 3, "guided_choice": ["yes", "no"]}));
    let answer = server.ask(CHAT, &budgeted);
    let message = &answer["choices"][0]["message"];
    assert!(["yes", "no"].contains(&message["content"].as_str().unwrap()), "{answer}");
    let tokens = answer["usage"]["completion_tokens_details"]["reasoning_tokens"].as_u64().unwrap();
    // Three of thought, the rest of a character, and the mark, letter by letter.
    let bounded = 3 + "</think>".len() as u64;
    assert!((bounded..bounded + 4).contains(&tokens), "{tokens}");
    let mut streamed = budgeted.clone();
    streamed["stream"] = json!(true);
    let events = server.post(CHAT, &streamed).events();
    let joined = |name: &str| -> String {
        events.iter().filter_map(|event| event["choices"][0]["delta"][name].as_str()).collect()
    };
    assert_eq!(joined("content"), message["content"].as_str().unwrap());
    assert_eq!(joined("reasoning_content"), message["reasoning_content"].as_str().unwrap_or_default());
    let messages = json!([{"role": "user", "content": "hi"}]);
    let thinking = json!({"type": "enabled", "budget_tokens": 3});
    let body = json!({
        "model": "toy", "messages": messages, "max_tokens": 64, "thinking": thinking, "guided_choice": ["yes"],
        "temperature": 1, "seed": 3,
    });
    let answer = server.ask("/v1/messages", &body);
    let blocks = answer["content"].as_array().unwrap();
    assert_eq!(blocks.last().unwrap(), &json!({"type": "text", "text": "yes"}));
    assert!(blocks.len() == 1 || blocks[0]["type"] == "thinking");
    let body = json!({
        "model": "toy", "input": "hi", "max_output_tokens": 64, "thinking_token_budget": 3, "guided_choice": ["yes"],
        "temperature": 1, "seed": 3,
    });
    let response = server.ask("/v1/responses", &body);
    let output = response["output"].as_array().unwrap();
    assert_eq!(output.last().unwrap()["content"][0]["text"], "yes");
    assert!(output.len() == 1 || output[0]["type"] == "reasoning");
    // Not bounded, the toy thinks until it is cut.
    let answer = server.ask(CHAT, &chat(json!({"max_tokens": 8, "ignore_eos": true})));
    assert_eq!(answer["choices"][0]["message"]["content"], "");
    assert_eq!(answer["usage"]["completion_tokens_details"]["reasoning_tokens"], 8);
}

#[test]
fn stop_strings_are_looked_for_in_content_alone() {
    let server = Server::with(|setup| setup.template = Some(THINKS));
    let asked = |stop: Value| {
        chat(json!({"thinking_token_budget": 20, "guided_choice": ["yes"], "max_tokens": 96, "stop": stop}))
    };
    let thought = server.ask(CHAT, &asked(json!([])))["choices"][0]["message"]["reasoning_content"].clone();
    let letter = thought.as_str().unwrap().chars().find(|letter| !"yes".contains(*letter));
    let letter = letter.expect("twenty tokens are more than three letters").to_string();
    for (stop, content) in [(json!([letter]), "yes"), (json!([letter, "es"]), "y")] {
        let answer = server.ask(CHAT, &asked(stop.clone()));
        assert_eq!(answer["choices"][0]["message"]["reasoning_content"], thought);
        assert_eq!(answer["choices"][0]["message"]["content"], content);
        assert_eq!(answer["choices"][0]["finish_reason"], "stop");
        let mut streamed = asked(stop);
        streamed["stream"] = json!(true);
        let events = server.post(CHAT, &streamed).events();
        let deltas = events.iter().filter_map(|event| event["choices"][0]["delta"]["content"].as_str());
        assert_eq!(deltas.collect::<String>(), content);
    }
}
