//! The three models that split words into pieces, built from checked parts.
//!
//! Whatever a file says, these hold afterwards: no text has two ids, each merge joins two pieces into a third, the unknown
//! token is in the vocabulary, scores are numbers, and no word or vocabulary makes the library's work grow beyond its limits.
//!
//! Knows no normaliser, no decoder and no source format.

use std::collections::HashSet;
use std::collections::hash_map::Entry;

use serde_json::{Map, Value};
use tokenizers::ModelWrapper;
use tokenizers::models::bpe::{BPE, Vocab};
use tokenizers::models::unigram::Unigram;
use tokenizers::models::wordpiece::WordPiece;

use super::TokenId;
use super::merge_list::MergeList;
use crate::error::TextError;

/// What a model needs beside pieces and options.
pub(crate) enum Kind {
    /// Byte-pair encoding: pairs of pieces, the most urgent first.
    Bpe {
        /// Of pieces that may not exist yet: `build` checks them.
        merges: Vec<(String, String)>,
    },
    /// The longest piece that fits, from the left.
    WordPiece,
    /// The segmentation with the best sum of scores.
    Unigram {
        /// By id, one a piece.
        scores: Vec<f64>,
    },
}

/// Largest text of all pieces of a Unigram model in bytes: the library's trie takes a hundred times as much.
const MAX_UNIGRAM_BYTES: usize = 1 << 24;
/// Longest word that WordPiece looks into: it tries every piece at every place.
const MAX_WORD_CHARS: u64 = 1000;

/// Builds the model; `options` are the `model` object of a tokenizer.json without its lists.
pub(super) fn build(
    kind: Kind,
    options: &Map<String, Value>,
    pieces: Vec<(String, TokenId)>,
) -> Result<ModelWrapper, TextError> {
    match kind {
        Kind::Bpe { merges } => byte_pairs(options, pieces, merges).map(ModelWrapper::BPE),
        Kind::WordPiece => word_piece(options, pieces).map(ModelWrapper::WordPiece),
        Kind::Unigram { scores } => unigram(options, pieces, scores).map(ModelWrapper::Unigram),
    }
}

fn flag(options: &Map<String, Value>, key: &str) -> bool {
    options.get(key).and_then(Value::as_bool).unwrap_or(false)
}

fn text(options: &Map<String, Value>, key: &str) -> Option<String> {
    options.get(key).and_then(Value::as_str).map(str::to_owned)
}

fn byte_pairs(
    options: &Map<String, Value>,
    pieces: Vec<(String, TokenId)>,
    merges: Vec<(String, String)>,
) -> Result<BPE, TextError> {
    let list = MergeList::checked(&pieces, &merges)?;
    let mut builder = BPE::builder()
        .vocab_and_merges(by_text(pieces)?, merges)
        .fuse_unk(flag(options, "fuse_unk"))
        .byte_fallback(flag(options, "byte_fallback"))
        .ignore_merges(flag(options, "ignore_merges"));
    if let Some(unknown) = text(options, "unk_token") {
        builder = builder.unk_token(unknown);
    }
    if let Some(suffix) = text(options, "end_of_word_suffix").filter(|suffix| !suffix.is_empty()) {
        builder = builder.end_of_word_suffix(suffix);
    }
    builder.build().map_err(|error| list.explain(error))
}

/// The id of each text.
fn by_text(pieces: Vec<(String, TokenId)>) -> Result<Vocab, TextError> {
    let mut ids = Vocab::with_capacity(pieces.len());
    for (text, id) in pieces {
        match ids.entry(text) {
            Entry::Vacant(free) => {
                free.insert(id);
            }
            Entry::Occupied(taken) => return Err(twice(taken.key(), *taken.get(), id)),
        }
    }
    Ok(ids)
}

fn twice(text: &str, first: TokenId, second: TokenId) -> TextError {
    TextError::DuplicateToken { text: text.to_owned(), first, second }
}

fn word_piece(options: &Map<String, Value>, pieces: Vec<(String, TokenId)>) -> Result<WordPiece, TextError> {
    let unknown = text(options, "unk_token").unwrap_or_else(|| "[UNK]".to_owned());
    if !pieces.iter().any(|(piece, _)| *piece == unknown) {
        let found = Some(Value::from(unknown));
        return Err(TextError::wrong_key("model.unk_token", found.as_ref(), "a piece of the vocabulary"));
    }
    let prefix = text(options, "continuing_subword_prefix").unwrap_or_else(|| "##".to_owned());
    let longest = options.get("max_input_chars_per_word").and_then(Value::as_u64).unwrap_or(100);
    if longest > MAX_WORD_CHARS {
        let (what, found) = ("model.max_input_chars_per_word", longest as usize);
        return Err(TextError::TooLarge { what, found, limit: MAX_WORD_CHARS as usize });
    }
    WordPiece::builder()
        .vocab(by_text(pieces)?)
        .unk_token(unknown)
        .continuing_subword_prefix(prefix)
        .max_input_chars_per_word(longest as usize)
        .build()
        .map_err(TextError::library("model"))
}

fn unigram(
    options: &Map<String, Value>,
    pieces: Vec<(String, TokenId)>,
    scores: Vec<f64>,
) -> Result<Unigram, TextError> {
    let bytes: usize = pieces.iter().map(|(piece, _)| piece.len()).sum();
    if bytes > MAX_UNIGRAM_BYTES {
        let (found, limit) = (bytes, MAX_UNIGRAM_BYTES);
        return Err(TextError::TooLarge { what: "the length of all pieces in bytes", found, limit });
    }
    let mut texts = HashSet::with_capacity(pieces.len());
    if let Some((text, second)) = pieces.iter().find(|(text, _)| !texts.insert(text.as_str())) {
        let first = pieces.iter().find(|(other, _)| other == text).map_or(*second, |(_, id)| *id);
        return Err(twice(text, first, *second));
    }
    if let Some(id) = scores.iter().position(|score| !score.is_finite()) {
        let (key, found) = (format!("the score of token {id}"), scores[id].to_string());
        return Err(TextError::WrongKey { key, found, expected: "a finite number" });
    }
    let unknown = options.get("unk_id").filter(|id| !id.is_null());
    let unknown_id = unknown.and_then(Value::as_u64).filter(|&id| id < pieces.len() as u64);
    let Some(unknown_id) = unknown_id else {
        return Err(TextError::wrong_key("model.unk_id", unknown, "the id of a piece"));
    };
    let vocabulary = pieces.into_iter().map(|(piece, _)| piece).zip(scores).collect();
    Unigram::from(vocabulary, Some(unknown_id as usize), flag(options, "byte_fallback"))
        .map_err(TextError::library("model"))
}
