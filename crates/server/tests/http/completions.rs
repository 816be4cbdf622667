//! `/v1/completions`: what each parameter does.

use crate::support::Server;
use serde_json::{Value, json};

const PATH: &str = "/v1/completions";

/// A greedy request of eight tokens, with these fields more.
fn greedy(more: Value) -> Value {
    let mut body =
        json!({"model": "toy", "prompt": "the hen", "max_tokens": 8, "temperature": 0, "ignore_eos": true});
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    body
}

fn text(answer: &Value) -> &str {
    answer["choices"][0]["text"].as_str().unwrap()
}

#[test]
fn an_answer_has_the_protocols_form() {
    let server = Server::start();
    let answer = server.ask(PATH, &greedy(json!({})));
    assert_eq!(answer["object"], "text_completion");
    assert!(answer["id"].as_str().unwrap().starts_with("cmpl-"));
    assert_eq!(answer["model"], "toy");
    let choice = &answer["choices"][0];
    assert_eq!(choice["index"], 0);
    assert_eq!(choice["finish_reason"], "length");
    assert_eq!(choice["logprobs"], Value::Null);
    assert_eq!(answer["usage"]["completion_tokens"], 8);
    let total = answer["usage"]["prompt_tokens"].as_u64().unwrap() + 8;
    assert_eq!(answer["usage"]["total_tokens"], total);
}

#[test]
fn prompts_are_texts_ids_and_lists_of_both() {
    let server = Server::start();
    let alone = text(&server.ask(PATH, &greedy(json!({})))).to_owned();
    let ids = server.ask("/tokenize", &json!({"prompt": "the hen"}))["tokens"].clone();
    let other = text(&server.ask(PATH, &greedy(json!({"prompt": "a fox"})))).to_owned();
    let check = |prompt: Value, expected: &[&str]| {
        let answer = server.ask(PATH, &greedy(json!({"prompt": prompt})));
        let texts: Vec<&str> = answer["choices"]
            .as_array()
            .unwrap()
            .iter()
            .map(|choice| choice["text"].as_str().unwrap())
            .collect();
        assert_eq!(texts, expected, "{prompt}");
    };
    check(ids.clone(), &[&alone]);
    check(json!([ids, ids]), &[&alone, &alone]);
    check(json!(["the hen", "a fox"]), &[&alone, &other]);
}

#[test]
fn a_stream_says_the_same_as_a_whole_answer() {
    let server = Server::start();
    for more in [
        json!({}),
        json!({"n": 3, "temperature": 1, "seed": 7}),
        json!({"echo": true}),
        json!({"prompt": ["the hen", "a fox"], "n": 2, "temperature": 0.8, "seed": -1}),
        json!({"logprobs": 2}),
        json!({"return_token_ids": true}),
    ] {
        let whole = server.ask(PATH, &greedy(more.clone()));
        let mut body = greedy(more.clone());
        body["stream"] = json!(true);
        body["stream_options"] = json!({"include_usage": true});
        let events = server.post(PATH, &body).events();
        for (index, choice) in whole["choices"].as_array().unwrap().iter().enumerate() {
            let mine = events
                .iter()
                .flat_map(|event| event["choices"].as_array().unwrap())
                .filter(|choice| choice["index"] == index);
            let (mut text, mut tokens, mut logprobs, mut finish) =
                (String::new(), vec![], vec![], Value::Null);
            for piece in mine {
                text += piece["text"].as_str().unwrap();
                tokens.extend(piece["token_ids"].as_array().cloned().unwrap_or_default());
                logprobs.extend(piece["logprobs"]["text_offset"].as_array().cloned().unwrap_or_default());
                finish = piece["finish_reason"].clone();
            }
            assert_eq!(text, choice["text"], "{more}");
            assert_eq!(tokens, choice["token_ids"].as_array().cloned().unwrap_or_default());
            assert_eq!(logprobs, choice["logprobs"]["text_offset"].as_array().cloned().unwrap_or_default());
            assert_eq!(finish, choice["finish_reason"]);
        }
        let usage = &events.last().unwrap()["usage"];
        assert_eq!(usage["total_tokens"], whole["usage"]["total_tokens"], "{more}");
        assert!(events[..events.len() - 1].iter().all(|event| event["usage"].is_null()));
    }
}

