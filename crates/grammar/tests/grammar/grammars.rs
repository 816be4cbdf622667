//! Expressions, Lark grammars, tool calls and the masks themselves, over real vocabularies.

use gannet_engine::{Constraint, MayEnd, Progress};
use gannet_grammar::{
    Grammar, GrammarConstraint, GrammarError, GrammarLimits, Reasoning, ThinkingBudget, ToolChoice,
};
use gannet_ops::TokenId;
use gannet_text::calls::{AnswerEvent, AnswerParser, CallFormat, ReasoningFormat, Tool};
use gannet_text::text::{Text, TextFiles, TokenizerFile};
use gannet_text::tokenizer::Specials;
use serde_json::{Value, json};

use crate::validator::Validator;
use crate::walker::{Model, count, qwen, tokenizer};

fn compile(model: &Model, grammar: Result<Grammar, GrammarError>) -> GrammarConstraint {
    model.grammars.compile(&grammar.unwrap()).unwrap()
}

fn mask(model: &Model, constraint: &mut dyn Constraint) -> (Vec<u32>, MayEnd) {
    let mut mask = vec![0; model.tokenizer.vocabulary_size().div_ceil(32)];
    let may_end = constraint.mask(&mut mask).unwrap();
    (mask, may_end)
}

fn allows(mask: &[u32], token: u32) -> bool {
    mask[token as usize / 32] >> (token % 32) & 1 == 1
}

#[test]
fn a_mask_has_the_tokens_that_some_match_goes_on_with() {
    let expression = "(é|🦀|ab+|x y)z?";
    let beginnings: Vec<Vec<u8>> =
        ["éz", "🦀z", "abbbbbbbbbbbbz", "abbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb", "x yz"]
            .iter()
            .flat_map(|text| (1..=text.len()).map(|end| text.as_bytes()[..end].to_vec()))
            .collect();
    for (folder, file) in [
        ("qwen3", "tokenizer.json"),
        ("gemma3", "tokenizer.json"),
        ("llama3", "tokenizer.json"),
        ("mistral", "tokenizer.model.v1"),
    ] {
        let model = Model::new(tokenizer(folder, file));
        let (found, may_end) =
            mask(&model, &mut compile(&model, Grammar::regex(expression, &GrammarLimits::DEFAULT)));
        assert_eq!(may_end, MayEnd::No);
        for id in 0..model.tokenizer.vocabulary_size() as u32 {
            let bytes = model.tokenizer.token_bytes(id).unwrap_or_default().to_vec();
            let is_abs = bytes.starts_with(b"ab") && bytes[1..].iter().all(|byte| *byte == b'b');
            let fits =
                !model.tokenizer.is_special(id) && (beginnings.contains(&bytes) || is_abs || bytes == b"abz");
            assert_eq!(allows(&found, id), fits, "{folder}: {id} {:?}", String::from_utf8_lossy(&bytes));
        }
        assert!(count(&found) > 3, "half of é is a token of its own, and so is a");
    }
}

/// Byte-level BPE without the bytes that text seldom has.
fn of_few_bytes() -> Model {
    let vocabulary = json!({"a": 0, "b": 1, "c": 2, "ab": 3, "\u{c3}": 4, "\u{a9}": 5, "\u{f0}": 6});
    let file = json!({
        "version": "1.0", "added_tokens": [], "normalizer": null, "post_processor": null,
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true},
        "decoder": {"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true},
        "model": {"type": "BPE", "vocab": vocabulary, "merges": ["a b"]},
    });
    let bytes = file.to_string().into_bytes();
    let tokenizer = TokenizerFile::Json(&bytes);
    let files = TextFiles { tokenizer, tokenizer_config: None, chat_template: None };
    Model::new(Text::from_files(&files).unwrap().tokenizer)
}

