//! Each format of calls and of reasoning, from the template that shows it to the answer, whole and streamed.
//!
//! A required call is held to the model's format, so that a toy writes what a model of that family does.

use crate::support::Server;
use gannet_text::calls::CallFormat;
use serde_json::{Value, json};

const CHAT: &str = "/v1/chat/completions";

/// A template that shows a format: what it writes, and what its calls have in them.
const FORMATS: [(CallFormat, &str, &str); 8] = [
    (CallFormat::Harmony, "<|channel|>", "<|channel|>commentary to=functions.weather"),
    (CallFormat::DeepSeek, "<｜tool▁calls▁begin｜>", "<｜tool▁call▁begin｜>"),
    (CallFormat::Mistral, "[TOOL_CALLS]", "[TOOL_CALLS]"),
    (CallFormat::Pythonic, "[func_name1(params_name1=", "[weather("),
    (CallFormat::GemmaToolCode, "```tool_code", "```tool_code\nweather("),
    (CallFormat::QwenCoder, "<function=", "<function=weather>"),
    (CallFormat::Hermes, "<tool_call>", "<tool_call>"),
    (CallFormat::Llama3Json, "<|python_tag|>", "\"parameters\""),
];

/// A server whose model's template shows this.
fn shows(mark: &str) -> Server {
    let mark = mark.replace('"', "\\\"").replace('\n', "\\n");
    let template = format!(
        "{{% if tools %}}{{{{ tools | tojson }}}}{{% endif %}}{{% set shown = \"{mark}\" %}}\
         {{% for message in messages %}}{{{{ message.content }}}}{{% endfor %}}"
    );
    Server::with(|setup| {
        setup.template = Some(template.leak());
        setup.context = Some(2048);
    })
}

fn body(more: Value) -> Value {
    let properties =
        json!({"city": {"enum": ["Rome", "Oslo"]}, "days": {"type": "integer", "minimum": 1, "maximum": 9}});
    let schema = json!({
        "type": "object", "properties": properties, "required": ["city", "days"], "additionalProperties": false,
    });
    let tool = json!({"type": "function", "function": {"name": "weather", "parameters": schema}});
    let mut body = json!({
        "model": "toy", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 400, "temperature": 1, "seed": 1,
        "tools": [tool], "tool_choice": "required", "parallel_tool_calls": false,
    });
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    body
}

/// The parts of a stream's deltas, joined by name.
fn joined(events: &[Value], part: impl Fn(&Value) -> Option<&str>) -> String {
    events.iter().filter_map(|event| part(&event["choices"][0]["delta"])).collect()
}

#[test]
fn calls_of_each_format_are_read_whole_and_streamed() {
    for (format, mark, written) in FORMATS {
        assert_eq!(CallFormat::of_template(mark), format);
        let server = shows(mark);
        let answer = server.ask(CHAT, &body(json!({"return_token_ids": true})));
        let choice = &answer["choices"][0];
        assert_eq!(choice["finish_reason"], "tool_calls", "{format:?}: {answer}");
        assert_eq!(choice["message"]["content"], Value::Null, "{format:?}: nothing of the format is content");
        let text = server.ask("/detokenize", &json!({"tokens": choice["token_ids"]}))["prompt"].clone();
        assert!(text.as_str().unwrap().contains(written), "{format:?}: {text}");
        let calls = choice["message"]["tool_calls"].as_array().unwrap();
        assert_eq!((calls.len(), &calls[0]["function"]["name"]), (1, &json!("weather")), "{format:?}");
        let told = calls[0]["function"]["arguments"].as_str().unwrap();
        let arguments: Value =
            serde_json::from_str(told).unwrap_or_else(|error| panic!("{format:?}: {error}: {told}"));
        assert!(["Rome", "Oslo"].contains(&arguments["city"].as_str().unwrap()), "{format:?}: {told}");
        assert!((1..=9).contains(&arguments["days"].as_i64().unwrap()), "{format:?}: {told}");

        let events = server.post(CHAT, &body(json!({"stream": true}))).events();
        let streamed = joined(&events, |delta| delta["tool_calls"][0]["function"]["arguments"].as_str());
        assert_eq!(streamed, told, "{format:?}");
        let argued = |event: &&Value| {
            let told = &event["choices"][0]["delta"]["tool_calls"][0]["function"]["arguments"];
            told.as_str().is_some_and(|text| !text.is_empty())
        };
        let pieces = events.iter().filter(argued).count();
        assert!(pieces > 1, "{format:?}: arguments come as they are made, not at the end");
        assert_eq!(joined(&events, |delta| delta["content"].as_str()), "", "{format:?}");
        assert_eq!(events.last().unwrap()["choices"][0]["finish_reason"], "tool_calls", "{format:?}");
    }
}

#[test]
fn reasoning_of_each_format_is_told_apart_whole_and_streamed() {
    for (opens, closes) in
        [("<think>", "</think>"), ("[THINK]", "[/THINK]"), ("<seed:think>", "</seed:think>")]
    {
        let template = format!(
            "{{% for message in messages %}}{{{{ message.content }}}}{{% endfor %}}{opens}{{# {closes} #}}"
        );
        let server = Server::with(|setup| {
            setup.template = Some(template.leak());
            setup.context = Some(2048);
        });
        let wanted = json!({
            "model": "toy", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 200, "temperature": 1, "seed": 1,
            "thinking_token_budget": 6, "guided_choice": ["yes"],
        });
        let answer = server.ask(CHAT, &wanted);
        let message = &answer["choices"][0]["message"];
        assert_eq!(message["content"], "yes", "{opens}: {answer}");
        let thought = message["reasoning_content"].as_str().unwrap_or_default();
        assert!(!thought.is_empty() && !thought.contains(closes), "{opens}: {answer}");
        assert!(
            answer["usage"]["completion_tokens_details"]["reasoning_tokens"].as_u64() >= Some(6),
            "{answer}"
        );

        let mut streamed = wanted.clone();
        streamed["stream"] = json!(true);
        let events = server.post(CHAT, &streamed).events();
        assert_eq!(joined(&events, |delta| delta["reasoning_content"].as_str()), thought, "{opens}");
        assert_eq!(joined(&events, |delta| delta["content"].as_str()), "yes", "{opens}");
    }
}
