//! Published tokenizers, from their own files and again as GGUF, on 500 texts each.
//!
//! `cargo xtask models` fetches them; without them these tests fail and say so. The ids are the reference libraries'
//! (`goldens/tokenizer_kinds.py`).

use std::path::PathBuf;

use crate::fixture::{self, joined_ids};
use gannet_text::check;
use gannet_text::gguf::{self, GgufVocabulary};
use gannet_text::tokenizer::{Specials, Tokenizer, TokenizerConfig};
use serde_json::Value;

fn file(path: &str) -> Vec<u8> {
    let folder = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../models/tokenizers"));
    let path = folder.join(path);
    std::fs::read(&path).unwrap_or_else(|error| {
        panic!("`{}`: {error}: run `cargo xtask models` first", path.display());
    })
}

fn json(path: &str) -> Value {
    serde_json::from_slice(&file(path)).unwrap()
}

fn list(value: &Value) -> &[Value] {
    value.as_array().unwrap()
}

/// Whether texts, and texts with special tokens, give the reference's ids.
fn compare(tokenizer: &Tokenizer, name: &str, label: &str) {
    let expected = fixture::read(&format!("published/{name}"));
    let texts = fixture::read("published/texts");
    for (text, ids) in list(&texts).iter().zip(list(&expected["ids"])) {
        let text = text.as_str().unwrap();
        let found = tokenizer.encode(text, Specials::AsText).unwrap();
        assert_eq!(found, joined_ids(ids), "{name} from {label}: {text:?}");
    }
    for case in expected["specials"].as_array().into_iter().flatten() {
        let text = case["text"].as_str().unwrap();
        let found = tokenizer.encode(text, Specials::Parse).unwrap();
        assert_eq!(found, joined_ids(&case["ids"]), "{name} from {label}: {text:?}");
    }
}

/// The lists that a conversion of `tokenizer.json` to GGUF writes.
fn converted(json: &Value) -> GgufVocabulary {
    let model = &json["model"];
    let pieces = match &model["vocab"] {
        Value::Array(list) => {
            list.iter().map(|entry| entry[0].as_str().unwrap()).zip(0..).collect::<Vec<_>>()
        }
        model @ (Value::Object(_) | Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_)) => {
            model
                .as_object()
                .unwrap()
                .iter()
                .map(|(text, id)| (text.as_str(), id.as_u64().unwrap()))
                .collect()
        }
    };
    let added = list(&json["added_tokens"]);
    let added_id = |token: &Value| token["id"].as_u64().unwrap();
    let size = pieces
        .iter()
        .map(|(_, id)| id + 1)
        .chain(added.iter().map(|token| added_id(token) + 1))
        .max()
        .unwrap();
    let mut tokens: Vec<String> = (0..size).map(|id| format!("[PAD{id}]")).collect();
    let mut token_types = vec![5; size as usize];
    for (text, id) in pieces {
        (tokens[id as usize], token_types[id as usize]) = (text.to_owned(), 1);
    }
    for token in added {
        let id = added_id(token) as usize;
        tokens[id] = token["content"].as_str().unwrap().to_owned();
        token_types[id] = if token["special"] == true { 3 } else { 4 };
    }
    let merges = model["merges"].as_array().into_iter().flatten().map(|merge| match merge {
        Value::String(merge) => merge.clone(),
        pair @ (Value::Array(_) | Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_)) => {
            format!("{} {}", pair[0].as_str().unwrap(), pair[1].as_str().unwrap())
        }
    });
    GgufVocabulary { tokens, token_types, merges: merges.collect(), ..GgufVocabulary::default() }
}

/// Reads both forms of a vocabulary; one that is split by `wrong` is found out.
fn byte_level_from_both(name: &str, pre: &str, wrong: &str) {
    let path = format!("{name}/tokenizer.json");
    let tokenizer = Tokenizer::from_json(&file(&path), &TokenizerConfig::default()).unwrap();
    compare(&tokenizer, name, "tokenizer.json");
    assert_eq!(tokenizer.findings(), []);
    let vocabulary = |pre: &str| GgufVocabulary {
        model: "gpt2".to_owned(),
        pre: Some(pre.to_owned()),
        add_bos: Some(false),
        ..converted(&json(&path))
    };
    let converted = vocabulary(pre);
    assert_eq!(check::gguf_findings(&converted), []);
    compare(&gguf::tokenizer(converted).unwrap(), name, "GGUF");
    let converted = vocabulary(wrong);
    let by_name = check::gguf_findings(&converted);
    let by_tokens = gguf::tokenizer(converted).unwrap().findings();
    assert!(by_name.len() + by_tokens.len() > 0, "{name} as {wrong}");
    eprintln!("{name} as {wrong}: {by_name:?} {by_tokens:?}");
}

#[test]
fn qwen3() {
    byte_level_from_both("qwen3", "qwen2", "starcoder");
}

#[test]
fn llama3() {
    byte_level_from_both("llama3", "llama-bpe", "gpt-2");
}

#[test]
fn deepseek_v3() {
    byte_level_from_both("deepseek-v3", "deepseek-v3", "falcon");
}

