//! `gpt2`: byte-level BPE with listed merges. The vocabularies of this kind differ in how they split text before merging.
//!
//! The rules are those of the models' own tokenizer.json files: `Digits` and `ByteLevel` for SmolLM2, and a regular
//! expression each for Qwen 2 and Llama 3.
//!
//! Knows no scores.

use serde_json::{Map, Value, json};

use super::{GgufVocabulary, TokenKind, added_tokens, text_ends, with_ids};
use crate::error::TextError;
use crate::tokenizer::{NamedTokens, Parts, check_merges, split_merge};

/// How a text is split before merging, and what goes with it.
struct Split {
    pre_tokenizer: Value,
    normalizer: Value,
    /// Whether a whole split that is in the vocabulary is one token, whatever its merges.
    ignore_merges: bool,
    add_bos: bool,
}

pub(super) fn parts(
    mut vocabulary: GgufVocabulary,
    kinds: &[TokenKind],
    named: NamedTokens,
) -> Result<Parts, TextError> {
    let split = split(vocabulary.pre.as_deref())?;
    if vocabulary.merges.is_empty() {
        return Err(TextError::wrong_key("tokenizer.ggml.merges", None, "a list of merges"));
    }
    let ends = text_ends(&vocabulary, split.add_bos);
    let merges = std::mem::take(&mut vocabulary.merges);
    let merges = merges.into_iter().enumerate().map(|(index, merge)| split_merge(index, merge));
    let merges = merges.collect::<Result<Vec<_>, _>>()?;
    let pieces = with_ids(vocabulary.tokens);
    check_merges(&pieces, &merges)?;
    let added = added_tokens(&pieces, kinds);
    Ok(Parts { skeleton: skeleton(split), vocabulary: pieces, merges, added, ends: Some(ends), named })
}

fn skeleton(split: Split) -> Map<String, Value> {
    let byte_level =
        json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true});
    let entries = [
        ("version", json!("1.0")),
        ("normalizer", split.normalizer),
        ("pre_tokenizer", split.pre_tokenizer),
        ("post_processor", Value::Null),
        ("decoder", byte_level),
        ("model", json!({"type": "BPE", "ignore_merges": split.ignore_merges})),
    ];
    entries.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
}

fn split(pre: Option<&str>) -> Result<Split, TextError> {
    let plain = |pre_tokenizer| Split {
        pre_tokenizer,
        normalizer: Value::Null,
        ignore_merges: false,
        add_bos: false,
    };
    match pre {
        Some("gpt-2") => Ok(plain(bytes_of_words())),
        Some("smollm") => {
            let digits = json!({"type": "Digits", "individual_digits": true});
            Ok(plain(sequence(digits, bytes_of_words())))
        }
        Some("qwen2") => {
            Ok(Split { normalizer: json!({"type": "NFC"}), ..plain(words_with_digits(r"\p{N}")) })
        }
        Some("llama-bpe") => {
            Ok(Split { ignore_merges: true, add_bos: true, ..plain(words_with_digits(r"\p{N}{1,3}")) })
        }
        Some(_) | None => Err(TextError::UnsupportedKind {
            part: "tokenizer.ggml.pre",
            found: pre.unwrap_or("nothing").to_owned(),
            supported: "gpt-2, llama-bpe, qwen2, smollm",
        }),
    }
}

/// GPT-2's own words, each then written in the byte-level alphabet.
fn bytes_of_words() -> Value {
    json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true})
}

/// The words of GPT-4's family: contractions in any case, one leading mark a word, digits in groups of `digits`.
fn words_with_digits(digits: &str) -> Value {
    let pattern = format!(
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|{digits}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    );
    let split =
        json!({"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": false});
    let bytes =
        json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false, "use_regex": false});
    sequence(split, bytes)
}

fn sequence(first: Value, second: Value) -> Value {
    json!({"type": "Sequence", "pretokenizers": [first, second]})
}