#[test]
fn what_no_tokens_spell_is_refused_or_leaves_nothing_to_follow() {
    let model = of_few_bytes();
    let choice = |choices: &[&str]| Grammar::choice(choices, &GrammarLimits::DEFAULT).unwrap();
    assert!(model.grammars.compile(&choice(&["abc", "\u{e9}", ""])).is_ok());
    for (text, byte) in [("ab\u{4}", "0x04"), ("a\u{1f980}", "0x9f"), ("d", "0x64")] {
        let Err(error) = model.grammars.compile(&choice(&["abc", text])) else { panic!("{text:?}") };
        assert!(matches!(error, GrammarError::Vocabulary { .. }), "{error}");
        assert!(error.to_string().contains(byte), "{error}");
    }
    let mut stuck = compile(&model, Grammar::regex("ab\\x04", &GrammarLimits::DEFAULT));
    assert_eq!(mask(&model, &mut stuck), (vec![0b1001], MayEnd::No));
    assert_eq!(stuck.advance(TokenId(3)).unwrap(), Progress::Open);
    assert_eq!(mask(&model, &mut stuck), (vec![0], MayEnd::No));
}

#[test]
fn characters_in_halves_are_whole_at_the_end() {
    let model = qwen();
    for seed in 0..20 {
        let made = model.make(
            Box::new(compile(model, Grammar::regex("[é🦀日]{3}", &GrammarLimits::DEFAULT))),
            seed,
            64,
        );
        assert!(
            made.has_ended && made.text.chars().count() == 3 && !made.text.contains('\u{fffd}'),
            "{made:?}"
        );
    }
}

