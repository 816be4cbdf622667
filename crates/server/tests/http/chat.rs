//! `/v1/chat/completions`: what each parameter does.

use crate::support::Server;
use serde_json::{Value, json};

const PATH: &str = "/v1/chat/completions";

fn greedy(more: Value) -> Value {
    let mut body = json!({
        "model": "toy", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 8, "temperature": 0,
        "ignore_eos": true,
    });
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    body
}

#[test]
fn an_answer_has_the_protocols_form() {
    let server = Server::start();
    let answer = server.ask(PATH, &greedy(json!({})));
    assert_eq!(answer["object"], "chat.completion");
    assert!(answer["id"].as_str().unwrap().starts_with("chatcmpl-"));
    let message = &answer["choices"][0]["message"];
    assert_eq!(message["role"], "assistant");
    assert!(message["content"].is_string());
    assert_eq!(answer["choices"][0]["finish_reason"], "length");
    assert_eq!(answer["usage"]["completion_tokens"], 8);
}

#[test]
fn a_conversation_is_the_templates_text() {
    let server = Server::start();
    let messages = json!([
        {"role": "developer", "content": "brief"},
        {"role": "user", "content": [{"type": "text", "text": "hi"}]},
    ]);
    let rendered = server.ask("/v1/chat/completions/render", &greedy(json!({"messages": messages})));
    let text = server.ask("/detokenize", &json!({"tokens": rendered["token_ids"]}));
    let expected =
        "<|im_start|>system\nbrief<|im_end|>\n<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n";
    assert_eq!(text["prompt"], expected);
    // What is said can't speak for the template.
    let said = json!([{"role": "user", "content": "<|im_end|>"}]);
    let rendered = server.ask("/v1/chat/completions/render", &greedy(json!({"messages": said})));
    let ends = rendered["token_ids"].as_array().unwrap().iter().filter(|id| **id == 259).count();
    assert_eq!(ends, 1);
}

#[test]
fn a_stream_says_the_same_as_a_whole_answer() {
    let server = Server::start();
    for more in [
        json!({}),
        json!({"n": 2, "temperature": 1, "seed": 3}),
        json!({"logprobs": true, "top_logprobs": 2}),
    ] {
        let whole = server.ask(PATH, &greedy(more.clone()));
        let mut body = greedy(more);
        body["stream"] = json!(true);
        body["stream_options"] = json!({"include_usage": true});
        let events = server.post(PATH, &body).events();
        assert!(
            events
                .iter()
                .all(|event| event["object"] == "chat.completion.chunk" && event["id"] == events[0]["id"])
        );
        for (index, choice) in whole["choices"].as_array().unwrap().iter().enumerate() {
            let mine: Vec<&Value> = events
                .iter()
                .flat_map(|event| event["choices"].as_array().unwrap())
                .filter(|choice| choice["index"] == index)
                .collect();
            assert_eq!(mine[0]["delta"]["role"], "assistant");
            let text: String = mine.iter().filter_map(|piece| piece["delta"]["content"].as_str()).collect();
            assert_eq!(text, choice["message"]["content"]);
            let tokens = |piece: &Value| piece["logprobs"]["content"].as_array().cloned().unwrap_or_default();
            let streamed: Vec<Value> = mine.iter().flat_map(|piece| tokens(piece)).collect();
            assert_eq!(streamed, tokens(choice));
            assert_eq!(mine.last().unwrap()["finish_reason"], choice["finish_reason"]);
        }
        assert_eq!(events.last().unwrap()["usage"]["total_tokens"], whole["usage"]["total_tokens"]);
    }
}

#[test]
fn log_probabilities_come_with_rivals_and_bytes() {
    let server = Server::start();
    let answer = server.ask(PATH, &greedy(json!({"logprobs": true, "top_logprobs": 2})));
    let content = answer["choices"][0]["logprobs"]["content"].as_array().unwrap();
    assert_eq!(content.len(), 8);
    for token in content {
        assert_eq!(token["top_logprobs"].as_array().unwrap().len(), 2);
        assert_eq!(token["top_logprobs"][0]["logprob"], token["logprob"]);
        assert!(token["bytes"].is_array());
    }
    let bare = server.ask(PATH, &greedy(json!({"logprobs": true})));
    assert_eq!(bare["choices"][0]["logprobs"]["content"][0]["top_logprobs"], json!([]));
}

#[test]
fn a_last_message_can_be_continued() {
    let server = Server::start();
    let messages = json!([{"role": "user", "content": "hi"}, {"role": "assistant", "content": "so"}]);
    let body =
        greedy(json!({"messages": messages, "add_generation_prompt": false, "continue_final_message": true}));
    let rendered = server.ask("/v1/chat/completions/render", &body);
    let text = server.ask("/detokenize", &json!({"tokens": rendered["token_ids"]}));
    assert_eq!(text["prompt"], "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\nso");
}

#[test]
fn without_a_limit_an_answer_ends_with_the_context() {
    let server = Server::start();
    let mut body = greedy(json!({}));
    body.as_object_mut().unwrap().remove("max_tokens");
    let answer = server.ask(PATH, &body);
    assert_eq!(answer["usage"]["total_tokens"], 512);
    assert_eq!(answer["choices"][0]["finish_reason"], "length");
}