#[test]
fn a_stop_string_is_cut_off_wherever_it_begins() {
    let server = Server::start();
    let whole = server.ask(PATH, &greedy(json!({"max_tokens": 24})));
    let letters: Vec<char> = text(&whole).chars().collect();
    let position = letters.len() / 2;
    let stop: String = letters[position..position + 3].iter().collect();
    let before = text(&whole).split(&stop).next().unwrap().to_owned();
    let stopped = server.ask(PATH, &greedy(json!({"max_tokens": 24, "stop": [stop, "never"]})));
    assert_eq!(text(&stopped), before);
    assert_eq!(stopped["choices"][0]["finish_reason"], "stop");
    assert_eq!(stopped["choices"][0]["stop_reason"], stop);
    let used = |answer: &Value| answer["usage"]["completion_tokens"].as_u64().unwrap();
    assert!(used(&stopped) <= used(&whole));
    let streamed =
        server.post(PATH, &greedy(json!({"max_tokens": 24, "stop": stop, "stream": true}))).events();
    let streamed: String =
        streamed.iter().map(|event| event["choices"][0]["text"].as_str().unwrap()).collect();
    assert_eq!(streamed, before);
}

#[test]
fn stop_tokens_end_an_answer_and_are_named() {
    let server = Server::start();
    let whole = server.ask(PATH, &greedy(json!({"return_token_ids": true})));
    let ids = whole["choices"][0]["token_ids"].as_array().unwrap().clone();
    let stop = ids[3].clone();
    let first = ids.iter().position(|id| *id == stop).unwrap();
    let stopped = server.ask(PATH, &greedy(json!({"return_token_ids": true, "stop_token_ids": [stop]})));
    assert_eq!(stopped["choices"][0]["token_ids"].as_array().unwrap().as_slice(), &ids[..first]);
    assert_eq!(stopped["choices"][0]["stop_reason"], stop);
}

#[test]
fn seeds_give_the_same_answer_and_other_answers_differ() {
    let server = Server::start();
    let drawn = |more: Value| {
        let mut body = greedy(json!({"temperature": 1.5, "max_tokens": 16}));
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        server.ask(PATH, &body)["choices"].clone()
    };
    assert_eq!(drawn(json!({"seed": 5})), drawn(json!({"seed": 5})));
    assert_ne!(drawn(json!({"seed": 5})), drawn(json!({"seed": 6})));
    let several = drawn(json!({"seed": 5, "n": 3}));
    assert_eq!(several[0]["text"], drawn(json!({"seed": 5}))[0]["text"]);
    assert_ne!(several[0]["text"], several[1]["text"]);
}

#[test]
fn biases_and_allowed_tokens_decide_what_is_drawn() {
    let server = Server::start();
    let ids = |more: Value| {
        let answer = server.ask(PATH, &greedy(more));
        answer["choices"][0]["token_ids"].clone()
    };
    let biased = ids(json!({"logit_bias": {"65": 100}, "return_token_ids": true}));
    assert_eq!(biased, json!([65, 65, 65, 65, 65, 65, 65, 65]));
    let only = ids(json!({"allowed_token_ids": [66], "return_token_ids": true, "max_tokens": 2}));
    assert_eq!(only, json!([66, 66]));
}

#[test]
fn log_probabilities_are_those_of_the_tokens() {
    let server = Server::start();
    let answer = server.ask(PATH, &greedy(json!({"logprobs": 3})));
    let found = &answer["choices"][0]["logprobs"];
    let tokens = found["tokens"].as_array().unwrap();
    assert_eq!(tokens.len(), 8);
    for (place, top) in found["top_logprobs"].as_array().unwrap().iter().enumerate() {
        let best =
            top.as_object().unwrap().values().map(|value| value.as_f64().unwrap()).fold(f64::MIN, f64::max);
        // Greedy tokens are the likeliest ones.
        assert_eq!(found["token_logprobs"][place].as_f64().unwrap(), best);
        assert!(best < 0.0);
    }
    assert_eq!(found["text_offset"][0], 0);
}

#[test]
fn an_echo_begins_with_the_prompt() {
    let server = Server::start();
    let plain = text(&server.ask(PATH, &greedy(json!({})))).to_owned();
    let echoed = server.ask(PATH, &greedy(json!({"echo": true})));
    assert_eq!(text(&echoed), format!("the hen{plain}"));
    let alone = server.ask(PATH, &greedy(json!({"echo": true, "max_tokens": 0})));
    assert_eq!(text(&alone), "the hen");
    assert_eq!(alone["usage"]["completion_tokens"], 0);
}

