//! Answers to content, reasoning and calls: each format as its models write it, cut anywhere, broken anywhere.

use gannet_text::calls::{AnswerEvent, AnswerParser, CallFormat, ReasoningFormat, Tool};
use proptest::prelude::*;
use serde_json::{Value, json};

fn tools() -> Vec<Tool> {
    let parameters = json!({"type": "object", "properties": {
        "city": {"type": "string"}, "days": {"type": "integer"}, "code": {"type": "string"}, "flags": {"type": "array"}}});
    let tool = |name: &str| json!({"type": "function", "function": {"name": name, "parameters": parameters}});
    ["weather", "run.code", "f"].iter().map(|name| Tool::from_json(&tool(name)).unwrap()).collect()
}

fn parser(format: CallFormat) -> AnswerParser {
    let is_mistral = format == CallFormat::Mistral;
    let reasoning = if is_mistral { ReasoningFormat::ThinkBrackets } else { ReasoningFormat::Think };
    AnswerParser::new(format, Some(reasoning), tools())
}

/// Events with neighbours of one kind joined.
fn joined(events: Vec<AnswerEvent>) -> Vec<AnswerEvent> {
    let mut list: Vec<AnswerEvent> = Vec::new();
    for event in events {
        match (list.last_mut(), &event) {
            (Some(AnswerEvent::Content(before)), AnswerEvent::Content(text))
            | (Some(AnswerEvent::Reasoning(before)), AnswerEvent::Reasoning(text)) => before.push_str(text),
            (
                Some(AnswerEvent::CallArguments { index: a, json: before }),
                AnswerEvent::CallArguments { index: b, json },
            ) if *a == *b => before.push_str(json),
            _ => list.push(event),
        }
    }
    list
}

fn run(mut parser: AnswerParser, pieces: &[&str]) -> Vec<AnswerEvent> {
    let mut events: Vec<AnswerEvent> = pieces.iter().flat_map(|piece| parser.push(piece)).collect();
    events.extend(parser.finish());
    joined(events)
}

/// One line an event: `content|...`, `reasoning|...`, `call NAME|arguments`, with `...` where the call is cut.
fn written(events: &[AnswerEvent]) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for event in events {
        match event {
            AnswerEvent::Content(text) => lines.push(format!("content|{text}")),
            AnswerEvent::Reasoning(text) => lines.push(format!("reasoning|{text}")),
            AnswerEvent::CallStart { name, .. } => lines.push(format!("call {name}|...")),
            AnswerEvent::CallArguments { json, .. } => {
                let line = lines.last_mut().expect("a call has begun");
                line.truncate(line.len() - 3);
                line.push_str(json);
                line.push_str("...");
            }
            AnswerEvent::CallEnd { .. } => {
                let line = lines.last_mut().expect("a call has begun");
                line.truncate(line.len() - 3);
            }
        }
    }
    lines
}

