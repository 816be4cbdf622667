//! The chat templates of the model families most used: their text, where its parts end, and going on with a message, each
//! against transformers (`goldens/templates.py`).

use std::path::PathBuf;

use crate::fixture;
use gannet_text::chat::{ChatTemplate, Message, Part, RenderOptions, Rendered};
use gannet_text::error::TextError;
use gannet_text::gguf;
use gannet_text::tokenizer::{Specials, Tokenizer};
use serde_json::{Map, Value, json};

fn tokenizer(name: &str) -> Tokenizer {
    gguf::tokenizer(fixture::vocabulary(&fixture::read(name))).unwrap()
}

fn messages(chat: &Value) -> Vec<Message> {
    chat.as_array().unwrap().iter().map(|message| Message::from_json(message.clone()).unwrap()).collect()
}

/// A template of the fixture, or a published one, which `cargo xtask models` fetches.
fn source(fixture: &Value, name: &str) -> String {
    let Some(published) = name.strip_prefix("published ") else {
        return fixture["templates"][name].as_str().unwrap().to_owned();
    };
    let folder = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../models/tokenizers"));
    let path = folder.join(published).join("tokenizer_config.json");
    let config = std::fs::read(&path)
        .unwrap_or_else(|error| panic!("`{}`: {error}: run `cargo xtask models` first", path.display()));
    serde_json::from_slice::<Value>(&config).unwrap()["chat_template"].as_str().unwrap().to_owned()
}

fn options(generate: bool) -> RenderOptions {
    let mut variables = Map::new();
    variables.insert("date_string".to_owned(), json!("26 Jul 2024"));
    RenderOptions { add_generation_prompt: generate, boundaries: true, variables, ..RenderOptions::default() }
}

/// Where each message ends, by the reference and by us; leading system messages belong to the preamble.
fn check_ends(rendered: &Rendered, chat: &[Message], ends: &Value, label: &str) {
    let leading = chat.iter().take_while(|message| message.role == "system").count();
    let preamble = rendered.boundaries.iter().find(|boundary| boundary.part == Part::Preamble);
    let mut last = preamble.map_or(0, |boundary| boundary.byte);
    for (index, end) in ends.as_array().unwrap().iter().enumerate().skip(leading) {
        let found = rendered.boundaries.iter().find(|boundary| boundary.part == Part::Message(index));
        let expected = end.as_u64().map(|end| end as usize).filter(|&end| end > last);
        assert_eq!(found.map(|boundary| boundary.byte), expected, "{label}: message {index}");
        last = expected.unwrap_or(last);
    }
}

#[test]
fn the_families_templates_render_as_in_python() {
    let fixture = fixture::read("families");
    let tokenizer = tokenizer("llama");
    let mut refused = 0;
    for case in fixture["cases"].as_array().unwrap() {
        let name = case["template"].as_str().unwrap();
        let template = ChatTemplate::new(&source(&fixture, name), &tokenizer).unwrap();
        let chat = messages(&fixture["chats"][case["chat"].as_str().unwrap()]);
        let tools = if case["tools"] == true { fixture["tools"].as_array().unwrap().as_slice() } else { &[] };
        let rendered = template.render(&chat, tools, &options(case["generate"] == true));
        let label = format!("{name} {} {}", case["chat"], case["generate"]);
        match (rendered, case["text"].as_str()) {
            (Ok(rendered), Some(text)) => {
                assert_eq!(rendered.text, text, "{label}");
                check_ends(&rendered, &chat, &case["ends"], &label);
            }
            (Err(TextError::TemplateRaised(_) | TextError::TemplateFailed { .. }), None) => refused += 1,
            (other, _) => panic!("{label}: {other:?}"),
        }
    }
    assert!(refused > 8);
}

#[test]
fn the_last_message_is_continued_where_transformers_continues_it() {
    let fixture = fixture::read("families");
    let tokenizer = tokenizer("llama");
    let options = RenderOptions { continue_final_message: true, ..options(true) };
    for case in fixture["continued"].as_array().unwrap() {
        let name = case["template"].as_str().unwrap();
        let template = ChatTemplate::new(&source(&fixture, name), &tokenizer).unwrap();
        let chat = messages(&case["messages"]);
        let rendered = template.render(&chat, &[], &options).unwrap();
        assert_eq!(Some(rendered.text.as_str()), case["text"].as_str(), "{name} {}", case["messages"][2]);
        let open = Part::Message(chat.len() - 1);
        assert!(rendered.boundaries.iter().all(|boundary| boundary.part != open), "{name}");
    }
}

#[test]
fn what_says_nothing_cannot_be_continued() {
    let tokenizer = tokenizer("smollm");
    let options = RenderOptions { continue_final_message: true, ..RenderOptions::default() };
    let error = |source: &str, chat: &[Message]| {
        ChatTemplate::new(source, &tokenizer).unwrap().render(chat, &[], &options).unwrap_err().to_string()
    };
    let print = "{% for m in messages %}{{ m.content }}{% endfor %}";
    assert_eq!(error(print, &[]), "the last message has no text to continue");
    let mut calls = Message::new("assistant", "");
    calls.content = gannet_text::chat::Content::Null;
    assert_eq!(error(print, &[calls]), "the last message has no text to continue");
    let lost = "the chat template does not print the last message as it stands, so it can't be continued";
    assert_eq!(error("{{ messages[0].content[:3] }}", &[Message::new("assistant", "a long text")]), lost);
    assert_eq!(error("{{ messages[0].content | upper }}", &[Message::new("assistant", "text")]), lost);
}

const CHATML: &str = "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}{% endfor %}\
                      {% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}";