#[test]
fn the_scores_of_an_echo_are_those_that_the_answer_was_drawn_with() {
    let server = Server::start();
    let prompt = json!([1, 2, 3, 4]);
    let body = greedy(json!({"prompt": prompt, "logprobs": 1, "return_token_ids": true}));
    let made = server.ask(PATH, &body)["choices"][0].clone();
    let mut whole = prompt.as_array().unwrap().clone();
    whole.extend(made["token_ids"].as_array().unwrap().clone());
    // As prompts whose scores are asked for: the end of one, the whole of the other.
    let more = json!({"prompt": [prompt, whole], "echo": true, "logprobs": 1, "max_tokens": 0, "prompt_logprobs": 1});
    let echoed = server.ask(PATH, &greedy(more));
    assert_eq!(echoed["usage"]["completion_tokens"], 0);
    let found = &echoed["choices"][1]["logprobs"];
    let lists = ["tokens", "token_logprobs", "top_logprobs", "text_offset"];
    for name in lists {
        assert_eq!(found[name].as_array().unwrap().len(), 12, "{name}");
    }
    assert_eq!((&found["token_logprobs"][0], &found["top_logprobs"][0]), (&Value::Null, &Value::Null));
    assert_eq!(
        found["token_logprobs"].as_array().unwrap()[4..],
        made["logprobs"]["token_logprobs"].as_array().unwrap()[..]
    );
    assert_eq!(found["tokens"].as_array().unwrap()[4..], made["logprobs"]["tokens"].as_array().unwrap()[..]);
    let scores = echoed["choices"][1]["prompt_logprobs"].as_array().unwrap();
    assert_eq!((scores.len(), &scores[0]), (12, &Value::Null));
    for (place, id) in whole.iter().enumerate().skip(1) {
        let entry = &scores[place][&id.to_string()];
        assert_eq!(entry["logprob"], found["token_logprobs"][place]);
        // The answer is greedy, so that its tokens are the likeliest.
        assert!(place < 4 || entry["rank"] == 1, "{entry}");
    }
    // With an answer behind it.
    let more = json!({"prompt": prompt, "echo": true, "logprobs": 1});
    let echoed = server.ask(PATH, &greedy(more))["choices"][0]["logprobs"].clone();
    assert_eq!(echoed["token_logprobs"], found["token_logprobs"]);
    let refused = |more: Value, param: &str| server.refuses(PATH, &greedy(more), 400, param);
    refused(json!({"echo": true, "logprobs": 1, "stream": true}), "echo");
    refused(json!({"prompt_logprobs": 1, "stream": true}), "prompt_logprobs");
}

#[test]
fn a_known_prompt_is_counted_as_cached_unless_its_salt_differs() {
    let server = Server::start();
    let cached = |salt: &str| {
        let body = greedy(
            json!({"prompt": "hen ".repeat(50), "max_tokens": 2, "cache_salt": salt, "timings": true}),
        );
        let answer = server.ask(PATH, &body);
        assert_eq!(
            answer["timings"]["reused_tokens"],
            answer["usage"]["prompt_tokens_details"]["cached_tokens"]
        );
        answer["usage"]["prompt_tokens_details"]["cached_tokens"].as_u64().unwrap()
    };
    assert_eq!(cached("one"), 0);
    assert!(cached("one") >= 64);
    assert_eq!(cached("other"), 0);
}

#[test]
fn least_tokens_keep_an_answer_from_ending() {
    let server = Server::start();
    let whole = server.ask(PATH, &greedy(json!({"return_token_ids": true})));
    let first = whole["choices"][0]["token_ids"][0].clone();
    let body = greedy(json!({"stop_token_ids": [first], "min_tokens": 4, "return_token_ids": true}));
    assert!(server.ask(PATH, &body)["usage"]["completion_tokens"].as_u64().unwrap() >= 4);
}

#[test]
fn each_way_of_drawing_is_taken_by_its_name() {
    let server = Server::start();
    let drawn = |more: Value| {
        let mut body = greedy(json!({"temperature": 1.5, "seed": 5, "max_tokens": 24}));
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        text(&server.ask(PATH, &body)).to_owned()
    };
    let (likeliest, any) = (drawn(json!({"temperature": 0})), drawn(json!({})));
    assert_ne!(likeliest, any);
    // Filters that leave one token.
    for more in
        [json!({"top_k": 1}), json!({"top_p": 1e-6}), json!({"min_p": 1}), json!({"top_n_sigma": 1e-6})]
    {
        assert_eq!(drawn(more.clone()), likeliest, "{more}");
    }
    // What is written out of what is usual.
    let off = json!({
        "top_k": -1, "top_p": 1, "min_p": 0, "typical_p": 1, "xtc_probability": 0, "repetition_penalty": 1,
        "presence_penalty": 0, "frequency_penalty": 0,
    });
    assert_eq!(drawn(off), any);
    // What makes repeated or likely tokens rarer.
    for more in [
        json!({"repetition_penalty": 50}),
        json!({"presence_penalty": 2}),
        json!({"frequency_penalty": 2}),
        json!({"typical_p": 0.05}),
        json!({"xtc_probability": 1, "xtc_threshold": 0.001}),
    ] {
        assert_ne!(drawn(more.clone()), any, "{more}");
    }
}