const CASES: &[(CallFormat, &str, &[&str])] = &[
    (CallFormat::Hermes, " Plain text\n", &["content| Plain text\n"]),
    (CallFormat::Hermes, "a < b <tool_x> [TOOL_CALLS]", &["content|a < b <tool_x> [TOOL_CALLS]"]),
    (
        CallFormat::Hermes,
        "<think>\nLet me see.\n</think>\n\nSure.\n<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"Köln 🦀\", \"days\": 2}}\n</tool_call>\n<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call>",
        &[
            "reasoning|Let me see.",
            "content|Sure.",
            "call weather|{\"city\": \"Köln 🦀\", \"days\": 2}",
            "call f|{}",
        ],
    ),
    (
        CallFormat::Hermes,
        "<tool_call>{\"arguments\": {\"a\": \"}</tool_call>\"}, \"name\": \"f\"}</tool_call>done",
        &["call f|{\"a\": \"}</tool_call>\"}", "content|done"],
    ),
    (CallFormat::Hermes, "<tool_call>{\"name\": \"f\"}</tool_call>", &["call f|{}"]),
    (
        CallFormat::Hermes,
        "<tool_call>{\"name\": \"f\", \"arguments\": \"{\\\"a\\\": 1}\"}</tool_call>",
        &["call f|{\"a\": 1}"],
    ),
    (
        CallFormat::Hermes,
        "<tool_call>{\"type\": \"function\", \"function\": {\"name\": \"f\", \"parameters\": [1]}}</tool_call>",
        &["call f|[1]"],
    ),
    // A brace is missing.
    (
        CallFormat::Hermes,
        "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": 1}</tool_call>",
        &["call f|{\"a\": 1}"],
    ),
    // No call: it becomes content, mark and all.
    (CallFormat::Hermes, "x <tool_call>nothing</tool_call>", &["content|x <tool_call>nothing</tool_call>"]),
    (
        CallFormat::Hermes,
        "x <tool_call>{\"a\": 1}</tool_call>",
        &["content|x <tool_call>{\"a\": 1}</tool_call>"],
    ),
    // Cut by the limit.
    (
        CallFormat::Hermes,
        "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": [1, \"x",
        &["call f|{\"a\": [1, \"x..."],
    ),
    (CallFormat::Hermes, "<tool_call>{\"na", &["content|<tool_call>{\"na"]),
    (CallFormat::Hermes, "<think>never ends <tool_call>", &["reasoning|never ends <tool_call>"]),
    (
        CallFormat::QwenCoder,
        "Ok.\n<tool_call>\n<function=run.code>\n<parameter=code>\nif a < b:\n    print(\"<x>\")\n\n</parameter>\n<parameter=days>\n3\n</parameter>\n<parameter=other>\nTrue story\n</parameter>\n</function>\n</tool_call>",
        &[
            "content|Ok.",
            "call run.code|{\"code\": \"if a < b:\\n    print(\\\"<x>\\\")\\n\", \"days\": 3, \"other\": \"True story\"}",
        ],
    ),
    (CallFormat::QwenCoder, "<function=f>\n</function>", &["call f|{}"]),
    // The end of a parameter is forgotten.
    (
        CallFormat::QwenCoder,
        "<function=f><parameter=days>1<parameter=city>Rome</function></tool_call>",
        &["call f|{\"days\": 1, \"city\": \"Rome\"}"],
    ),
    (CallFormat::QwenCoder, "<function=f><parameter=city>\nRo", &["call f|{\"city\": \"Ro..."]),
    (
        CallFormat::QwenCoder,
        "<tool_call>{\"name\": 1}</tool_call>",
        &["content|<tool_call>{\"name\": 1}</tool_call>"],
    ),
    (
        CallFormat::Glm,
        "<think></think>\n<tool_call>weather\n<arg_key>city</arg_key>\n<arg_value>Bern</arg_value>\n<arg_key>days</arg_key>\n<arg_value>2</arg_value>\n</tool_call>\n<tool_call>f\n</tool_call>",
        &["call weather|{\"city\": \"Bern\", \"days\": 2}", "call f|{}"],
    ),
    (CallFormat::Llama3Json, "{\"name\": \"f\", \"parameters\": {\"a\": 1}}", &["call f|{\"a\": 1}"]),
    (
        CallFormat::Llama3Json,
        "<|python_tag|>{\"name\": \"f\", \"parameters\": {}}; {\"name\": \"weather\", \"parameters\": {\"days\": 1}}",
        &["call f|{}", "call weather|{\"days\": 1}"],
    ),
    (CallFormat::Llama3Json, "{\"name\": \"Ann\", \"age\": 3}", &["content|{\"name\": \"Ann\", \"age\": 3}"]),
    (
        CallFormat::Llama3Json,
        "See {\"name\": \"f\", \"parameters\": {}}",
        &["content|See {\"name\": \"f\", \"parameters\": {}}"],
    ),
    (CallFormat::Llama3Json, "<|python_tag|>print(1)", &["content|<|python_tag|>print(1)"]),
    (CallFormat::GenericJson, "[{\"name\": \"f\", \"arguments\": {\"a\": 1}}]", &["call f|{\"a\": 1}"]),
    (CallFormat::GenericJson, "[1, 2]", &["content|[1, 2]"]),
    (
        CallFormat::Pythonic,
        "[weather(city=\"St. John's, \\\"NL\\\"\", days=-2), f(flags=[True, None, {'a': 1.5}], code='x' 'y'), f()]",
        &[
            "call weather|{\"city\": \"St. John's, \\\"NL\\\"\", \"days\": -2}",
            "call f|{\"flags\": [true,null,{\"a\":1.5}], \"code\": \"xy\"}",
            "call f|{}",
        ],
    ),
    (CallFormat::Pythonic, "[weather(\"Oslo\", 3)]", &["call weather|{\"city\": \"Oslo\", \"days\": 3}"]),
    (CallFormat::Pythonic, "[f(code=a + b)]", &["call f|{\"code\": \"a + b\"}"]),
    (CallFormat::Pythonic, "[unknown(1)] is a list", &["content|[unknown(1)] is a list"]),
    (CallFormat::Pythonic, "[f(days=1, city=\"Ro", &["call f|{\"days\": 1, city=\"Ro..."]),
    (
        CallFormat::GemmaToolCode,
        "Sure:\n```tool_code\nprint(default_api.weather(city=\"Rome\"))\nf(days=1)\n```\n",
        &["content|Sure:", "call weather|{\"city\": \"Rome\"}", "call f|{\"days\": 1}"],
    ),
    (CallFormat::GemmaToolCode, "```python\nf()\n```", &["content|```python\nf()\n```"]),
    (
        CallFormat::Mistral,
        "[THINK]Hm.[/THINK][TOOL_CALLS][{\"name\": \"f\", \"arguments\": {\"a\": [1]}, \"id\": \"abcdefghi\"}, {\"name\": \"weather\", \"arguments\": {}}]",
        &["reasoning|Hm.", "call f|{\"a\": [1]}", "call weather|{}"],
    ),
    (
        CallFormat::Mistral,
        "Ok[TOOL_CALLS]f[ARGS]{\"a\": \"]\"}[TOOL_CALLS]weather[CALL_ID]123456789[ARGS]{\"days\": 1}",
        &["content|Ok", "call f|{\"a\": \"]\"}", "call weather|{\"days\": 1}"],
    ),
    (CallFormat::Mistral, "[TOOL_CALLS]f{\"a\": 1}", &["call f|{\"a\": 1}"]),
    (CallFormat::Mistral, "[TOOL_CALLS] two words{", &["content|[TOOL_CALLS] two words{"]),
    (
        CallFormat::DeepSeek,
        "Hi<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>weather\n```json\n{\"city\": \"Bonn\"}\n```<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n```json\n{}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
        &["content|Hi", "call weather|{\"city\": \"Bonn\"}", "call f|{}"],
    ),
    (
        CallFormat::DeepSeek,
        "</think>Hi<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>{\"a\": {\"b\": 1}}<｜tool▁call▁end｜><｜tool▁call▁begin｜>weather<｜tool▁sep｜>{\"days\": 2}<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
        &["content|</think>Hi", "call f|{\"a\": {\"b\": 1}}", "call weather|{\"days\": 2}"],
    ),
    (CallFormat::DeepSeek, "<｜tool▁calls▁begin｜>oops", &["content|<｜tool▁calls▁begin｜>oops"]),
    (
        CallFormat::Harmony,
        "<|channel|>analysis<|message|>Think.<|end|><|start|>assistant<|channel|>commentary to=functions.weather <|constrain|>json<|message|>{\"city\": \"Rome\"}<|call|>",
        &["reasoning|Think.", "call weather|{\"city\": \"Rome\"}"],
    ),
    (
        CallFormat::Harmony,
        "<|channel|>analysis<|message|>T<|end|><|start|>assistant<|channel|>final<|message|>Hello < x",
        &["reasoning|T", "content|Hello < x"],
    ),
    // The end token is not part of the text.
    (
        CallFormat::Harmony,
        "<|start|>assistant to=functions.f<|channel|>commentary json<|message|>{\"a\": \"}\"}",
        &["call f|{\"a\": \"}\"}"],
    ),
    (
        CallFormat::Harmony,
        "<|channel|>commentary to=functions.f <|message|>{\"a\": ",
        &["call f|{\"a\": ..."],
    ),
    (CallFormat::Harmony, "Just text.", &["content|Just text."]),
];

