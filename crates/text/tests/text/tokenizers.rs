//! Tokenizers against the reference libraries: Hugging Face `tokenizers` over the pipelines of the models' own
//! tokenizer.json files, and SentencePiece.

use crate::fixture;
use gannet_text::decode::{Decoder, Place, SpecialTokens};
use gannet_text::gguf;
use gannet_text::tokenizer::{Specials, Tokenizer, TokenizerConfig};
use serde_json::{Value, json};

const KINDS: [&str; 6] = ["gpt-2", "smollm", "qwen2", "llama-bpe", "llama", "gemma"];

fn of_gguf(name: &str) -> (Tokenizer, Value) {
    let fixture = fixture::read(name);
    (gguf::tokenizer(fixture::vocabulary(&fixture)).unwrap(), fixture)
}

fn cases(fixture: &Value) -> &[Value] {
    fixture["cases"].as_array().unwrap()
}

fn check_encoding(tokenizer: &Tokenizer, name: &str, case: &Value) {
    let text = case["text"].as_str().unwrap();
    let parsed = fixture::ids(&case["ids"]);
    assert_eq!(tokenizer.encode(text, Specials::Parse).unwrap(), parsed, "{name}: {text:?}");
    let as_text = case.get("as_text").map_or(parsed, fixture::ids);
    assert_eq!(tokenizer.encode(text, Specials::AsText).unwrap(), as_text, "{name} as text: {text:?}");
}

#[test]
fn gguf_kinds_encode_like_the_models_own_tokenizers() {
    for name in KINDS {
        let (tokenizer, fixture) = of_gguf(name);
        assert!(cases(&fixture).len() > 150);
        cases(&fixture).iter().for_each(|case| check_encoding(&tokenizer, name, case));
    }
}

#[test]
fn tokenizer_json_encodes_like_the_gguf_made_from_it() {
    let fixture = fixture::read("smollm");
    let json = serde_json::to_vec(&fixture["tokenizer_json"]).unwrap();
    let tokenizer = Tokenizer::from_json(&json, &TokenizerConfig::default()).unwrap();
    cases(&fixture).iter().for_each(|case| check_encoding(&tokenizer, "tokenizer.json", case));
    assert!(tokenizer.prompt_prefix().is_empty());
}

#[test]
fn score_merges_are_those_of_sentencepiece() {
    let (tokenizer, fixture) = of_gguf("llama");
    let cases = fixture["sentencepiece"].as_array().unwrap();
    assert!(cases.len() > 80);
    for case in cases {
        let text = case["text"].as_str().unwrap();
        assert_eq!(tokenizer.encode(text, Specials::AsText).unwrap(), fixture::ids(&case["ids"]), "{text:?}");
    }
}

#[test]
fn ids_decode_to_what_the_reference_decodes_them_to() {
    for name in KINDS {
        let (tokenizer, fixture) = of_gguf(name);
        for case in cases(&fixture) {
            let ids = fixture::ids(&case["ids"]);
            let shown = case.get("decoded").unwrap_or(&case["text"]);
            let skipped = case.get("skipped").unwrap_or(shown);
            assert_eq!(tokenizer.decode(&ids, SpecialTokens::Show), shown.as_str().unwrap(), "{name}");
            assert_eq!(tokenizer.decode(&ids, SpecialTokens::Skip), skipped.as_str().unwrap(), "{name}");
        }
    }
}

#[test]
fn streamed_pieces_are_whole_characters_and_join_to_the_whole() {
    for name in KINDS {
        let (tokenizer, fixture) = of_gguf(name);
        for case in cases(&fixture) {
            let ids = fixture::ids(&case["ids"]);
            let mut decoder = Decoder::new(&tokenizer, SpecialTokens::Show, Place::Start);
            let pieces: Vec<String> = ids.iter().map(|&id| decoder.push(id)).collect();
            assert_eq!(decoder.finish(), "", "{name}: valid text leaves nothing behind");
            let expected = case.get("decoded").unwrap_or(&case["text"]).as_str().unwrap();
            assert_eq!(pieces.concat(), expected, "{name}");
        }
    }
}