fn rendered(source: &str, tokenizer: &Tokenizer, chat: &[Message], tools: &[Value]) -> Rendered {
    ChatTemplate::new(source, tokenizer).unwrap().render(chat, tools, &options(true)).unwrap()
}

#[test]
fn the_preamble_holds_tools_and_system_or_is_not_known() {
    let tokenizer = tokenizer("smollm");
    let tool = json!({"type": "function", "function": {"name": "look_up"}});
    let preamble = |source: &str, system: bool, tools: &[Value]| {
        let mut chat = vec![
            Message::new("user", "question"),
            Message::new("assistant", "answer"),
            Message::new("user", "why"),
        ];
        if system {
            chat.insert(0, Message::new("system", "rules"));
        }
        let rendered = rendered(source, &tokenizer, &chat, tools);
        let found = rendered.boundaries.iter().find(|boundary| boundary.part == Part::Preamble);
        found.map(|boundary| rendered.text[..boundary.byte].to_owned())
    };
    assert_eq!(preamble(CHATML, true, &[]).as_deref(), Some("<|im_start|>system\nrules<|im_end|>\n"));
    assert_eq!(
        preamble(CHATML, false, &[]).as_deref(),
        Some("<|im_start|>user\n"),
        "what all chats begin with"
    );
    assert_eq!(preamble(CHATML, true, std::slice::from_ref(&tool)), None, "this template prints no tools");
    let first_user = "{% if messages[0].role == 'system' %}{% set rules = messages[0].content + '|' %}{% set messages = messages[1:] %}\
                      {% endif %}{% for m in messages %}<{{ m.role }}>{{ rules if loop.first }}{{ m.content }}{% endfor %}";
    assert_eq!(preamble(first_user, true, &[]).as_deref(), Some("<user>rules|"));
    let last_user = "{% for m in messages if m.role != 'system' %}<{{ m.role }}>{% if loop.last %}{{ messages[0].content }}|{% endif %}\
                     {{ m.content }}{% endfor %}";
    assert_eq!(preamble(last_user, true, &[]), None, "the rules come last");
    let tools = "{{ tools | tojson }}".to_owned() + CHATML;
    let both = preamble(&tools, true, &[tool]).unwrap();
    assert!(both.starts_with("[{\"type\"") && both.ends_with("rules<|im_end|>\n"), "{both}");
}

#[test]
fn boundaries_among_ids_are_those_of_the_text_alone() {
    for (name, source) in [
        ("smollm", CHATML),
        (
            "llama",
            "{{ bos_token }}{% for m in messages %}[{{ m.role }}] {{ m.content }} {{ eos_token }}{% endfor %}",
        ),
    ] {
        let tokenizer = tokenizer(name);
        for said in ["Hi!", "", " 日本 🦀", "ends <|im_end|> or </s> not", "\n\n x"] {
            let chat = [
                Message::new("system", "Be brief."),
                Message::new("user", said),
                Message::new("assistant", said),
            ];
            let rendered = rendered(source, &tokenizer, &chat, &[]);
            let encoded = tokenizer.encode_chat_with_boundaries(&rendered).unwrap();
            assert_eq!(encoded.ids, tokenizer.encode_chat(&rendered).unwrap(), "{name} {said:?}");
            assert_eq!(encoded.boundaries.len(), 3, "{name} {said:?} {rendered:?}");
            for (boundary, tokens) in rendered.boundaries.iter().zip(&encoded.boundaries) {
                assert_eq!(boundary.part, tokens.part);
                if !said.contains('<') {
                    let alone = tokenizer.encode(&rendered.text[..boundary.byte], Specials::Parse).unwrap();
                    assert_eq!(encoded.ids[..tokens.tokens], alone, "{name} {said:?} {boundary:?}");
                }
                let part =
                    tokenizer.decode(&encoded.ids[..tokens.tokens], gannet_text::decode::SpecialTokens::Show);
                assert_eq!(
                    part.replace(' ', ""),
                    rendered.text[..boundary.byte].replace(' ', ""),
                    "{name} {said:?}"
                );
            }
        }
    }
}

#[test]
fn a_boundary_that_a_token_lies_across_is_left_out() {
    let tokenizer = tokenizer("smollm");
    // No special token stands between messages, so their words grow together.
    let source = "{% for m in messages %}{{ m.content }}{% endfor %}";
    let chat = [Message::new("user", "the qu"), Message::new("assistant", "ick brown")];
    let rendered = rendered(source, &tokenizer, &chat, &[]);
    assert_eq!(rendered.boundaries.iter().filter(|it| it.part == Part::Message(0)).count(), 1);
    let encoded = tokenizer.encode_chat_with_boundaries(&rendered).unwrap();
    let whole = tokenizer.encode("the quick brown", Specials::Parse).unwrap();
    assert_eq!(encoded.ids, whole);
    let first = encoded.boundaries.iter().find(|boundary| boundary.part == Part::Message(0));
    let alone = tokenizer.encode("the qu", Specials::Parse).unwrap();
    assert_eq!(first.is_some(), whole.starts_with(&alone));
}

#[test]
fn long_chats_get_the_boundaries_of_their_last_messages() {
    let tokenizer = tokenizer("smollm");
    let chat: Vec<Message> = (0..100).map(|number| Message::new("user", &number.to_string())).collect();
    let rendered = rendered(CHATML, &tokenizer, &chat, &[]);
    let messages: Vec<Part> = rendered.boundaries.iter().map(|boundary| boundary.part).collect();
    let expected: Vec<Part> = [Part::Preamble].into_iter().chain((71..100).map(Part::Message)).collect();
    assert_eq!(messages, expected);
}
