//! `bert`: WordPiece. A word is split into the longest pieces that fit, from the left.
//!
//! The file marks a word's first piece with `▁` and leaves the others plain; WordPiece leaves the first plain and marks
//! the others with `##`. Older files leave names in square brackets as they are.
//!
//! Knows no merges and no scores.

use serde_json::{Map, Value, json};

use super::{GgufVocabulary, TokenKind, added_tokens, skeleton, with_ids};
use crate::error::TextError;
use crate::tokenizer::{Kind, NamedTokens, Parts, TextEnds, TokenId};

pub(super) fn parts(
    mut vocabulary: GgufVocabulary,
    mut kinds: Vec<TokenKind>,
    named: NamedTokens,
) -> Result<Parts, TextError> {
    let first = vocabulary.cls.or(vocabulary.bos).or_else(|| id_of(&vocabulary, "[CLS]"));
    let last = vocabulary.separator.or_else(|| id_of(&vocabulary, "[SEP]"));
    let Some(unknown) = vocabulary.unknown.or_else(|| id_of(&vocabulary, "[UNK]")) else {
        let key = "tokenizer.ggml.unknown_token_id";
        return Err(TextError::wrong_key(key, None, "the token for what no piece covers"));
    };
    let others = [vocabulary.eos, vocabulary.padding, vocabulary.mask, Some(unknown)];
    for id in [first, last].into_iter().chain(others).flatten() {
        kinds[id as usize] = TokenKind::Control;
    }
    let ends = ends(&vocabulary, first, last);
    let unknown_text = vocabulary.tokens[unknown as usize].clone();
    let skeleton = words(&vocabulary, unknown_text);
    let mut pieces = with_ids(std::mem::take(&mut vocabulary.tokens));
    for ((text, _), kind) in pieces.iter_mut().zip(&kinds).filter(|(_, kind)| **kind != TokenKind::Control) {
        if *kind != TokenKind::Unknown {
            *text = word_piece(text);
        }
    }
    let added = added_tokens(&pieces, &kinds);
    Ok(Parts { skeleton, vocabulary: pieces, kind: Kind::WordPiece, added, ends: Some(ends), named })
}

fn id_of(vocabulary: &GgufVocabulary, name: &str) -> Option<TokenId> {
    vocabulary.tokens.iter().position(|token| token == name).map(|id| id as TokenId)
}

fn ends(vocabulary: &GgufVocabulary, first: Option<TokenId>, last: Option<TokenId>) -> TextEnds {
    let end = |wanted: bool, id: Option<TokenId>| id.filter(|_| wanted).into_iter();
    let eos = end(vocabulary.add_eos.unwrap_or(false), vocabulary.eos);
    TextEnds {
        prefix: end(vocabulary.add_bos.unwrap_or(true), first).collect(),
        suffix: end(vocabulary.add_separator.unwrap_or(true), last).chain(eos).collect(),
    }
}

/// The piece as WordPiece spells it.
fn word_piece(text: &str) -> String {
    match text.strip_prefix('▁').filter(|word| !word.is_empty()) {
        Some(word) => word.to_owned(),
        None if text.starts_with('[') && text.ends_with(']') && text.len() > 2 => text.to_owned(),
        None => format!("##{text}"),
    }
}

fn words(vocabulary: &GgufVocabulary, unknown: String) -> Map<String, Value> {
    let lowercase = vocabulary.lowercase.unwrap_or(true);
    let normalizer = json!({
        "type": "BertNormalizer",
        "clean_text": true,
        "handle_chinese_chars": true,
        "strip_accents": vocabulary.strip_accents,
        "lowercase": lowercase,
    });
    let model = json!({
        "type": "WordPiece",
        "unk_token": unknown,
        "continuing_subword_prefix": "##",
        "max_input_chars_per_word": 100,
    });
    skeleton([
        ("normalizer", normalizer),
        ("pre_tokenizer", json!({"type": "BertPreTokenizer"})),
        ("decoder", json!({"type": "WordPiece", "prefix": "##", "cleanup": true})),
        ("model", model),
    ])
}
