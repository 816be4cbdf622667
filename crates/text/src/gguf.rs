//! A tokenizer from GGUF metadata.
//!
//! The metadata lists pieces, scores or merges, and the name of a splitting rule; this writes down the tokenizer.json
//! that means the same and lets `Tokenizer::assemble` load it. A kind or rule that isn't known exactly is an error:
//! guessing gives a model that almost works.
//!
//! Key meanings: the GGUF specification's `tokenizer.ggml.*` table.
//!
//! SentencePiece models become the same lists (`crate::sentencepiece`), since GGUF took its kinds from there.
//!
//! Knows no GGUF container: the loader fills `GgufVocabulary`.

pub(crate) mod byte_level;
mod normalizer;
mod score_merge;
pub(crate) mod splits;
mod unigram;
mod word_piece;

use crate::error::TextError;
use crate::tokenizer::{NamedTokens, Parts, TextEnds, TokenId, Tokenizer};
use crate::vocabulary::{AddedToken, MAX_VOCABULARY};
use serde_json::{Map, Value, json};

/// The `tokenizer.ggml.*` keys, as they stand in the file; `None` and empty lists stand for missing keys.
#[derive(Debug, Clone, Default)]
pub struct GgufVocabulary {
    /// `model`: the kind, `gpt2`, `llama`, `bert` or `t5`.
    pub model: String,
    /// `pre`: the splitting rule of byte-level vocabularies.
    pub pre: Option<String>,
    /// `tokens`, by id.
    pub tokens: Vec<String>,
    /// `scores`, by id: for `llama` the higher, the earlier a piece is merged; for `t5` the logarithm of its probability.
    pub scores: Vec<f32>,
    /// `token_type`, by id: 1 normal, 2 unknown, 3 control, 4 user-defined, 5 unused, 6 byte.
    pub token_types: Vec<i32>,
    /// `merges`, the most urgent first.
    pub merges: Vec<String>,
    /// `bos_token_id`: beginning of text.
    pub bos: Option<TokenId>,
    /// `eos_token_id`: end of text.
    pub eos: Option<TokenId>,
    /// `eot_token_id`: end of turn.
    pub eot: Option<TokenId>,
    /// `unknown_token_id`.
    pub unknown: Option<TokenId>,
    /// `padding_token_id`.
    pub padding: Option<TokenId>,
    /// `cls_token_id`: the beginning of a text for `bert` kinds.
    pub cls: Option<TokenId>,
    /// `seperator_token_id` (the format spells it so): the end of a text for `bert` kinds.
    pub separator: Option<TokenId>,
    /// `mask_token_id`.
    pub mask: Option<TokenId>,
    /// `add_bos_token`; missing means yes for `llama` and `bert` kinds and the rules that say so, else no.
    pub add_bos: Option<bool>,
    /// `add_eos_token`; missing means yes for `t5` kinds, else no.
    pub add_eos: Option<bool>,
    /// `add_sep_token`; missing means yes for `bert` kinds.
    pub add_separator: Option<bool>,
    /// `add_space_prefix`; missing means yes, for `llama` and `t5` kinds.
    pub add_space_prefix: Option<bool>,
    /// `remove_extra_whitespaces`; missing means yes for `t5` kinds and no for `llama` kinds.
    pub remove_extra_whitespaces: Option<bool>,
    /// `precompiled_charsmap`: the map that SentencePiece models normalise text with.
    pub precompiled_charsmap: Vec<u8>,
    /// `normalizer.lowercase`; missing means yes, for `bert` kinds.
    pub lowercase: Option<bool>,
    /// `normalizer.strip_accents`; missing means as `lowercase`.
    pub strip_accents: Option<bool>,
}

/// What a token is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TokenKind {
    Normal,
    Unknown,
    Control,
    UserDefined,
    Unused,
    Byte,
}

/// Builds the tokenizer that the metadata describes.
///
/// # Errors
/// `UnsupportedKind` for a model or splitting rule that isn't known; else lists of unequal length, ids outside the
/// vocabulary, duplicate tokens, merges of unknown pieces, sizes above their limits.
pub fn tokenizer(vocabulary: GgufVocabulary) -> Result<Tokenizer, TextError> {
    Tokenizer::assemble(parts(vocabulary)?)
}

pub(crate) fn parts(vocabulary: GgufVocabulary) -> Result<Parts, TextError> {
    check_shape(&vocabulary)?;
    let kinds = token_kinds(&vocabulary)?;
    let named = named_tokens(&vocabulary);
    match vocabulary.model.as_str() {
        "gpt2" => byte_level::parts(vocabulary, &kinds, named),
        "llama" => score_merge::parts(vocabulary, &kinds, named),
        "bert" => word_piece::parts(vocabulary, kinds, named),
        "t5" => unigram::parts(vocabulary, &kinds, named),
        other => Err(TextError::UnsupportedKind {
            part: "tokenizer.ggml.model",
            found: other.to_owned(),
            supported: "gpt2, llama, bert, t5",
        }),
    }
}