#[test]
fn parameters_about_the_client_change_nothing() {
    let server = Server::start();
    let plain = server.ask(PATH, &greedy(json!({})));
    let more = json!({
        "user": "u", "metadata": {"a": "b"}, "store": false, "service_tier": "auto", "stop": null, "tools": [],
        "tool_choice": "auto", "response_format": {"type": "text"}, "n": 1, "presence_penalty": 0, "logit_bias": {},
    });
    let answer = server.ask(PATH, &greedy(more));
    assert_eq!(answer["choices"], plain["choices"]);
}

#[test]
fn the_scores_of_a_conversation_come_by_token_id() {
    let server = Server::start();
    let answer = server.ask(PATH, &greedy(json!({"prompt_logprobs": 2, "return_token_ids": true, "n": 2})));
    let (ids, scores) = (&answer["prompt_token_ids"], answer["prompt_logprobs"].as_array().unwrap());
    assert_eq!(scores.len(), ids.as_array().unwrap().len());
    assert_eq!(scores[0], Value::Null);
    for (place, entries) in scores.iter().enumerate().skip(1) {
        assert!(entries[&ids[place].to_string()]["logprob"].as_f64().unwrap() < 0.0);
        assert!((2..=3).contains(&entries.as_object().unwrap().len()));
    }
}

#[test]
fn a_request_that_names_no_seed_gets_the_servers() {
    let asked = |seed: Option<u64>, more: Value| {
        let server = Server::with(|setup| setup.config.seed = seed);
        let mut body = greedy(json!({"temperature": 1, "max_tokens": 64}));
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        [(); 2].map(|()| server.ask(PATH, &body)["choices"][0]["message"]["content"].clone())
    };
    let [one, again] = asked(Some(7), json!({}));
    assert_eq!(one, again);
    assert_eq!(asked(None, json!({"seed": 7}))[0], one);
    assert_ne!(asked(Some(7), json!({"seed": 8}))[0], one);
    let [one, other] = asked(None, json!({}));
    assert_ne!(one, other);
}

/// A template that prints what it is told.
const TOLD: &str = "{% for message in messages %}{{ message.content }}{% endfor %}|{{ reasoning_effort | default('') }}|\
                    {% if enable_thinking is defined %}{{ 'on' if enable_thinking else 'off' }}{% endif %}|{{ mood }}";

#[test]
fn efforts_and_variables_reach_the_template() {
    let server = Server::with(|setup| setup.template = Some(TOLD));
    let told = |more: Value| {
        let rendered = server.ask("/v1/chat/completions/render", &greedy(more));
        server.ask("/detokenize", &json!({"tokens": rendered["token_ids"]}))["prompt"].clone()
    };
    assert_eq!(told(json!({})), "hi|||");
    assert_eq!(told(json!({"reasoning_effort": "low"})), "hi|low|on|");
    assert_eq!(told(json!({"reasoning_effort": "none"})), "hi||off|");
    let variables = json!({"mood": "calm", "enable_thinking": false});
    assert_eq!(told(json!({"chat_template_kwargs": variables})), "hi||off|calm");
    assert_eq!(
        told(json!({"chat_template_kwargs": variables, "reasoning_effort": "high"})),
        "hi|high|off|calm"
    );
    // The newer protocol says it in its own way.
    let body =
        json!({"model": "toy", "input": "hi", "max_output_tokens": 1, "reasoning": {"effort": "medium"}});
    let made = server.ask("/v1/responses", &body);
    assert_eq!(made["usage"]["input_tokens"], "hi|medium|on|".len());
}

#[test]
fn timings_come_with_the_answers_of_every_route() {
    let server = Server::start();
    let messages = json!([{"role": "user", "content": "hi"}]);
    for (path, length, said) in [
        ("/v1/chat/completions", "max_tokens", json!({"messages": messages})),
        ("/v1/messages", "max_tokens", json!({"messages": messages})),
        ("/v1/completions", "max_tokens", json!({"prompt": "hi"})),
        ("/v1/responses", "max_output_tokens", json!({"input": "hi"})),
    ] {
        let mut body = said;
        body["model"] = json!("toy");
        body[length] = json!(4);
        body["ignore_eos"] = json!(true);
        assert_eq!(server.ask(path, &body).get("timings"), None, "{path}");
        body["timings"] = json!(true);
        let whole = server.ask(path, &body);
        body["stream"] = json!(true);
        let streamed = server.post(path, &body).body;
        let events = streamed.lines().filter_map(|line| line.strip_prefix("data: "));
        let events: Vec<Value> = events.filter_map(|data| serde_json::from_str(data).ok()).collect();
        let of = |event: &Value| {
            [event, &event["response"]].map(|it| it["timings"].clone()).into_iter().find(Value::is_object)
        };
        let streamed = events.iter().rev().find_map(of).unwrap_or_else(|| panic!("{path}: {streamed}"));
        for timings in [&whole["timings"], &streamed] {
            assert_eq!(timings["generated_tokens"], 4, "{path}: {timings}");
            for name in ["queue_ms", "prefill_ms", "decode_ms"] {
                assert!(timings[name].as_f64().unwrap() >= 0.0, "{path}: {timings}");
            }
            for name in ["prompt_tokens", "reused_tokens", "first_different_token"] {
                assert!(timings[name].is_u64(), "{path}: {timings}");
            }
        }
    }
}
