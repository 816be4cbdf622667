//! Takes a tokenizer.json apart into the parts that `assemble` checks and joins.
//!
//! The large lists, vocabulary, merges and scores, are moved out and never pass through the library's own reader, which is
//! several times slower and trusts them. Truncation, padding and dropout are training aids and are left out.
//!
//! Knows no tokenizer library beyond its added tokens.

use serde_json::{Map, Value};

use super::assemble::Parts;
use super::config::NamedTokens;
use super::{Kind, TokenId};
use crate::error::TextError;
use crate::vocabulary::{AddedToken, MAX_VOCABULARY};

/// Largest tokenizer.json; Gemma's, among the largest, has 33 MB.
pub(super) const MAX_TOKENIZER_BYTES: usize = 1 << 28;

pub(super) fn take_apart(bytes: &[u8]) -> Result<Parts, TextError> {
    if bytes.len() > MAX_TOKENIZER_BYTES {
        let (found, limit) = (bytes.len(), MAX_TOKENIZER_BYTES);
        return Err(TextError::TooLarge { what: "the length of tokenizer.json in bytes", found, limit });
    }
    let root = gannet_json::from_slice(bytes)
        .map_err(|source| TextError::NotJson { file: "tokenizer.json", source })?;
    let Value::Object(mut skeleton) = root else {
        return Err(TextError::wrong_key("tokenizer.json", Some(&root), "an object"));
    };
    let (mut model, kind) = take_model(&mut skeleton)?;
    let (vocabulary, kind) = match kind.as_str() {
        "BPE" => byte_pairs(&mut model)?,
        "WordPiece" => (take_vocabulary(&mut model)?, Kind::WordPiece),
        _ => take_scored_pieces(&mut model)?,
    };
    let added = take_added_tokens(&mut skeleton)?;
    skeleton.insert("model".to_owned(), Value::Object(model));
    Ok(Parts { skeleton, vocabulary, kind, added, ends: None, named: NamedTokens::default() })
}

/// The model's options, emptied of what a model at work must not have, and its kind: `BPE`, `WordPiece` or `Unigram`.
fn take_model(skeleton: &mut Map<String, Value>) -> Result<(Map<String, Value>, String), TextError> {
    for training_aid in ["truncation", "padding"] {
        skeleton.remove(training_aid);
    }
    let Some(Value::Object(mut model)) = skeleton.remove("model") else {
        return Err(TextError::wrong_key("model", skeleton.get("model"), "an object"));
    };
    model.remove("dropout");
    // Files from before 2020 leave the type out.
    let kind = match model.get("type") {
        Some(kind) => kind.as_str().unwrap_or("?").to_owned(),
        None if model.contains_key("merges") => "BPE".to_owned(),
        None if model.contains_key("unk_id") => "Unigram".to_owned(),
        None if model.contains_key("max_input_chars_per_word") => "WordPiece".to_owned(),
        None => "?".to_owned(),
    };
    match kind.as_str() {
        "BPE" | "WordPiece" | "Unigram" => Ok((model, kind)),
        _ => {
            let supported = "BPE, WordPiece, Unigram";
            Err(TextError::UnsupportedKind { part: "tokenizer model", found: kind, supported })
        }
    }
}

type Pieces = Vec<(String, TokenId)>;

fn byte_pairs(model: &mut Map<String, Value>) -> Result<(Pieces, Kind), TextError> {
    match model.remove("continuing_subword_prefix") {
        None | Some(Value::Null) => {}
        Some(Value::String(prefix)) if prefix.is_empty() => {}
        Some(prefix) => {
            let key = "model.continuing_subword_prefix";
            return Err(TextError::wrong_key(key, Some(&prefix), "null"));
        }
    }
    let vocabulary = take_vocabulary(model)?;
    let merges = take_merges(model)?;
    Ok((vocabulary, Kind::Bpe { merges }))
}

/// A Unigram model lists pairs of piece and score by id.
fn take_scored_pieces(model: &mut Map<String, Value>) -> Result<(Pieces, Kind), TextError> {
    let list = match model.remove("vocab") {
        Some(Value::Array(list)) => list,
        other => return Err(TextError::wrong_key("model.vocab", other.as_ref(), "a list of pieces")),
    };
    let (mut pieces, mut scores) = (Vec::with_capacity(list.len()), Vec::with_capacity(list.len()));
    for (id, mut entry) in list.into_iter().enumerate() {
        let pair = (entry.get_mut(0).map(Value::take), entry.get(1).and_then(Value::as_f64));
        let (Some(Value::String(piece)), Some(score)) = pair else {
            let key = format!("model.vocab[{id}]");
            return Err(TextError::wrong_key(key, Some(&entry), "a piece and its score"));
        };
        pieces.push((piece, id as TokenId));
        scores.push(score);
    }
    Ok((pieces, Kind::Unigram { scores }))
}