#[test]
fn each_format_is_read_as_its_models_write_it() {
    for (format, text, expected) in CASES {
        assert_eq!(written(&run(parser(*format), &[text])), *expected, "{format:?}: {text}");
    }
}

#[test]
fn every_cut_gives_the_same_events() {
    for (format, text, _) in CASES {
        let whole = run(parser(*format), &[text]);
        for (cut, _) in text.char_indices() {
            let (a, b) = text.split_at(cut);
            assert_eq!(run(parser(*format), &[a, b]), whole, "{format:?} at {cut}: {text}");
        }
        let letters: Vec<String> = text.chars().map(String::from).collect();
        let letters: Vec<&str> = letters.iter().map(String::as_str).collect();
        assert_eq!(run(parser(*format), &letters), whole, "{format:?} by letters: {text}");
    }
}

#[test]
fn whole_calls_have_arguments_that_are_json() {
    for (format, text, _) in CASES {
        for line in written(&run(parser(*format), &[text])) {
            if let Some((_, arguments)) = line.strip_prefix("call ").and_then(|line| line.split_once('|'))
                && !arguments.ends_with("...")
            {
                serde_json::from_str::<Value>(arguments)
                    .unwrap_or_else(|error| panic!("{error}: {arguments}"));
            }
        }
    }
}

