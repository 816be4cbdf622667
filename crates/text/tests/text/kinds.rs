//! Every kind of tokenizer, on small vocabularies that `goldens/tokenizer_kinds.py` trains, against the reference
//! libraries.

use crate::fixture::{self, joined_ids};
use gannet_text::decode::SpecialTokens;
use gannet_text::error::TextError;
use gannet_text::gguf;
use gannet_text::tokenizer::{Specials, Tokenizer, TokenizerConfig};
use serde_json::{Value, json};

fn of_json(json: &Value) -> Result<Tokenizer, TextError> {
    Tokenizer::from_json(&serde_json::to_vec(json).unwrap(), &TokenizerConfig::default())
}

fn of_gguf(gguf: &Value) -> Result<Tokenizer, TextError> {
    gguf::tokenizer(fixture::gguf_vocabulary(gguf))
}

fn list(value: &Value) -> &[Value] {
    value.as_array().unwrap()
}

/// Encodes and decodes as the reference does; `as_text` where the reference knows how.
fn check(tokenizer: &Tokenizer, label: &str, case: &Value, as_text: bool) {
    let text = case["text"].as_str().unwrap();
    let ids = joined_ids(&case["ids"]);
    assert_eq!(tokenizer.encode(text, Specials::Parse).unwrap(), ids, "{label}: {text:?}");
    let plain = case.get("as_text").map_or(ids.clone(), joined_ids);
    if as_text {
        assert_eq!(tokenizer.encode(text, Specials::AsText).unwrap(), plain, "{label} as text: {text:?}");
    }
    let decoded = case.get("decoded").map_or(text, |decoded| decoded.as_str().unwrap());
    assert_eq!(tokenizer.decode(&ids, SpecialTokens::Show), decoded, "{label}: {text:?}");
}

#[test]
fn every_split_is_that_of_its_model() {
    let fixture = fixture::read("kinds/splits");
    let texts = list(&fixture["texts"]);
    let splits = fixture["ids"].as_object().unwrap();
    assert!(splits.len() >= 16 && texts.len() > 90);
    for (name, expected) in splits {
        let mut vocabulary = fixture::vocabulary(&fixture);
        vocabulary.pre = Some(name.clone());
        let tokenizer = gguf::tokenizer(vocabulary).unwrap();
        for (text, ids) in texts.iter().zip(list(expected)) {
            let text = text.as_str().unwrap();
            assert_eq!(tokenizer.encode(text, Specials::Parse).unwrap(), joined_ids(ids), "{name}: {text:?}");
        }
    }
}

#[test]
fn word_pieces_from_json_and_gguf_are_those_of_bert() {
    let fixture = fixture::read("kinds/bert");
    for (label, tokenizer) in
        [("json", of_json(&fixture["tokenizer_json"])), ("gguf", of_gguf(&fixture["gguf"]))]
    {
        let tokenizer = tokenizer.unwrap();
        list(&fixture["cases"]).iter().for_each(|case| check(&tokenizer, label, case, true));
        let prompt = tokenizer.encode_prompt(fixture["prompt"]["text"].as_str().unwrap()).unwrap();
        assert_eq!(prompt, joined_ids(&fixture["prompt"]["ids"]), "{label}");
    }
}

#[test]
fn unigram_segmentations_are_those_of_the_reference() {
    for name in ["unigram", "unigram-bytes"] {
        let fixture = fixture::read(&format!("kinds/{name}"));
        let mut json = fixture["json"].clone();
        let pieces = list(&fixture["gguf"]["tokens"]).iter().zip(list(&fixture["gguf"]["scores"]));
        json["model"]["vocab"] = pieces.map(|(piece, score)| json!([piece, score])).collect();
        let (json, gguf) = (of_json(&json).unwrap(), of_gguf(&fixture["gguf"]).unwrap());
        for case in list(&fixture["cases"]) {
            // As text, the reference finds control tokens nevertheless: they are pieces of the model.
            check(&json, name, case, case.get("as_text").is_some() && !name.starts_with("unigram"));
        }
        let file = Tokenizer::from_sentencepiece(
            &fixture::bytes(&format!("kinds/{name}.model")),
            &TokenizerConfig::default(),
        );
        for (label, tokenizer) in [("json", &json), ("gguf", &gguf), ("model", &file.unwrap())] {
            for case in list(&fixture["sentencepiece"]) {
                let text = case["text"].as_str().unwrap();
                let ids = tokenizer.encode(text, Specials::AsText).unwrap();
                assert_eq!(ids, joined_ids(&case["ids"]), "{name} {label}: {text:?}");
            }
        }
    }
}