#[test]
fn gemma3() {
    let path = "gemma3/tokenizer.json";
    let tokenizer = Tokenizer::from_json(&file(path), &TokenizerConfig::default()).unwrap();
    compare(&tokenizer, "gemma3", "tokenizer.json");
    assert_eq!(tokenizer.findings(), []);
    let mut vocabulary = converted(&json(path));
    vocabulary.model = "llama".to_owned();
    vocabulary.add_space_prefix = Some(false);
    // SentencePiece trains merges one by one and scores the n-th with -n; conversion drops them.
    let places: std::collections::HashMap<String, usize> =
        vocabulary.tokens.iter().cloned().zip(0..).collect();
    vocabulary.scores = vec![-1e9; vocabulary.tokens.len()];
    for (number, merge) in std::mem::take(&mut vocabulary.merges).iter().enumerate() {
        let score = &mut vocabulary.scores[places[&merge.replacen(' ', "", 1)]];
        *score = score.max(-(number as f32));
    }
    for (id, token) in vocabulary.tokens.iter_mut().enumerate() {
        let byte = token.len() == 6 && token.starts_with("<0x");
        if byte {
            vocabulary.token_types[id] = 6;
        }
        if vocabulary.token_types[id] == 4 {
            *token = token.replace('▁', " ");
        }
    }
    vocabulary.unknown = Some(3);
    compare(&gguf::tokenizer(vocabulary).unwrap(), "gemma3", "GGUF");
}

#[test]
fn unigram_of_mon() {
    let path = "mon/mon_tokenizer.json";
    let tokenizer = Tokenizer::from_json(&file(path), &TokenizerConfig::default()).unwrap();
    compare(&tokenizer, "mon", "tokenizer.json");
    assert_eq!(tokenizer.findings(), []);
}

#[test]
fn word_pieces_of_bert() {
    let mut tokens: Vec<String> = serde_json::from_slice(&file("bert/vocab.json")).unwrap();
    assert_eq!(tokens[1], "▁");
    tokens[1] = "[unused0]".to_owned();
    let vocabulary = GgufVocabulary {
        model: "bert".to_owned(),
        tokens,
        bos: Some(101),
        separator: Some(102),
        unknown: Some(100),
        padding: Some(0),
        mask: Some(103),
        ..GgufVocabulary::default()
    };
    let tokenizer = gguf::tokenizer(vocabulary).unwrap();
    compare(&tokenizer, "bert", "GGUF");
    assert_eq!(tokenizer.findings(), []);
    let prompt = tokenizer.encode_prompt("Hello world").unwrap();
    assert_eq!(prompt, [101, 7592, 2088, 102], "as everywhere with BERT");
}

#[test]
fn sentencepiece_models_of_mistral() {
    for (name, path) in [
        ("mistral-v1", "mistral/tokenizer.model.v1"),
        ("mistral-v3", "mistral/mistral_instruct_tokenizer_240323.model.v3"),
    ] {
        let tokenizer = Tokenizer::from_sentencepiece(&file(path), &TokenizerConfig::default()).unwrap();
        compare(&tokenizer, name, "tokenizer.model");
        assert_eq!(tokenizer.findings(), [], "{name}");
    }
}

#[test]
fn ranks_of_tekken() {
    let published = json("mistral/tekken_240718.json");
    let size = 131_072 - 1000;
    let ranks: String = list(&published["vocab"])[..size]
        .iter()
        .map(|token| format!("{} {}\n", token["token_bytes"].as_str().unwrap(), token["rank"]))
        .collect();
    let config = TokenizerConfig::from_json(br#"{"tokenizer_class": "QWenTokenizer"}"#).unwrap();
    let qwen_split = Tokenizer::from_tiktoken(ranks.as_bytes(), &config).unwrap();
    let letters = byte_letters(&qwen_split);
    let tokens: Vec<Vec<u8>> =
        (0..size as u32).map(|id| qwen_split.token_bytes(id).unwrap().to_vec()).collect();
    let vocabulary = GgufVocabulary {
        model: "gpt2".to_owned(),
        pre: Some("tekken".to_owned()),
        tokens: tokens
            .iter()
            .map(|token| token.iter().map(|byte| letters[*byte as usize]).collect())
            .collect(),
        token_types: vec![1; size],
        merges: merges(&tokens, &letters),
        add_bos: Some(false),
        ..GgufVocabulary::default()
    };
    compare(&gguf::tokenizer(vocabulary).unwrap(), "tekken", "GGUF");
}

/// The letter that stands for each byte, as the vocabulary lists the token of one byte.
fn byte_letters(tokenizer: &Tokenizer) -> Vec<char> {
    let printable = |byte: u8| matches!(byte, b'!'..=b'~' | 0xA1..=0xAC | 0xAE..=0xFF);
    let mut next = 0x100;
    let letters: Vec<char> = (0..=255u8)
        .map(|byte| {
            if printable(byte) {
                return char::from(byte);
            }
            next += 1;
            char::from_u32(next - 1).unwrap()
        })
        .collect();
    assert!(letters.iter().all(|letter| tokenizer.id_of(&letter.to_string()).is_some()));
    letters
}

/// The merges that a conversion writes: of each token, every cut into two tokens, by their ranks.
fn merges(tokens: &[Vec<u8>], letters: &[char]) -> Vec<String> {
    let ranks: std::collections::HashMap<&[u8], usize> =
        tokens.iter().enumerate().map(|(rank, token)| (&token[..], rank)).collect();
    let text = |bytes: &[u8]| -> String { bytes.iter().map(|byte| letters[*byte as usize]).collect() };
    let mut merges = Vec::new();
    for token in tokens {
        let cuts = (1..token.len()).map(|cut| token.split_at(cut));
        let mut halves: Vec<_> =
            cuts.filter_map(|(left, right)| Some((*ranks.get(left)?, *ranks.get(right)?))).collect();
        halves.sort_unstable();
        merges.extend(
            halves.iter().map(|(left, right)| format!("{} {}", text(&tokens[*left]), text(&tokens[*right]))),
        );
    }
    merges
}