#[test]
fn an_answer_may_begin_inside_of_the_reasoning() {
    let parser = parser(CallFormat::Hermes).inside_reasoning();
    assert_eq!(written(&run(parser, &["hm\n</think>\n\nYes."])), ["reasoning|hm", "content|Yes."]);
    assert!(ReasoningFormat::Think.is_opened_by("<|im_start|>assistant\n<think>\n"));
    assert!(!ReasoningFormat::Think.is_opened_by("<|im_start|>assistant\n<think>\n\n</think>\n\n"));
}

#[test]
fn without_tools_a_call_is_content() {
    let text = "<tool_call>{\"name\": \"f\"}</tool_call>";
    let parser = AnswerParser::new(CallFormat::Hermes, None, Vec::new());
    assert_eq!(written(&run(parser, &[text])), [format!("content|{text}")]);
}

#[test]
fn names_lead_to_formats() {
    for format in CallFormat::ALL {
        assert_eq!(CallFormat::of_name(format.name()), Some(format));
    }
    for format in ReasoningFormat::ALL {
        assert_eq!(ReasoningFormat::of_name(format.name()), Some(format));
    }
    assert_eq!(CallFormat::of_name("x"), None);
}

/// Letters and white space, without order: what no parser may lose or invent, where nothing was understood as a call.
fn letters(events: &[AnswerEvent]) -> String {
    let text = |event: &AnswerEvent| match event {
        AnswerEvent::Content(text) | AnswerEvent::Reasoning(text) => text.clone(),
        AnswerEvent::CallStart { .. } | AnswerEvent::CallArguments { .. } | AnswerEvent::CallEnd { .. } => {
            String::new()
        }
    };
    events.iter().map(text).collect::<String>().split_whitespace().collect()
}

/// Fragments of all formats in any order.
fn fragments() -> impl Strategy<Value = String> {
    let mut parts: Vec<String> =
        CallFormat::ALL.iter().flat_map(|format| format.marks()).map(|mark| (*mark).to_owned()).collect();
    let more = [
        "{\"name\": \"f\"",
        ", \"arguments\": {",
        "\"a\": 1",
        "}",
        "]",
        "[",
        "f(",
        "city=\"x\"",
        ")",
        "<function=f>",
        "<parameter=city>",
        "</parameter>",
        "</function>",
        "<think>",
        "</think>",
        "```tool_code\n",
        "```",
        "print(",
        "\\",
        "\"",
        "é",
        " ",
        "\n",
    ];
    parts.extend(more.iter().map(|part| (*part).to_owned()));
    prop::collection::vec(prop::sample::select(parts), 0..24).prop_map(|parts| parts.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]
    #[test]
    fn any_text_in_any_pieces_gives_the_same_events(
        text in fragments(), number in 0..CallFormat::ALL.len(), cuts in prop::collection::vec(0usize..200, 0..4)
    ) {
        let format = CallFormat::ALL[number];
        let whole = run(parser(format), &[&text]);
        let mut ends: Vec<usize> = cuts.into_iter().filter(|cut| text.is_char_boundary(*cut)).chain([0, text.len()]).collect();
        ends.sort_unstable();
        let pieces: Vec<&str> = ends.windows(2).map(|ends| &text[ends[0]..ends[1]]).collect();
        prop_assert_eq!(&run(parser(format), &pieces), &whole);
        let calls = whole.iter().any(|event| matches!(event, AnswerEvent::CallStart { .. }));
        let has_reasoning = text.contains("think>") || text.contains("THINK]");
        let has_reasoning = has_reasoning || text.contains("<|tool_call_end|>");
        if !calls && !has_reasoning && format != CallFormat::Harmony {
            let expected: String = text.split_whitespace().collect();
            prop_assert_eq!(letters(&whole), expected);
        }
    }
}