#[test]
fn broken_bytes_become_replacement_characters_as_in_the_whole() {
    let (tokenizer, _) = of_gguf("gpt-2");
    let byte_ids: Vec<u32> = (0..=255u8)
        .map(|byte| (0..256 + 3).find(|&id| tokenizer.token_bytes(id) == Some(&[byte][..])).unwrap())
        .collect();
    let check = |bytes: &[u8]| {
        let ids: Vec<u32> = bytes.iter().map(|&byte| byte_ids[byte as usize]).collect();
        assert_eq!(tokenizer.decode(&ids, SpecialTokens::Skip), String::from_utf8_lossy(bytes), "{bytes:x?}");
    };
    check(b"\xF0\x9F\xA6\x80");
    check(b"\xF0\x9F\xA6");
    check(b"a\xE6\x97b\xE6\x97\xA5");
    check(b"\xFF\xC3\xA9\x80\x80z");
    check(b"\xE0\x80\x80");
    check(b"\xED\xA0\x80");
    check(b"\xF4\x90\x80\x80\xC3");
    check(b"\xC3\xC3\xA9");
}

#[test]
fn half_a_character_is_held_until_the_rest_comes() {
    let (tokenizer, _) = of_gguf("llama");
    let ids = tokenizer.encode("🫨", Specials::AsText).unwrap();
    assert_eq!(ids.len(), 5, "the space and four byte tokens");
    let mut decoder = Decoder::new(&tokenizer, SpecialTokens::Skip, Place::Start);
    let pieces: Vec<String> = ids.iter().map(|&id| decoder.push(id)).collect();
    assert_eq!(pieces, ["", "", "", "", "🫨"]);
    decoder.push(ids[1]);
    assert_eq!(decoder.finish(), "\u{FFFD}");
}

#[test]
fn the_leading_space_is_dropped_only_at_the_start_of_a_text() {
    let (tokenizer, _) = of_gguf("llama");
    let ids = tokenizer.encode("the cat", Specials::AsText).unwrap();
    let text = |place: Place| {
        let mut decoder = Decoder::new(&tokenizer, SpecialTokens::Skip, place);
        ids.iter().map(|&id| decoder.push(id)).collect::<String>()
    };
    assert_eq!(text(Place::Start), "the cat");
    assert_eq!(text(Place::Middle), " the cat");
}

#[test]
fn prompts_begin_with_bos_where_the_tokenizer_says_so() {
    let check = |name: &str, prefix: &[u32]| {
        let (tokenizer, _) = of_gguf(name);
        let plain = tokenizer.encode("Hello", Specials::Parse).unwrap();
        assert_eq!(tokenizer.encode_prompt("Hello").unwrap(), [prefix, &plain].concat(), "{name}");
    };
    check("smollm", &[]);
    check("llama-bpe", &[1]);
    check("llama", &[1]);
}

