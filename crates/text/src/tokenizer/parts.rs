//! Which parts of a tokenizer.json are let through to the library.
//!
//! The library panics on some parts that a hostile or broken file may hold: a `Precompiled` normalizer whose map is
//! damaged, a `FixedLength` of 0, a `Replace` by a regular expression that matches nothing. Byte-level and SentencePiece
//! tokenizers need none of them, so the kinds that they do need are listed here, and each other one is refused by name.
//!
//! Knows no model and no decoder.

use serde_json::{Map, Value};

use crate::error::{TextError, first_characters};

const NORMALIZERS: &str = "NFC, NFD, NFKC, NFKD, Lowercase, Prepend, Replace of a string, Sequence";
const PRE_TOKENIZERS: &str =
    "ByteLevel, Digits, Metaspace, Punctuation, Split, Whitespace, WhitespaceSplit, Sequence";

/// Refuses parts that aren't known to be safe.
pub(super) fn check(skeleton: &Map<String, Value>) -> Result<(), TextError> {
    for part in steps(skeleton.get("normalizer"), "normalizers") {
        if !is_known_normalizer(part) {
            return Err(unsupported("normalizer", part, NORMALIZERS));
        }
    }
    for part in steps(skeleton.get("pre_tokenizer"), "pretokenizers") {
        if !is_known_pre_tokenizer(part) {
            return Err(unsupported("pre-tokenizer", part, PRE_TOKENIZERS));
        }
    }
    Ok(())
}

/// The part itself, or the parts of a sequence; none for null.
fn steps<'a>(part: Option<&'a Value>, list: &str) -> Vec<&'a Value> {
    let Some(part) = part.filter(|part| !part.is_null()) else {
        return Vec::new();
    };
    match part.get(list).and_then(Value::as_array) {
        Some(steps) if kind(part) == "Sequence" => steps.iter().collect(),
        Some(_) | None => vec![part],
    }
}

fn kind(part: &Value) -> &str {
    part.get("type").and_then(Value::as_str).unwrap_or("")
}

fn is_known_normalizer(part: &Value) -> bool {
    let has_text = |text: Option<&Value>| text.and_then(Value::as_str).is_some_and(|text| !text.is_empty());
    match kind(part) {
        "NFC" | "NFD" | "NFKC" | "NFKD" | "Lowercase" => true,
        "Prepend" => has_text(part.get("prepend")),
        "Replace" => has_text(part.pointer("/pattern/String")),
        _ => false,
    }
}

fn is_known_pre_tokenizer(part: &Value) -> bool {
    let known = ["ByteLevel", "Digits", "Metaspace", "Punctuation", "Split", "Whitespace", "WhitespaceSplit"];
    known.contains(&kind(part))
}

fn unsupported(part: &'static str, found: &Value, supported: &'static str) -> TextError {
    TextError::UnsupportedKind { part, found: first_characters(&found.to_string()), supported }
}