#[test]
fn what_was_taken_back_was_never_there() {
    let model = qwen();
    let schema = json!({"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]});
    let mut constraint = compile(model, Grammar::json_schema(schema, &GrammarLimits::DEFAULT));
    let ids = model.tokenizer.encode("{\"name\": \"Ann\"}", Specials::AsText).unwrap();
    let masks: Vec<Vec<u32>> = ids
        .iter()
        .map(|id| {
            let (mask, _) = mask(model, &mut constraint);
            assert!(allows(&mask, *id));
            constraint.advance(TokenId(*id)).unwrap();
            mask
        })
        .collect();
    let mut copy = constraint.copy();
    for (taken_back, expected) in masks.iter().rev().enumerate() {
        constraint.rollback(1).unwrap();
        assert_eq!(&mask(model, &mut constraint).0, expected, "{taken_back}");
    }
    copy.rollback(ids.len()).unwrap();
    assert_eq!(mask(model, copy.as_mut()).0, masks[0], "a copy goes its own way");
    assert!(constraint.rollback(1).is_err());
}

#[test]
fn forced_tokens_spell_what_must_follow() {
    let model = qwen();
    let mut constraint = compile(model, Grammar::regex("hello world[12]", &GrammarLimits::DEFAULT));
    let text: Vec<u8> = constraint
        .forced()
        .iter()
        .flat_map(|id| model.tokenizer.token_bytes(id.0).unwrap().to_vec())
        .collect();
    assert_eq!(text, b"hello world");
    for token in constraint.forced() {
        assert_eq!(constraint.advance(token).unwrap(), Progress::Open);
    }
    let one = model.tokenizer.id_of("1").unwrap();
    assert_eq!(constraint.advance(TokenId(one)).unwrap(), Progress::Complete);
    assert_eq!(mask(model, &mut constraint).1, MayEnd::Yes);
}

#[test]
fn what_can_blow_up_is_refused_or_works() {
    let model = qwen();
    let many: Vec<String> = (0..20_000).map(|n| format!("value number {n}")).collect();
    let texts = [
        "^(a+)+$",
        "(a|a)*b",
        "(.*a){20}",
        "a{1000000}",
        "((a{100}){100}){100}",
        "(x+x+)+y",
        r"\p{L}{1,5000}",
    ];
    let grammars = texts
        .iter()
        .map(|expression| Grammar::regex(expression, &GrammarLimits::DEFAULT))
        .chain(texts.iter().map(|pattern| {
            Grammar::json_schema(json!({"type": "string", "pattern": pattern}), &GrammarLimits::DEFAULT)
        }))
        .chain([
            Grammar::json_schema(json!({"enum": many}), &GrammarLimits::DEFAULT),
            Grammar::json_schema(
                json!({"type": "array", "minItems": 100_000, "items": {}}),
                &GrammarLimits::DEFAULT,
            ),
            Grammar::json_schema(
                json!({"type": "string", "minLength": 1_000_000_000}),
                &GrammarLimits::DEFAULT,
            ),
            Grammar::json_schema(json!({"allOf": [{"$ref": "#"}]}), &GrammarLimits::DEFAULT),
            Grammar::json_schema(json!({"$ref": "#"}), &GrammarLimits::DEFAULT),
            Grammar::lark("start: start start | \"a\" |", &GrammarLimits::DEFAULT),
            Grammar::lark("start: x", &GrammarLimits::DEFAULT),
            Grammar::lark("\u{0}", &GrammarLimits::DEFAULT),
            Grammar::choice(&["", "a"], &GrammarLimits::DEFAULT),
        ]);
    for grammar in grammars.flatten() {
        let Ok(mut constraint) = model.grammars.compile(&grammar) else { continue };
        let mut mask = vec![0; model.tokenizer.vocabulary_size().div_ceil(32)];
        for _ in 0..5 {
            mask.fill(0);
            if constraint.mask(&mut mask).is_err() || count(&mask) == 0 {
                break;
            }
            let first = mask.iter().position(|word| *word != 0).unwrap();
            let token = first as u32 * 32 + mask[first].trailing_zeros();
            if constraint.advance(TokenId(token)) != Ok(Progress::Open) {
                break;
            }
        }
    }
}

#[test]
fn faults_are_named() {
    let model = qwen();
    let schema = |schema: Value| {
        Grammar::json_schema(schema, &GrammarLimits::DEFAULT)
            .and_then(|grammar| model.grammars.compile(&grammar))
            .err()
    };
    let place = |found: &Value| match schema(found.clone()) {
        Some(GrammarError::Schema { path, keyword, .. }) => (path, keyword),
        other => panic!("{found}: {other:?}"),
    };
    for (found, path, keyword) in [
        (json!({"properties": {"a/b": {"items": {"not": {}}}}}), "/properties/a~1b/items/not", "not"),
        (
            json!({"$defs": {"x": {"pattern": "("}}, "properties": {"a": {"$ref": "#/$defs/x"}}}),
            "/$defs/x/pattern",
            "pattern",
        ),
        (
            json!({"type": "object", "properties": {"n": {"type": "integer", "minimum": 5, "maximum": 3}}, "required": ["n"]}),
            "/properties/n/minimum",
            "minimum",
        ),
        (json!({"properties": {"n": {"$ref": "http://x"}}}), "/properties/n/$ref", "$ref"),
        (json!({"anyOf": [{"type": "string", "format": "iri"}]}), "/anyOf/0/format", "format"),
    ] {
        assert_eq!(place(&found), (path.to_owned(), keyword.to_owned()), "{found}");
    }
    assert!(matches!(
        model.grammars.compile(&Grammar::regex("(", &GrammarLimits::DEFAULT).unwrap()),
        Err(GrammarError::Regex { .. })
    ));
    assert!(matches!(
        model.grammars.compile(&Grammar::lark("start: missing", &GrammarLimits::DEFAULT).unwrap()),
        Err(GrammarError::Lark { .. })
    ));
}

fn tools() -> Vec<Tool> {
    let weather = json!({"name": "weather", "strict": true, "parameters": {
        "type": "object", "properties": {"city": {"type": "string", "maxLength": 12}, "days": {"type": "integer", "maximum": 9, "minimum": 1},
        "unit": {"type": "string", "enum": ["C", "F"]}}, "required": ["city"], "additionalProperties": false}});
    let now = json!({"name": "now", "parameters": {"type": "object", "properties": {"zone": {"enum": ["utc", "cet"]}}, "additionalProperties": false}});
    [weather, now].iter().map(|tool| Tool::from_json(tool).unwrap()).collect()
}

/// Names and arguments of the calls that the parser of the format finds; all of them must be whole.
fn calls(format: CallFormat, reasoning: Option<ReasoningFormat>, text: &str) -> Vec<(String, Value)> {
    let mut parser = AnswerParser::new(format, reasoning, tools());
    let mut events = parser.push(text);
    events.extend(parser.finish());
    let mut found: Vec<(String, String, bool)> = Vec::new();
    for event in events {
        match event {
            AnswerEvent::CallStart { name, .. } => found.push((name, String::new(), false)),
            AnswerEvent::CallArguments { index, json } => found[index].1 += &json,
            AnswerEvent::CallEnd { index } => found[index].2 = true,
            AnswerEvent::Content(text) => assert_eq!(text.trim(), "", "{format:?}: content beside the calls"),
            AnswerEvent::Reasoning(_) => {}
        }
    }
    let whole = |(name, arguments, is_whole): (String, String, bool)| {
        assert!(is_whole, "{format:?}: {text}");
        (
            name,
            serde_json::from_str(&arguments)
                .unwrap_or_else(|error| panic!("{format:?}: {error}: {arguments}")),
        )
    };
    found.into_iter().map(whole).collect()
}

#[test]
fn required_calls_are_made_in_every_format_and_read_back() {
    let model = qwen();
    let validators: Vec<(String, Validator)> =
        tools().iter().map(|tool| (tool.name.clone(), Validator::new(&tool.parameters))).collect();
    for format in CallFormat::ALL {
        for (choice, seeds) in [
            (ToolChoice::Required { parallel: true }, 0..6u64),
            (ToolChoice::Required { parallel: false }, 6..9),
            (ToolChoice::Named { name: "weather" }, 9..12),
        ] {
            let grammar =
                model.grammars.for_tools(format, &tools(), choice, Reasoning::None).unwrap().unwrap();
            for seed in seeds {
                let made = model.make(Box::new(model.grammars.compile(&grammar).unwrap()), seed, 400);
                if !made.has_ended {
                    continue;
                }
                let found = calls(format, None, &made.text);
                assert!(!found.is_empty(), "{format:?}: {}", made.text);
                assert!(
                    choice == ToolChoice::Required { parallel: true } || found.len() == 1,
                    "{}",
                    made.text
                );
                for (name, arguments) in found {
                    assert!(!matches!(choice, ToolChoice::Named { name: other } if other != name));
                    let (_, validator) = validators.iter().find(|(other, _)| *other == name).unwrap();
                    // A text between tags is free but for its end, so its length isn't held.
                    if !matches!(format, CallFormat::QwenCoder | CallFormat::Glm) {
                        let checked = validator.validate(&arguments);
                        assert!(checked.is_ok(), "{format:?}: {checked:?}: {arguments}");
                    }
                }
            }
        }
    }
}

#[test]
fn reasoning_goes_before_required_calls_and_text_before_free_ones() {
    let model = qwen();
    let think = ReasoningFormat::Think;
    let (all, hermes) = (tools(), CallFormat::Hermes);
    let required = ToolChoice::Required { parallel: false };
    let accepts = |choice, reasoning, text: &str| {
        let grammar = model.grammars.for_tools(hermes, &all, choice, reasoning).unwrap().unwrap();
        let mut constraint = model.grammars.compile(&grammar).unwrap();
        let ids = model.tokenizer.encode(text, Specials::Parse).unwrap();
        ids.iter().all(|id| constraint.advance(TokenId(*id)).is_ok()) && constraint.may_end().unwrap_or(false)
    };
    let call = "<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>";
    let wrong = "<tool_call>\n{\"name\": \"never\", \"arguments\": {}}\n</tool_call>";
    assert!(accepts(required, Reasoning::None, call));
    assert!(!accepts(required, Reasoning::None, &format!("Sure. {call}")));
    assert!(accepts(required, Reasoning::IsOpen(think), &format!("hm < hm</think>\n\n{call}")));
    assert!(accepts(required, Reasoning::MayOpen(think), &format!("<think>hm</think>{call}")));
    assert!(accepts(required, Reasoning::MayOpen(think), call));
    assert!(!accepts(required, Reasoning::IsOpen(think), call));
    for (text, fits) in [("Sure.", true), ("", true), (call, true), (wrong, false)] {
        assert_eq!(accepts(ToolChoice::Auto, Reasoning::None, text), fits, "{text}");
    }
    assert!(accepts(ToolChoice::Auto, Reasoning::None, &format!("Sure. {call}")));
    let lax: Vec<Tool> = all[1..].to_vec();
    assert_eq!(model.grammars.for_tools(hermes, &lax, ToolChoice::Auto, Reasoning::None).unwrap(), None);
    let missing = model.grammars.for_tools(hermes, &all, ToolChoice::Named { name: "x" }, Reasoning::None);
    assert!(missing.unwrap_err().to_string().contains("`x`"));
}

#[test]
fn strict_tools_are_held_where_nothing_but_its_beginning_shows_a_call() {
    let model = qwen();
    let channel = |header: &str, body: &str| format!("<|channel|>{header}<|message|>{body}");
    let aside = |header: &str| channel(header, "hm<|end|><|start|>assistant");
    let json = |name: &str, key: &str| format!(r#"{{"name": "{name}", "{key}": {{}}}}"#);
    let call = |name: &str| channel(&format!("commentary to=functions.{name} <|constrain|>json"), "{}");
    for (format, fitting, others) in [
        (
            CallFormat::Llama3Json,
            vec!["Sure.".to_owned(), String::new(), json("now", "parameters"), " a {b}".to_owned()],
            vec![json("never", "parameters"), r#"{"a": 1}"#.to_owned(), " [1]".to_owned()],
        ),
        (
            CallFormat::GenericJson,
            vec!["Sure.".to_owned(), json("now", "arguments"), format!("[{}]", json("now", "arguments"))],
            vec![json("never", "arguments"), r#"{"name": "weather", "arguments": {}}"#.to_owned()],
        ),
        (
            CallFormat::Pythonic,
            vec!["{Sure}".to_owned(), "[now()]".to_owned(), r#"[weather(city="Rome", days=2)]"#.to_owned()],
            vec!["[never()]".to_owned(), "[weather(days=2)]".to_owned(), "\n[1]".to_owned()],
        ),
        (
            CallFormat::Harmony,
            vec![
                channel("final", "Sure."),
                call("now"),
                aside("analysis") + &channel("final", ""),
                aside("analysis") + &aside("commentary") + &call("now"),
            ],
            vec![call("never"), call("weather"), "Sure.".to_owned(), aside("analysis")],
        ),
    ] {
        let grammar = model.grammars.for_tools(format, &tools(), ToolChoice::Auto, Reasoning::None);
        let grammar = grammar.unwrap().unwrap();
        let accepts = |text: &String| {
            let mut constraint = model.grammars.compile(&grammar).unwrap();
            let ids = model.tokenizer.encode(text, Specials::Parse).unwrap();
            ids.iter().all(|id| constraint.advance(TokenId(*id)).is_ok())
                && constraint.may_end().unwrap_or(false)
        };
        for text in &fitting {
            assert!(accepts(text), "{format:?}: {text}");
        }
        for text in &others {
            assert!(!accepts(text), "{format:?}: {text}");
        }
    }
}

#[test]
fn a_form_stands_behind_reasoning_or_beside_calls() {
    let model = qwen();
    let think = ReasoningFormat::Think;
    let forms = [
        (Grammar::json_schema(json!({"enum": ["ab"]}), &GrammarLimits::DEFAULT).unwrap(), "\"ab\""),
        (Grammar::regex("a[/b]", &GrammarLimits::DEFAULT).unwrap(), "a/"),
        (Grammar::lark("start: WORD\nWORD: \"a/\"", &GrammarLimits::DEFAULT).unwrap(), "a/"),
    ];
    let accepts = |grammar: &Grammar, text: &str| {
        let mut constraint = model.grammars.compile(grammar).unwrap();
        let ids = model.tokenizer.encode(text, Specials::Parse).unwrap();
        ids.iter().all(|id| constraint.advance(TokenId(*id)).is_ok()) && constraint.may_end().unwrap_or(false)
    };
    for (form, text) in forms {
        let behind = |reasoning| model.grammars.after_reasoning(form.clone(), CallFormat::Hermes, reasoning);
        let thought = format!("hm\n</think>\n\n{text}");
        assert!(accepts(&behind(Reasoning::IsOpen(think)), &thought), "{text}");
        assert!(!accepts(&behind(Reasoning::IsOpen(think)), text), "{text}");
        assert!(accepts(&behind(Reasoning::MayOpen(think)), &format!("<think>{thought}")), "{text}");
        assert!(accepts(&behind(Reasoning::MayOpen(think)), text), "{text}");
        assert!(!accepts(&behind(Reasoning::MayOpen(think)), "<think>hm</think>other"), "{text}");
        assert_eq!(behind(Reasoning::None), form);
        let either =
            model.grammars.for_tools_or(CallFormat::Hermes, &tools(), form.clone(), Reasoning::None).unwrap();
        let call = "<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>";
        assert!(accepts(&either, text) && accepts(&either, call), "{text}");
        assert!(!accepts(&either, "other") && !accepts(&either, &format!("{text}{call}")), "{text}");
    }
    let faulty =
        Grammar::json_schema(json!({"properties": {"a": {"pattern": "("}}}), &GrammarLimits::DEFAULT)
            .unwrap();
    let faulty = model.grammars.after_reasoning(faulty, CallFormat::Hermes, Reasoning::MayOpen(think));
    match model.grammars.compile(&faulty).err() {
        Some(GrammarError::Schema { path, .. }) => assert_eq!(path, "/properties/a/pattern"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn reasoning_is_closed_when_its_budget_is_used_up() {
    let model = qwen();
    let think = ReasoningFormat::Think;
    let closing = model.tokenizer.encode("</think>", Specials::Parse).unwrap();
    let words = model.tokenizer.vocabulary_size().div_ceil(32);
    let form = Grammar::json_schema(json!({"enum": ["ab"]}), &GrammarLimits::DEFAULT).unwrap();
    for reasoning in [Reasoning::IsOpen(think), Reasoning::MayOpen(think)] {
        let answer = model.grammars.after_reasoning(form.clone(), CallFormat::Hermes, reasoning);
        let answer: Box<dyn Constraint> = Box::new(model.grammars.compile(&answer).unwrap());
        let budget = ThinkingBudget::new(&model.tokenizer, reasoning, 3, Some(answer)).unwrap();
        let mut constraint: Box<dyn Constraint> = Box::new(budget.unwrap());
        let mut advance = |text: &str| {
            for id in model.tokenizer.encode(text, Specials::Parse).unwrap() {
                constraint.advance(TokenId(id)).unwrap();
            }
        };
        if reasoning == Reasoning::MayOpen(think) {
            advance("<think>");
        }
        advance("a");
        advance("b");
        assert!(constraint.copy().advance(TokenId(closing[0])).is_ok(), "it may end before");
        let third = model.tokenizer.encode("c", Specials::Parse).unwrap()[0];
        constraint.advance(TokenId(third)).unwrap();
        constraint.rollback(1).unwrap();
        let mut mask = vec![0u32; words];
        constraint.mask(&mut mask).unwrap();
        assert!(mask.iter().map(|word| word.count_ones()).sum::<u32>() > 1);
        constraint.advance(TokenId(third)).unwrap();
        for id in &closing {
            let mut mask = vec![0u32; words];
            assert_eq!(constraint.mask(&mut mask), Ok(MayEnd::No));
            assert_eq!(mask.iter().map(|word| word.count_ones()).sum::<u32>(), 1);
            assert_eq!(mask[*id as usize / 32], 1 << (id % 32));
            constraint.advance(TokenId(*id)).unwrap();
        }
        for id in model.tokenizer.encode("\"ab\"", Specials::Parse).unwrap() {
            constraint.advance(TokenId(id)).unwrap();
        }
    }
    assert!(ThinkingBudget::new(&model.tokenizer, Reasoning::None, 3, None).unwrap().is_none());
}
