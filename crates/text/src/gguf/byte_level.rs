//! `gpt2`: byte-level BPE with listed merges. The vocabularies of this kind differ in how they split text before merging,
//! which `splits` lists.
//!
//! Knows no scores.

use serde_json::json;

use super::splits::{self, Split};
use super::{GgufVocabulary, TokenKind, added_tokens, skeleton, text_ends, with_ids};
use crate::error::TextError;
use crate::tokenizer::{Kind, NamedTokens, Parts, split_merge};

pub(super) fn parts(
    mut vocabulary: GgufVocabulary,
    kinds: &[TokenKind],
    named: NamedTokens,
) -> Result<Parts, TextError> {
    let split = splits::named(vocabulary.pre.as_deref())?;
    if vocabulary.merges.is_empty() {
        return Err(TextError::wrong_key("tokenizer.ggml.merges", None, "a list of merges"));
    }
    let ends = text_ends(&vocabulary, [split.add_bos, false]);
    let merges = std::mem::take(&mut vocabulary.merges);
    let merges = merges.into_iter().enumerate().map(|(index, merge)| split_merge(index, merge));
    let merges = merges.collect::<Result<Vec<_>, _>>()?;
    let pieces = with_ids(vocabulary.tokens);
    let added = added_tokens(&pieces, kinds);
    let kind = Kind::Bpe { merges };
    Ok(Parts { skeleton: byte_level(split), vocabulary: pieces, kind, added, ends: Some(ends), named })
}

/// A tokenizer.json of byte-level BPE with this split.
pub(crate) fn byte_level(split: Split) -> serde_json::Map<String, serde_json::Value> {
    let decoder =
        json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true});
    skeleton([
        ("normalizer", split.normalizer),
        ("pre_tokenizer", split.pre_tokenizer),
        ("decoder", decoder),
        ("model", json!({"type": "BPE", "ignore_merges": split.ignore_merges})),
    ])
}
