//! Which parts of a tokenizer.json are let through to the library.
//!
//! The library panics on some parts that a hostile or broken file may hold: a `Precompiled` normalizer whose map is
//! damaged, a `FixedLength` of 0, a `Replace` by a regular expression that matches nothing. So the kinds that published
//! tokenizers need are listed here and each other one is refused by name, maps are checked, and only expressions that
//! always take a character are let through.
//!
//! Knows no model and no decoder.

use serde_json::{Map, Value};

use super::charsmap;
use crate::base64;
use crate::error::{TextError, first_characters};

const NORMALIZERS: &str = "BertNormalizer, NFC, NFD, NFKC, NFKD, Lowercase, Nmt, Precompiled, Prepend, Replace, Strip, \
                           StripAccents, Sequence";
const PRE_TOKENIZERS: &str = "BertPreTokenizer, ByteLevel, Digits, Metaspace, Punctuation, Split, Whitespace, \
                              WhitespaceSplit, Sequence";

/// Refuses parts that aren't known to be safe, and makes precompiled maps safe.
pub(super) fn check(skeleton: &mut Map<String, Value>) -> Result<(), TextError> {
    for part in steps(skeleton.get_mut("normalizer"), "normalizers") {
        if kind(part) == "Precompiled" {
            repair_map(part)?;
        } else if !is_known_normalizer(part) {
            return Err(unsupported("normalizer", part, NORMALIZERS));
        }
    }
    for part in steps(skeleton.get_mut("pre_tokenizer"), "pretokenizers") {
        if !is_known_pre_tokenizer(part) {
            return Err(unsupported("pre-tokenizer", part, PRE_TOKENIZERS));
        }
    }
    Ok(())
}

/// The part itself, or the parts of a sequence; none for null.
fn steps<'a>(part: Option<&'a mut Value>, list: &str) -> Vec<&'a mut Value> {
    let Some(part) = part.filter(|part| !part.is_null()) else {
        return Vec::new();
    };
    if kind(part) == "Sequence" && part.get(list).is_some_and(Value::is_array) {
        return part[list].as_array_mut().into_iter().flatten().collect();
    }
    vec![part]
}

fn kind(part: &Value) -> &str {
    part.get("type").and_then(Value::as_str).unwrap_or("")
}

fn repair_map(part: &mut Value) -> Result<(), TextError> {
    let map = part.get("precompiled_charsmap");
    let bytes = map.and_then(Value::as_str).and_then(base64::decode);
    let bytes = bytes.ok_or_else(|| TextError::wrong_key("precompiled_charsmap", map, "bytes as base64"))?;
    part["precompiled_charsmap"] = Value::from(base64::encode(&charsmap::checked(&bytes)?));
    Ok(())
}

fn is_known_normalizer(part: &Value) -> bool {
    let text = |pointer: &str| part.pointer(pointer).and_then(Value::as_str);
    match kind(part) {
        "BertNormalizer" | "NFC" | "NFD" | "NFKC" | "NFKD" | "Lowercase" | "Nmt" | "Strip"
        | "StripAccents" => true,
        "Prepend" => text("/prepend").is_some_and(|text| !text.is_empty()),
        "Replace" => match (text("/pattern/String"), text("/pattern/Regex")) {
            (Some(text), None) => !text.is_empty(),
            (None, Some(pattern)) => pattern == SPACES_AT_THE_ENDS || takes_a_character(pattern),
            (Some(_), Some(_)) | (None, None) => false,
        },
        _ => false,
    }
}

/// The one expression with a choice that converters write: it takes spaces alone, not line breaks.
pub(crate) const SPACES_AT_THE_ENDS: &str = r"\A +| +\z";

/// Whether a regular expression is a run of characters and classes of which at least one must be there: then it can't
/// match nothing, and can't take long.
fn takes_a_character(pattern: &str) -> bool {
    let mut rest = pattern;
    let mut taken = false;
    while let Some(first) = rest.chars().next() {
        let unit = match first {
            '[' => rest.find(']').filter(|&end| end > 1 && !rest[1..end].contains('[')).map(|end| end + 1),
            '\\' if rest.starts_with("\\p{") || rest.starts_with("\\P{") => rest.find('}').map(|end| end + 1),
            '\\' => rest[1..].chars().next().filter(|kind| "sSdDwWnrt.".contains(*kind)).map(|_| 2),
            '(' | ')' | '|' | '*' | '+' | '?' | '^' | '$' | '{' | '}' | ']' => None,
            _ => Some(first.len_utf8()),
        };
        let Some(unit) = unit else { return false };
        rest = &rest[unit..];
        let (must, after) = quantifier(rest);
        taken |= must;
        rest = after;
    }
    taken
}

/// Whether what the quantifier at the start of `rest` counts must be there, and what follows it.
fn quantifier(rest: &str) -> (bool, &str) {
    let counted = rest.strip_prefix('{').and_then(|rest| rest.split_once('}'));
    match (rest.as_bytes().first(), counted) {
        (Some(b'+'), _) => (true, &rest[1..]),
        (Some(b'*' | b'?'), _) => (false, &rest[1..]),
        (_, Some((count, after))) => (!count.starts_with(['0', ',']), after),
        (_, None) => (true, rest),
    }
}

fn is_known_pre_tokenizer(part: &Value) -> bool {
    let known = [
        "BertPreTokenizer",
        "ByteLevel",
        "Digits",
        "Metaspace",
        "Punctuation",
        "Split",
        "Whitespace",
        "WhitespaceSplit",
    ];
    known.contains(&kind(part))
}

fn unsupported(part: &'static str, found: &Value, supported: &'static str) -> TextError {
    TextError::UnsupportedKind { part, found: first_characters(&found.to_string()), supported }
}

#[cfg(test)]
mod tests {
    use super::takes_a_character;

    #[test]
    fn only_expressions_that_take_a_character_are_let_through() {
        for pattern in
            [" {2,}", r"\p{Zs}", r"\s+", "[\u{AD}\u{200B}]", "ab*", r"\n", r"[\u00AD\u200B-\u200D]", "ü"]
        {
            assert!(takes_a_character(pattern), "{pattern}");
        }
        for pattern in
            ["", "a*", "a?", "(a)", "a|", "^", r"\b", "a{0,3}", "[", "[]", "[[a]]", "{2}", "a**(", "(?=a)"]
        {
            assert!(!takes_a_character(pattern), "{pattern}");
        }
    }
}