#[test]
fn a_post_processor_decides_unless_the_config_does() {
    let mut file = fixture::read("smollm")["tokenizer_json"].take();
    file["post_processor"] = json!({
        "type": "TemplateProcessing",
        "single": [
            {"SpecialToken": {"id": "<|im_start|>", "type_id": 0}},
            {"Sequence": {"id": "A", "type_id": 0}},
            {"SpecialToken": {"id": "<|im_end|>", "type_id": 0}},
        ],
        "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 0}}],
        "special_tokens": {
            "<|im_start|>": {"id": "<|im_start|>", "ids": [1], "tokens": ["<|im_start|>"]},
            "<|im_end|>": {"id": "<|im_end|>", "ids": [2], "tokens": ["<|im_end|>"]},
        },
    });
    let file = serde_json::to_vec(&file).unwrap();
    let check = |config: &str, prefix: &[u32], suffix: &[u32]| {
        let config = TokenizerConfig::from_json(config.as_bytes()).unwrap();
        let tokenizer = Tokenizer::from_json(&file, &config).unwrap();
        let plain = tokenizer.encode("x", Specials::Parse).unwrap();
        assert_eq!(tokenizer.encode_prompt("x").unwrap(), [prefix, &plain, suffix].concat());
    };
    check("{}", &[1], &[2]);
    check(r#"{"add_bos_token": false, "bos_token": "<|im_start|>"}"#, &[], &[]);
    check(r#"{"add_bos_token": true, "bos_token": {"content": "<|endoftext|>"}}"#, &[0], &[]);
}

#[test]
fn the_vocabulary_knows_its_bytes_and_special_tokens() {
    let (tokenizer, _) = of_gguf("llama");
    assert_eq!(tokenizer.vocabulary_size(), 900);
    assert_eq!(tokenizer.token_bytes(tokenizer.id_of("<0x0A>").unwrap()), Some(&b"\n"[..]));
    assert_eq!(tokenizer.token_text(tokenizer.id_of("▁the").unwrap()).as_deref(), Some(" the"));
    assert_eq!(tokenizer.token_bytes(900), None);
    let special: Vec<String> =
        tokenizer.special_ids().iter().filter_map(|&id| tokenizer.token_text(id)).collect();
    assert_eq!(special, ["<unk>", "<s>", "</s>", "<end_of_turn>"]);
}

#[test]
fn an_answer_ends_at_every_known_end() {
    let check = |name: &str, listed: &[u32], ends: &[&str]| {
        let (tokenizer, _) = of_gguf(name);
        let mut expected: Vec<u32> = ends.iter().map(|text| tokenizer.id_of(text).unwrap()).collect();
        expected.extend(listed);
        expected.sort_unstable();
        expected.dedup();
        assert_eq!(tokenizer.end_of_text_ids(listed), expected, "{name}");
    };
    check("smollm", &[], &["<|endoftext|>", "<|im_end|>"]);
    check("smollm", &[7, 2], &["<|endoftext|>", "<|im_end|>"]);
    check("llama", &[], &["</s>", "<end_of_turn>"]);
}

#[test]
fn a_key_that_occurs_twice_is_named() {
    let file = fixture::read("smollm")["tokenizer_json"].to_string();
    let twice = file.replacen("\"vocab\":{", "\"vocab\":{\"!\":7,", 1);
    assert_ne!(file, twice);
    let refusal =
        Tokenizer::from_json(twice.as_bytes(), &TokenizerConfig::default()).unwrap_err().to_string();
    assert!(
        refusal.starts_with("`tokenizer.json` is no valid JSON: key \"!\" occurs twice at line 1 column "),
        "{refusal}"
    );
    let refusal =
        TokenizerConfig::from_json(br#"{"bos_token": "a", "bos_token": "b"}"#).unwrap_err().to_string();
    assert_eq!(
        refusal,
        "`tokenizer_config.json` is no valid JSON: key \"bos_token\" occurs twice at line 1 column 30"
    );
}

#[test]
fn tokenizer_files_that_contradict_themselves_are_refused() {
    let sound = fixture::read("smollm")["tokenizer_json"].take();
    let refusal = |change: &dyn Fn(&mut Value)| {
        let mut file = sound.clone();
        change(&mut file);
        let file = serde_json::to_vec(&file).unwrap();
        Tokenizer::from_json(&file, &TokenizerConfig::default()).unwrap_err().to_string()
    };
    let check = |change: &dyn Fn(&mut Value), message: &str| assert_eq!(refusal(change), message);
    check(&|file| *file = json!([]), "`tokenizer.json` is `a list of 0`, expected an object");
    check(&|file| file["model"] = json!(7), "`model` is `nothing`, expected an object");
    check(
        &|file| file["model"]["type"] = json!("WordLevel"),
        "tokenizer model `WordLevel` is not supported; supported: BPE, WordPiece, Unigram",
    );
    check(
        &|file| file["model"]["type"] = json!("Unigram"),
        "`model.vocab` is `an object of 700`, expected a list of pieces",
    );
    check(
        &|file| file["model"]["vocab"] = json!([1]),
        "`model.vocab` is `a list of 1`, expected an object of text to id",
    );
    check(
        &|file| file["model"]["vocab"]["zz"] = json!(4_000_000_000_u64),
        "`model.vocab.zz` is `4000000000`, expected an id below 4194304",
    );
    check(
        &|file| file["model"]["vocab"]["zz"] = json!(5),
        "id 5 belongs to two tokens, `#` and `zz`; a vocabulary must be one to one",
    );
    check(
        &|file| file["model"]["merges"][0] = json!(["nowhere to be found at all in this vocabulary", "b"]),
        "merge 0 joins `nowhere to be found at all in this vocabulary` and `b`, but \
         `nowhere to be found at all in this vocabulary` is not in the vocabulary",
    );
    check(
        &|file| file["model"]["merges"][1] = json!("abc"),
        "merge 1 is `abc`, expected two pieces separated by one space",
    );
    check(
        &|file| file["added_tokens"][0]["id"] = json!(-1),
        "`added_tokens[0].id` is `-1`, expected an id below 4194304",
    );
    check(
        &|file| file["added_tokens"][3]["id"] = json!(5000),
        "added token `<tool_call>` declares id 5000, but it gets id 700: ids must be dense",
    );
}

#[test]
fn parts_that_are_not_known_to_be_safe_are_refused_by_name() {
    let sound = fixture::read("smollm")["tokenizer_json"].take();
    let refusal = |change: &dyn Fn(&mut Value)| {
        let mut file = sound.clone();
        change(&mut file);
        let file = serde_json::to_vec(&file).unwrap();
        Tokenizer::from_json(&file, &TokenizerConfig::default()).unwrap_err().to_string()
    };
    let check = |change: &dyn Fn(&mut Value), message: &str| assert_eq!(refusal(change), message);
    check(
        &|file| file["decoder"] = json!({"type": "CTC"}),
        "decoder `{\"type\":\"CTC\"}` is not supported; supported: ByteLevel, Metaspace, WordPiece, and \
         sequences of Replace(▁), ByteFallback, Fuse, Strip(space)",
    );
    assert!(
        refusal(&|file| file["pre_tokenizer"] = json!({"type": "Split"}))
            .starts_with("the tokenizer configuration")
    );
    check(
        &|file| file["normalizer"] = json!({"type": "Precompiled", "precompiled_charsmap": "AAAA"}),
        "the precompiled map of characters is damaged: it has no length field",
    );
    check(
        &|file| file["normalizer"] = json!({"type": "Replace", "pattern": {"Regex": "a*"}, "content": ""}),
        "normalizer `{\"type\":\"Replace\",\"pattern\":{\"Regex\":\"a*\"},\"content\":\"\"}` is not supported; supported: \
         BertNormalizer, NFC, NFD, NFKC, NFKD, Lowercase, Nmt, Precompiled, Prepend, Replace, Strip, StripAccents, \
         Sequence",
    );
    check(
        &|file| file["pre_tokenizer"] = json!({"type": "FixedLength", "length": 0}),
        "pre-tokenizer `{\"type\":\"FixedLength\",\"length\":0}` is not supported; supported: BertPreTokenizer, \
         ByteLevel, Digits, Metaspace, Punctuation, Split, Whitespace, WhitespaceSplit, Sequence",
    );
    let broken = Tokenizer::from_json(b"{\"model\": ", &TokenizerConfig::default()).unwrap_err();
    assert!(broken.to_string().starts_with("`tokenizer.json` is no valid JSON: EOF"));
}

/// The paths of all small parts of `value`, as JSON pointers.
fn pointers(value: &Value, at: &str, found: &mut Vec<String>) {
    found.push(at.to_owned());
    let entries: Vec<(String, &Value)> = match value {
        Value::Object(entries) if entries.len() < 60 => {
            entries.iter().map(|(key, value)| (key.clone(), value)).collect()
        }
        Value::Array(items) => {
            items.iter().take(2).enumerate().map(|(at, item)| (at.to_string(), item)).collect()
        }
        Value::Object(_) | Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Vec::new(),
    };
    for (key, value) in entries {
        pointers(value, &format!("{at}/{key}"), found);
    }
}

#[test]
fn a_file_with_any_part_replaced_loads_or_is_refused_but_never_panics() {
    let sound = fixture::read("smollm")["tokenizer_json"].take();
    let replacements = [
        json!(null),
        json!(-1),
        json!(99_999_999_999_u64),
        json!(""),
        json!("(((("),
        json!([[]]),
        json!({"type": "Replace", "pattern": {"Regex": "(a*)*$"}, "content": "x"}),
        json!({"type": "Split", "pattern": {"Regex": "(a*)*$"}, "behavior": "Isolated", "invert": false}),
        json!({"type": "Precompiled", "precompiled_charsmap": "AAAA"}),
        json!({"type": "FixedLength", "length": 0}),
    ];
    let mut paths = Vec::new();
    pointers(&sound, "", &mut paths);
    for path in &paths {
        for replacement in &replacements {
            let mut file = sound.clone();
            *file.pointer_mut(path).unwrap() = replacement.clone();
            let file = serde_json::to_vec(&file).unwrap();
            let Ok(tokenizer) = Tokenizer::from_json(&file, &TokenizerConfig::default()) else {
                continue;
            };
            let ids = tokenizer.encode_prompt("a b <|im_start|>é 12 🦀").unwrap_or_default();
            assert!(ids.iter().all(|&id| tokenizer.token_bytes(id).is_some()), "{path} {replacement}");
            tokenizer.decode(&ids, SpecialTokens::Show);
        }
    }
}