fn take_vocabulary(model: &mut Map<String, Value>) -> Result<Pieces, TextError> {
    let vocabulary = match model.remove("vocab") {
        Some(Value::Object(vocabulary)) => vocabulary,
        other => return Err(TextError::wrong_key("model.vocab", other.as_ref(), "an object of text to id")),
    };
    let entries = vocabulary.into_iter().map(|(text, id)| match token_id(&id) {
        Some(id) => Ok((text, id)),
        None => Err(TextError::wrong_key(format!("model.vocab.{text}"), Some(&id), "an id below 4194304")),
    });
    entries.collect()
}

pub(super) fn token_id(value: &Value) -> Option<TokenId> {
    value.as_u64().filter(|&id| id < MAX_VOCABULARY as u64).map(|id| id as TokenId)
}

/// Merges are written `"a b"` in older files, `["a", "b"]` in newer ones.
fn take_merges(model: &mut Map<String, Value>) -> Result<Vec<(String, String)>, TextError> {
    let merges = match model.remove("merges") {
        Some(Value::Array(merges)) => merges,
        other => return Err(TextError::wrong_key("model.merges", other.as_ref(), "a list")),
    };
    let entries = merges.into_iter().filter(|merge| !is_version_line(merge)).enumerate();
    entries
        .map(|(index, merge)| match merge {
            Value::String(merge) => split_merge(index, merge),
            Value::Array(mut pair) => match (pair.pop(), pair.pop(), pair.pop()) {
                (Some(Value::String(right)), Some(Value::String(left)), None) => Ok((left, right)),
                _ => Err(TextError::MalformedMerge { index, merge: Value::Array(pair).to_string() }),
            },
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => {
                Err(TextError::MalformedMerge { index, merge: merge.to_string() })
            }
        })
        .collect()
}

fn is_version_line(merge: &Value) -> bool {
    merge.as_str().is_some_and(|merge| merge.starts_with("#version"))
}

/// The two pieces of a merge that is written with one space.
pub(crate) fn split_merge(index: usize, merge: String) -> Result<(String, String), TextError> {
    let mut pieces = merge.split(' ');
    match (pieces.next(), pieces.next(), pieces.next()) {
        (Some(left), Some(right), None) if !left.is_empty() && !right.is_empty() => {
            Ok((left.to_owned(), right.to_owned()))
        }
        _ => Err(TextError::MalformedMerge { index, merge }),
    }
}

fn take_added_tokens(skeleton: &mut Map<String, Value>) -> Result<Vec<AddedToken>, TextError> {
    let list = match skeleton.remove("added_tokens") {
        None | Some(Value::Null) => Vec::new(),
        Some(Value::Array(list)) => list,
        other => return Err(TextError::wrong_key("added_tokens", other.as_ref(), "a list")),
    };
    list.into_iter().enumerate().map(|(index, entry)| added_token(index, entry)).collect()
}

fn added_token(index: usize, mut entry: Value) -> Result<AddedToken, TextError> {
    let key = |name: &str| format!("added_tokens[{index}].{name}");
    let id = entry.get("id").and_then(token_id);
    let id = id.ok_or_else(|| TextError::wrong_key(key("id"), entry.get("id"), "an id below 4194304"))?;
    let content = match entry.get_mut("content").map(Value::take) {
        Some(Value::String(content)) if !content.is_empty() => content,
        other => return Err(TextError::wrong_key(key("content"), other.as_ref(), "a string with text")),
    };
    Ok(AddedToken { id, token: with_flags(content, &entry) })
}

/// An added token with the flags of its entry, those that are missing as the library sets them.
pub(super) fn with_flags(content: String, entry: &Value) -> tokenizers::AddedToken {
    let flag = |name: &str, default: bool| entry.get(name).and_then(Value::as_bool).unwrap_or(default);
    let special = flag("special", false);
    tokenizers::AddedToken {
        content,
        single_word: flag("single_word", false),
        lstrip: flag("lstrip", false),
        rstrip: flag("rstrip", false),
        normalized: flag("normalized", !special),
        special,
    }
}