fn check_shape(vocabulary: &GgufVocabulary) -> Result<(), TextError> {
    let size = vocabulary.tokens.len();
    if size > MAX_VOCABULARY {
        return Err(TextError::TooLarge { what: "the number of tokens", found: size, limit: MAX_VOCABULARY });
    }
    let optional = |len: usize| if len == 0 { size } else { len };
    let lists = [
        ("tokenizer.ggml.token_type", optional(vocabulary.token_types.len())),
        ("tokenizer.ggml.scores", optional(vocabulary.scores.len())),
    ];
    for (key, found) in lists {
        if found != size {
            return Err(TextError::WrongCount { key, found, expected: size });
        }
    }
    let ids = [
        ("tokenizer.ggml.bos_token_id", vocabulary.bos),
        ("tokenizer.ggml.eos_token_id", vocabulary.eos),
        ("tokenizer.ggml.eot_token_id", vocabulary.eot),
        ("tokenizer.ggml.unknown_token_id", vocabulary.unknown),
        ("tokenizer.ggml.padding_token_id", vocabulary.padding),
        ("tokenizer.ggml.cls_token_id", vocabulary.cls),
        ("tokenizer.ggml.seperator_token_id", vocabulary.separator),
        ("tokenizer.ggml.mask_token_id", vocabulary.mask),
    ];
    for (key, id) in ids {
        if let Some(id) = id.filter(|&id| id as usize >= size) {
            return Err(TextError::IdOutsideVocabulary { key, id, vocabulary_size: size });
        }
    }
    Ok(())
}

/// The kind of each token. A file without types has the control tokens that its ids name.
fn token_kinds(vocabulary: &GgufVocabulary) -> Result<Vec<TokenKind>, TextError> {
    if vocabulary.token_types.is_empty() {
        let mut kinds = vec![TokenKind::Normal; vocabulary.tokens.len()];
        for id in [vocabulary.bos, vocabulary.eos, vocabulary.eot].into_iter().flatten() {
            kinds[id as usize] = TokenKind::Control;
        }
        return Ok(kinds);
    }
    let kinds = vocabulary.token_types.iter().enumerate().map(|(id, number)| match number {
        1 => Ok(TokenKind::Normal),
        2 => Ok(TokenKind::Unknown),
        3 => Ok(TokenKind::Control),
        4 => Ok(TokenKind::UserDefined),
        5 => Ok(TokenKind::Unused),
        6 => Ok(TokenKind::Byte),
        other => Err(TextError::WrongKey {
            key: format!("tokenizer.ggml.token_type[{id}]"),
            found: other.to_string(),
            expected: "a number from 1 to 6",
        }),
    });
    kinds.collect()
}

fn named_tokens(vocabulary: &GgufVocabulary) -> NamedTokens {
    let roles = [
        ("bos_token", vocabulary.bos),
        ("eos_token", vocabulary.eos),
        ("eot_token", vocabulary.eot),
        ("unk_token", vocabulary.unknown),
        ("pad_token", vocabulary.padding),
        ("cls_token", vocabulary.cls),
        ("sep_token", vocabulary.separator),
        ("mask_token", vocabulary.mask),
    ];
    let entries = roles
        .into_iter()
        .filter_map(|(role, id)| Some((role.to_owned(), vocabulary.tokens.get(id? as usize)?.clone())));
    NamedTokens { entries: entries.collect() }
}

/// The tokens that are found in the text as they stand: control and unknown ones as special tokens, user-defined ones
/// as text that is never split. Empty ones can't be found.
fn added_tokens(pieces: &[(String, TokenId)], kinds: &[TokenKind]) -> Vec<AddedToken> {
    let found = pieces.iter().zip(kinds).filter(|((text, _), _)| !text.is_empty());
    found
        .filter_map(|((text, id), kind)| {
            let special = match kind {
                TokenKind::Control | TokenKind::Unknown => true,
                TokenKind::UserDefined => false,
                TokenKind::Normal | TokenKind::Unused | TokenKind::Byte => return None,
            };
            let token = tokenizers::AddedToken::from(text.clone(), special).normalized(false);
            Some(AddedToken { id: *id, token })
        })
        .collect()
}

