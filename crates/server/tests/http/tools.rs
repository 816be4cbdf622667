//! Calls of tools on every route, whole and streamed.

use crate::support::Server;
use serde_json::{Value, json};

const CHAT: &str = "/v1/chat/completions";
/// A template that knows tools in the form of Hermes.
const HERMES: &str = "{% if tools %}{% for tool in tools %}{{ tool | tojson }}{% endfor %}<tool_call>{% endif %}\
                      {% for message in messages %}{{ message.content }}{% endfor %}";

/// A server whose context has room for tools, letter by letter.
fn roomy(template: Option<&'static str>) -> Server {
    Server::with(|setup| {
        setup.template = template;
        setup.context = Some(2048);
    })
}

fn function(name: &str) -> Value {
    let properties =
        json!({"city": {"enum": ["Rome", "Oslo"]}, "days": {"type": "integer", "minimum": 1, "maximum": 9}});
    let schema = json!({
        "type": "object", "properties": properties, "required": ["city", "days"], "additionalProperties": false,
    });
    json!({"name": name, "description": "The weather of some days", "parameters": schema})
}

fn tools() -> Value {
    let tool = |name: &str| json!({"type": "function", "function": function(name)});
    json!([tool("weather"), tool("forecast")])
}

fn chat(more: Value) -> Value {
    let mut body = json!({
        "model": "toy", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 200, "temperature": 1, "seed": 1,
        "tools": tools(), "tool_choice": "required", "parallel_tool_calls": false,
    });
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    body
}

fn fits(arguments: &str) {
    let arguments: Value =
        serde_json::from_str(arguments).unwrap_or_else(|error| panic!("{error}: {arguments}"));
    assert!(arguments["city"] == "Rome" || arguments["city"] == "Oslo", "{arguments}");
    assert!((1..=9).contains(&arguments["days"].as_i64().unwrap()), "{arguments}");
}

#[test]
fn a_required_call_follows_its_schema_whatever_the_template() {
    for template in [None, Some(HERMES)] {
        let server = roomy(template);
        let answer = server.ask(CHAT, &chat(json!({})));
        let choice = &answer["choices"][0];
        assert_eq!(choice["finish_reason"], "tool_calls", "{answer}");
        assert_eq!(choice["message"]["content"], Value::Null);
        let calls = choice["message"]["tool_calls"].as_array().unwrap();
        assert_eq!(calls.len(), 1);
        assert!(calls[0]["id"].as_str().unwrap().starts_with("call_"));
        assert_eq!(calls[0]["type"], "function");
        fits(calls[0]["function"]["arguments"].as_str().unwrap());
        let named = json!({"type": "function", "function": {"name": "forecast"}});
        let answer = server.ask(CHAT, &chat(json!({"tool_choice": named, "n": 2})));
        for choice in answer["choices"].as_array().unwrap() {
            let call = &choice["message"]["tool_calls"][0]["function"];
            assert_eq!(call["name"], "forecast");
            fits(call["arguments"].as_str().unwrap());
        }
    }
}

#[test]
fn the_arguments_of_a_streamed_call_only_grow() {
    for template in [None, Some(HERMES)] {
        let server = roomy(template);
        let events = server.post(CHAT, &chat(json!({"stream": true}))).events();
        let deltas: Vec<&Value> = events
            .iter()
            .map(|event| &event["choices"][0]["delta"]["tool_calls"][0])
            .filter(|call| !call.is_null())
            .collect();
        assert!(deltas.len() > 3, "they come as they grow: {deltas:?}");
        assert_eq!(deltas[0]["function"]["arguments"], "");
        assert!(deltas[0]["id"].is_string() && deltas[0]["function"]["name"].is_string());
        assert!(deltas[1..].iter().all(|delta| delta["id"].is_null() && delta["function"]["name"].is_null()));
        let text: String =
            deltas.iter().filter_map(|delta| delta["function"]["arguments"].as_str()).collect();
        fits(&text);
        assert_eq!(events.last().unwrap()["choices"][0]["finish_reason"], "tool_calls");
        let whole = server.ask(CHAT, &chat(json!({})));
        assert_eq!(whole["choices"][0]["message"]["tool_calls"][0]["function"]["arguments"], text);
    }
}

#[test]
fn tools_are_shown_unless_they_are_not_to_be_called() {
    let text = |template: Option<&'static str>, more: Value| {
        let server = roomy(template);
        let rendered = server.ask("/v1/chat/completions/render", &chat(more));
        let text = server.ask("/detokenize", &json!({"tokens": rendered["token_ids"]}));
        text["prompt"].as_str().unwrap().to_owned()
    };
    for template in [None, Some(HERMES)] {
        assert!(text(template, json!({})).contains("The weather of some days"));
        assert!(!text(template, json!({"tool_choice": "none"})).contains("weather"));
    }
    let calls = json!([{"id": "1", "type": "function", "function": {"name": "weather", "arguments": "{}"}}]);
    let messages = json!([
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": null, "tool_calls": calls},
        {"role": "tool", "tool_call_id": "1", "content": "rain"},
    ]);
    let said = text(None, json!({"messages": messages}));
    assert!(said.contains("{\"name\":\"weather\",\"arguments\":{}}"), "{said}");
    assert!(said.contains("<|im_start|>user\nThe tool's result: rain"), "{said}");
}

