//! Texts and expressions that the engine of expressions gives up on: an error, never other ids.

use gannet_text::gguf;
use gannet_text::tokenizer::{Specials, Tokenizer, TokenizerConfig};
use serde_json::{Value, json};

use crate::fixture;

/// A run of spaces that the engine still splits, and one that it doesn't.
const LONG: usize = 900_000;
const TOO_LONG: usize = 1_100_000;

fn with_pre_tokenizer(pre_tokenizer: Value) -> Tokenizer {
    let mut file = fixture::read("smollm")["tokenizer_json"].take();
    file["pre_tokenizer"] = pre_tokenizer;
    Tokenizer::from_json(&serde_json::to_vec(&file).unwrap(), &TokenizerConfig::default()).unwrap()
}

fn split(pattern: &str, invert: bool) -> Value {
    json!({"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Removed", "invert": invert})
}

fn refusal(tokenizer: &Tokenizer, text: &str) -> String {
    tokenizer.encode(text, Specials::AsText).unwrap_err().to_string()
}

/// A text that ends in words: where the splitting stops early, they aren't found.
fn run_and_words(spaces: usize) -> String {
    format!("{}def main", " ".repeat(spaces))
}

#[test]
fn a_run_that_is_too_long_to_split_is_an_error_for_every_split_that_looks_ahead() {
    for pre in ["gpt-2", "smollm", "llama-bpe", "qwen2", "tekken", "gpt-4o", "deepseek-v3"] {
        let mut vocabulary = fixture::vocabulary(&fixture::read("smollm"));
        vocabulary.pre = Some(pre.to_owned());
        let tokenizer = gguf::tokenizer(vocabulary).unwrap();
        let refusal = refusal(&tokenizer, &run_and_words(TOO_LONG));
        assert!(
            refusal.starts_with("a text of 1100008 bytes can't be split by `")
                && refusal.ends_with("Max stack size exceeded for backtracking; break long runs in it up"),
            "{pre}: {refusal}"
        );
    }
}

#[test]
fn a_long_run_is_split_as_a_short_one() {
    let tokenizer = gguf::tokenizer(fixture::vocabulary(&fixture::read("smollm"))).unwrap();
    let words = tokenizer.encode(" def main", Specials::AsText).unwrap();
    let ids = tokenizer.encode(&run_and_words(LONG), Specials::AsText).unwrap();
    assert!(ids.ends_with(&words), "{:?} ends otherwise than {words:?}", &ids[ids.len() - 9..]);
    let bytes: usize = ids.iter().map(|&id| tokenizer.token_bytes(id).unwrap().len()).sum();
    assert_eq!(bytes, LONG + "def main".len());
}

#[test]
fn an_expression_that_goes_back_too_often_is_an_error_whichever_way_it_cuts() {
    let text = "a".repeat(40);
    for invert in [false, true] {
        let tokenizer = with_pre_tokenizer(split("(?:a|a|(?=a)a)*b(?!c)", invert));
        assert_eq!(
            refusal(&tokenizer, &text),
            "a text of 40 bytes can't be split by `(?:a|a|(?=a)a)*b(?!c)`: Error executing regex: Max limit for \
             backtracking count exceeded; break long runs in it up"
        );
        assert!(tokenizer.encode("aab", Specials::AsText).is_ok());
    }
}

#[test]
fn what_is_no_expression_is_refused_when_it_is_read() {
    let mut file = fixture::read("smollm")["tokenizer_json"].take();
    file["pre_tokenizer"] = split("(a", false);
    let file = serde_json::to_vec(&file).unwrap();
    let refusal = Tokenizer::from_json(&file, &TokenizerConfig::default()).unwrap_err().to_string();
    assert!(refusal.starts_with("the tokenizer configuration failed: "), "{refusal}");
}
