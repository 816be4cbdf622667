//! `t5`: SentencePiece Unigram. Of all segmentations of a text into pieces, the one with the best sum of scores is taken.
//!
//! The tokenizer.json that means the same is the one that the models' own converters write: the model's map of
//! characters, single spaces, `▁` before each word.
//!
//! Knows no merges.

use serde_json::{Map, Value, json};

use super::{GgufVocabulary, TokenKind, added_tokens, normalizer, position, skeleton, text_ends, with_ids};
use crate::error::TextError;
use crate::tokenizer::{Kind, NamedTokens, Parts, TokenId};

/// SentencePiece gives user-defined pieces this score, above all learned ones.
const USER_DEFINED_SCORE: f64 = 0.0;

pub(super) fn parts(
    mut vocabulary: GgufVocabulary,
    kinds: &[TokenKind],
    named: NamedTokens,
) -> Result<Parts, TextError> {
    if vocabulary.scores.is_empty() {
        return Err(TextError::wrong_key("tokenizer.ggml.scores", None, "a list of scores, one a token"));
    }
    let Some(unknown) = vocabulary.unknown.or_else(|| position(kinds, TokenKind::Unknown)) else {
        let key = "tokenizer.ggml.unknown_token_id";
        return Err(TextError::wrong_key(key, None, "the token for what no piece covers"));
    };
    let ends = text_ends(&vocabulary, [false, true]);
    let byte_fallback = kinds.contains(&TokenKind::Byte);
    let skeleton = segmenting(&vocabulary, unknown, byte_fallback);
    let score = |(score, kind): (f32, &TokenKind)| match kind {
        TokenKind::UserDefined => USER_DEFINED_SCORE,
        TokenKind::Normal | TokenKind::Unknown | TokenKind::Control | TokenKind::Unused | TokenKind::Byte => {
            f64::from(score)
        }
    };
    let scores = std::mem::take(&mut vocabulary.scores).into_iter().zip(kinds).map(score).collect();
    let pieces = with_ids(vocabulary.tokens);
    let added = added_tokens(&pieces, kinds);
    let kind = Kind::Unigram { scores };
    Ok(Parts { skeleton, vocabulary: pieces, kind, added, ends: Some(ends), named })
}

fn segmenting(vocabulary: &GgufVocabulary, unknown: TokenId, byte_fallback: bool) -> Map<String, Value> {
    let space_prefix = vocabulary.add_space_prefix.unwrap_or(true);
    let single_spaces = vocabulary.remove_extra_whitespaces.unwrap_or(true);
    let normalizers = normalizer::steps(vocabulary, single_spaces);
    let prepend = if space_prefix { "always" } else { "never" };
    // Where runs of spaces stay, a piece may hold one, so that words can't be split off one by one.
    let words =
        json!({"type": "Metaspace", "replacement": "▁", "prepend_scheme": prepend, "split": single_spaces});
    skeleton([
        ("normalizer", json!({"type": "Sequence", "normalizers": normalizers})),
        ("pre_tokenizer", words),
        ("decoder", normalizer::decoder(space_prefix)),
        ("model", json!({"type": "Unigram", "unk_id": unknown, "byte_fallback": byte_fallback})),
    ])
}