#[test]
fn allowed_tools_and_formats_work_together() {
    let server = roomy(None);
    let reference = json!([{"type": "function", "function": {"name": "forecast"}}]);
    let choice = json!({"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": reference}});
    let answer = server.ask(CHAT, &chat(json!({"tool_choice": choice})));
    assert_eq!(answer["choices"][0]["message"]["tool_calls"][0]["function"]["name"], "forecast");
    for seed in 0..4 {
        let more = json!({"tool_choice": "auto", "guided_choice": ["yes"], "seed": seed});
        let message = server.ask(CHAT, &chat(more))["choices"][0]["message"].clone();
        match message["tool_calls"][0]["function"]["arguments"].as_str() {
            Some(arguments) => fits(arguments),
            None => assert_eq!(message["content"], "yes"),
        }
    }
}

#[test]
fn messages_hold_calls_as_blocks() {
    let server = roomy(None);
    let own = json!([{"name": "weather", "input_schema": function("weather")["parameters"]}]);
    let mut body = json!({
        "model": "toy", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 200, "temperature": 1, "seed": 1,
        "tools": own, "tool_choice": {"type": "any", "disable_parallel_tool_use": true},
    });
    let answer = server.ask("/v1/messages", &body);
    assert_eq!(answer["stop_reason"], "tool_use", "{answer}");
    let block = &answer["content"][0];
    assert_eq!((&block["type"], &block["name"]), (&json!("tool_use"), &json!("weather")));
    fits(&block["input"].to_string());
    body["stream"] = json!(true);
    let text = server.post("/v1/messages", &body).body;
    let events: Vec<Value> = text
        .lines()
        .filter_map(|line| line.strip_prefix("data: "))
        .map(|data| serde_json::from_str(data).unwrap())
        .collect();
    let kinds: Vec<&str> = events.iter().map(|event| event["type"].as_str().unwrap()).collect();
    assert_eq!(&kinds[..2], ["message_start", "content_block_start"]);
    assert_eq!(&kinds[kinds.len() - 3..], ["content_block_stop", "message_delta", "message_stop"]);
    let joined: String = events.iter().filter_map(|event| event["delta"]["partial_json"].as_str()).collect();
    assert_eq!(serde_json::from_str::<Value>(&joined).unwrap(), block["input"]);
}

#[test]
fn responses_hold_calls_as_items_and_go_on_from_them() {
    let server = roomy(None);
    let mut tool = function("weather");
    tool["type"] = json!("function");
    let mut body = json!({
        "model": "toy", "input": "hi", "max_output_tokens": 200, "temperature": 1, "seed": 1, "tools": [tool],
        "tool_choice": {"type": "function", "name": "weather"}, "parallel_tool_calls": false,
    });
    let first = server.ask("/v1/responses", &body);
    let item = &first["output"][0];
    assert_eq!((&item["type"], &item["name"]), (&json!("function_call"), &json!("weather")), "{first}");
    fits(item["arguments"].as_str().unwrap());
    let output = json!({"type": "function_call_output", "call_id": item["call_id"], "output": "rain"});
    let tools = body["tools"].clone();
    let next = json!({
        "model": "toy", "input": [output], "previous_response_id": first["id"], "tools": tools, "max_output_tokens": 4,
    });
    let second = server.ask("/v1/responses", &next);
    assert!(second["usage"]["input_tokens"].as_u64() > first["usage"]["input_tokens"].as_u64());
    let whole = json!([{"role": "user", "content": "hi"}, item, output]);
    let told = json!({"model": "toy", "input": whole, "tools": tools, "max_output_tokens": 4});
    assert_eq!(server.ask("/v1/responses", &told)["usage"]["input_tokens"], second["usage"]["input_tokens"]);
    body["stream"] = json!(true);
    let text = server.post("/v1/responses", &body).body;
    let events: Vec<Value> = text
        .lines()
        .filter_map(|line| line.strip_prefix("data: "))
        .map(|data| serde_json::from_str(data).unwrap())
        .collect();
    let joined: String = events
        .iter()
        .filter(|event| event["type"] == "response.function_call_arguments.delta")
        .filter_map(|event| event["delta"].as_str())
        .collect();
    let done = &events.last().unwrap()["response"]["output"][0];
    assert_eq!(done["arguments"], joined);
    assert_eq!(joined, item["arguments"].as_str().unwrap());
}

#[test]
fn faults_of_tools_are_told_by_their_place() {
    let server = roomy(None);
    let refused = |more: Value, param: &str| server.refuses(CHAT, &chat(more), 400, param);
    refused(json!({"tools": vec![json!({}); 100_000]}), "tools");
    refused(json!({"tools": [{"type": "web_search"}]}), "tools[0].type");
    refused(json!({"tools": []}), "tool_choice");
    refused(
        json!({"tool_choice": {"type": "function", "function": {"name": "absent"}}}),
        "tool_choice.function.name",
    );
    let mut tools = tools();
    tools[1]["function"]["parameters"]["properties"]["city"] = json!({"type": "strange"});
    refused(json!({"tools": tools}), "tools[1].function.parameters.properties.city");
}