#[test]
fn a_sentencepiece_model_with_merges_is_read_as_sentencepiece_reads_it() {
    let fixture = fixture::read("kinds/bpe-mapped");
    let file =
        Tokenizer::from_sentencepiece(&fixture::bytes("kinds/bpe-mapped.model"), &TokenizerConfig::default());
    for (label, tokenizer) in [("gguf", of_gguf(&fixture["gguf"])), ("model", file)] {
        let tokenizer = tokenizer.unwrap();
        for case in list(&fixture["sentencepiece"]) {
            let text = case["text"].as_str().unwrap();
            let ids = tokenizer.encode(text, Specials::AsText).unwrap();
            assert_eq!(ids, joined_ids(&case["ids"]), "{label}: {text:?}");
        }
        assert_eq!(tokenizer.prompt_prefix(), [1], "{label}");
    }
}

#[test]
fn control_tokens_that_a_model_has_as_pieces_are_not_found_in_plain_text() {
    for name in ["unigram", "unigram-bytes"] {
        let tokenizer = of_gguf(&fixture::read(&format!("kinds/{name}"))["gguf"]).unwrap();
        let end = tokenizer.id_of("</s>").unwrap();
        for text in ["</s>", "a</s>b</s>", "\u{FF1C}/s\u{FF1E}", "</\u{200B}s>", "</s></s> x"] {
            let ids = tokenizer.encode(text, Specials::AsText).unwrap();
            assert!(!ids.contains(&end), "{name}: {text:?} {ids:?}");
        }
        // Normalising must not make what was no token into one, either.
        let ids = tokenizer.encode("\u{FF1C}/s\u{FF1E}", Specials::Parse).unwrap();
        assert!(!ids.contains(&end), "{name}: {ids:?}");
        assert!(tokenizer.encode("a</s>", Specials::Parse).unwrap().ends_with(&[end]));
    }
}

#[test]
fn added_tokens_take_spaces_and_stand_alone_as_their_flags_say() {
    let fixture = fixture::read("kinds/flags");
    let tokenizer = of_json(&fixture["tokenizer_json"]).unwrap();
    assert!(list(&fixture["cases"]).len() > 60);
    list(&fixture["cases"]).iter().for_each(|case| check(&tokenizer, "flags", case, false));
}