/// What goes around a raw prompt; `by_default` where the file doesn't say: beginning of text, end of text.
fn text_ends(vocabulary: &GgufVocabulary, by_default: [bool; 2]) -> TextEnds {
    let end = |wanted: bool, id: Option<TokenId>| id.filter(|_| wanted).into_iter().collect();
    let [add_bos, add_eos] = by_default;
    TextEnds {
        prefix: end(vocabulary.add_bos.unwrap_or(add_bos), vocabulary.bos),
        suffix: end(vocabulary.add_eos.unwrap_or(add_eos), vocabulary.eos),
    }
}

fn position(kinds: &[TokenKind], wanted: TokenKind) -> Option<TokenId> {
    kinds.iter().position(|kind| *kind == wanted).map(|id| id as TokenId)
}

/// The parts of a tokenizer.json as one, which is how a skeleton is written here.
fn skeleton(parts: [(&str, Value); 4]) -> Map<String, Value> {
    let around = [("version", json!("1.0")), ("post_processor", Value::Null)];
    around.into_iter().chain(parts).map(|(key, value)| (key.to_owned(), value)).collect()
}

fn with_ids(tokens: Vec<String>) -> Vec<(String, TokenId)> {
    tokens.into_iter().zip(0..).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn base() -> GgufVocabulary {
        GgufVocabulary {
            model: "gpt2".to_owned(),
            pre: Some("gpt-2".to_owned()),
            tokens: ["<eos>", "a", "b", "ab"].map(str::to_owned).to_vec(),
            token_types: vec![3, 1, 1, 1],
            merges: vec!["a b".to_owned()],
            eos: Some(0),
            ..GgufVocabulary::default()
        }
    }

    fn refusal(change: impl FnOnce(&mut GgufVocabulary)) -> String {
        let mut vocabulary = base();
        change(&mut vocabulary);
        tokenizer(vocabulary).unwrap_err().to_string()
    }

    #[test]
    fn contradictory_metadata_is_refused_with_its_facts() {
        assert!(tokenizer(base()).is_ok());
        let check = |change: fn(&mut GgufVocabulary), message: &str| assert_eq!(refusal(change), message);
        check(
            |it| it.model = "rwkv".to_owned(),
            "tokenizer.ggml.model `rwkv` is not supported; supported: gpt2, llama, bert, t5",
        );
        let beginning = "is not supported; supported: default, gpt-2,";
        let unknown = refusal(|it| it.pre = Some("grok-9".to_owned()));
        assert!(unknown.starts_with(&format!("tokenizer.ggml.pre `grok-9` {beginning}")), "{unknown}");
        let missing = refusal(|it| it.pre = None);
        assert!(missing.starts_with(&format!("tokenizer.ggml.pre `nothing` {beginning}")), "{missing}");
        check(|it| it.eos = Some(4), "`tokenizer.ggml.eos_token_id` is 4, but the vocabulary has 4 tokens");
        check(
            |it| it.token_types = vec![1],
            "`tokenizer.ggml.token_type` has 1 entries, expected 4, one a token",
        );
        check(
            |it| it.token_types[2] = 9,
            "`tokenizer.ggml.token_type[2]` is `9`, expected a number from 1 to 6",
        );
        check(
            |it| {
                it.tokens.push("b".to_owned());
                it.token_types.push(1);
            },
            "token `b` has two ids, 2 and 4; a vocabulary must be one to one",
        );
        check(
            |it| it.merges = vec!["a c".to_owned()],
            "merge 0 joins `a` and `c`, but `c` is not in the vocabulary",
        );
        check(
            |it| it.merges = vec!["b a".to_owned()],
            "merge 0 joins `b` and `a`, but `ba` is not in the vocabulary",
        );
        check(
            |it| it.merges = vec!["a b".to_owned(), "c a".to_owned(), "c b".to_owned()],
            "merge 1 joins `c` and `a`, but `c` is not in the vocabulary",
        );
        check(
            |it| it.merges = vec!["a b".to_owned(), "ab <eos>".to_owned()],
            "merge 1 joins `ab` and `<eos>`, but `ab<eos>` is not in the vocabulary",
        );
        check(
            |it| it.merges = vec!["ab".to_owned()],
            "merge 0 is `ab`, expected two pieces separated by one space",
        );
        check(|it| it.merges.clear(), "`tokenizer.ggml.merges` is `nothing`, expected a list of merges");
        check(
            |it| it.model = "llama".to_owned(),
            "`tokenizer.ggml.scores` is `nothing`, expected a list of scores, one a token",
        );
        check(
            |it| {
                it.tokens.push("x".repeat(2000));
                it.token_types.push(1);
            },
            "a token's length in bytes is 2000, above the limit of 1024",
        );
    }
}