#[test]
fn tiktoken_files_give_their_ranks_as_ids() {
    let fixture = fixture::read("kinds/splits");
    let tokens = list(&fixture["gguf"]["tokens"]);
    let merged: Vec<Vec<u8>> = {
        let tokenizer = {
            let mut vocabulary = fixture::vocabulary(&fixture);
            vocabulary.pre = Some("qwen2".to_owned());
            gguf::tokenizer(vocabulary).unwrap()
        };
        (2..tokens.len() as u32).map(|id| tokenizer.token_bytes(id).unwrap().to_vec()).collect()
    };
    let lines: String =
        merged.iter().enumerate().map(|(rank, token)| format!("{} {rank}\n", base64(token))).collect();
    assert!(Tokenizer::is_tiktoken(lines.as_bytes()));
    let read = |class: &str, lines: &str| {
        let config = json!({"tokenizer_class": class, "eos_token": "<|im_end|>"});
        let config = TokenizerConfig::from_json(&serde_json::to_vec(&config).unwrap()).unwrap();
        Tokenizer::from_tiktoken(lines.as_bytes(), &config)
    };
    let tokenizer = read("QWenTokenizer", &lines).unwrap();
    for (text, ids) in list(&fixture["texts"]).iter().zip(list(&fixture["ids"]["qwen2"])) {
        let shifted: Vec<u32> = joined_ids(ids).iter().map(|id| id - 2).collect();
        assert_eq!(tokenizer.encode(text.as_str().unwrap(), Specials::Parse).unwrap(), shifted, "{text}");
    }
    let first = merged.len() as u32;
    assert_eq!(tokenizer.id_of("<|endoftext|>"), Some(first));
    assert_eq!(tokenizer.id_of("<|extra_204|>"), Some(first + 207));
    assert_eq!(tokenizer.vocabulary_size(), merged.len() + 208);
    let refusal = |class: &str, lines: &str| read(class, lines).unwrap_err().to_string();
    assert!(
        refusal("CodeTokenizer", &lines)
            .starts_with("tokenizer_class of a tiktoken file `CodeTokenizer` is not")
    );
    let third = lines.replacen("\n", "\n\n!!! 7\n", 1);
    let expected = "line 3 of the tiktoken file is `!!! 7`, expected a token in base64, a space and its rank";
    assert_eq!(refusal("QWenTokenizer", &third), expected);
    let gap = "QQ== 0\nQg== 2\n";
    let expected = "`rank 1 of the tiktoken file` is `2`, expected each rank once, from 0 up";
    assert_eq!(refusal("QWenTokenizer", gap), expected);
    let twice = refusal("QWenTokenizer", "QQ== 0\nQQ== 1\n");
    assert_eq!(twice, "token `A` has two ids, 0 and 1; a vocabulary must be one to one");
}

/// RFC 4648 by hand, for the test's own file.
pub(crate) fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let bits: Vec<u8> = bytes.iter().flat_map(|byte| (0..8).rev().map(move |bit| byte >> bit & 1)).collect();
    let digits = bits.chunks(6).map(|six| {
        let value = (0..6).fold(0, |value, at| value << 1 | usize::from(six.get(at).copied().unwrap_or(0)));
        char::from(DIGITS[value])
    });
    let mut text: String = digits.collect();
    while !text.len().is_multiple_of(4) {
        text.push('=');
    }
    text
}

#[test]
fn added_tokens_of_the_configuration_join_a_model_of_pieces() {
    let model = fixture::bytes("kinds/bpe-mapped.model");
    let load = |config: Value| {
        let config = TokenizerConfig::from_json(&serde_json::to_vec(&config).unwrap())?;
        Tokenizer::from_sentencepiece(&model, &config)
    };
    let tokenizer = load(json!({
        "add_bos_token": false, "add_eos_token": true, "eos_token": "<end>",
        "added_tokens_decoder": {
            "900": {"content": "<end>", "special": true},
            "901": {"content": "<tool>", "special": false, "normalized": false},
        },
    }))
    .unwrap();
    assert_eq!(tokenizer.vocabulary_size(), 902);
    let text = tokenizer.encode("a", Specials::AsText).unwrap();
    assert_eq!(tokenizer.encode_prompt("a<tool><end>").unwrap(), [&text[..], &[901, 900, 900]].concat());
    assert_eq!(tokenizer.encode_chat(&rendered("a")).unwrap(), text);
    let gap = load(json!({"added_tokens_decoder": {"950": {"content": "<end>", "special": true}}}));
    assert!(matches!(gap, Err(TextError::AddedTokenId { declared: 950, actual: 900, .. })));
    let shape = load(json!({"added_tokens_decoder": {"x": {"content": "<end>"}}}));
    assert!(matches!(shape, Err(TextError::WrongKey { .. })));
}

fn rendered(text: &str) -> gannet_text::chat::Rendered {
    use gannet_text::chat::{ChatTemplate, RenderOptions};
    let tokenizer = of_gguf(&fixture::read("kinds/bpe-mapped")["gguf"]).unwrap();
    ChatTemplate::new(text, &tokenizer).unwrap().render(&[], &[], &RenderOptions::default()).unwrap()
}
