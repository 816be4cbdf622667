//! tiktoken files (`*.tiktoken`, `tiktoken.model`): the tokens of a byte-level vocabulary in base64, each with its rank.
//!
//! A rank is the token's id and says how urgent the merge is that makes it; so each way to cut a token into two tokens is
//! a merge, ordered by the rank of the whole, then of the left half, then of the right. A whole word that is a token is
//! one, whatever its merges. How text is split stands in no file but in the Python code beside it, so it goes by the
//! class that tokenizer_config.json names.
//!
//! Knows no scores.

use std::collections::HashMap;

use crate::base64;
use crate::error::{TextError, first_characters};
use crate::gguf::byte_level::byte_level;
use crate::gguf::splits::{self, Split};
use crate::tokenizer::{Kind, NamedTokens, Parts, TokenId, Tokenizer, TokenizerConfig};
use crate::vocabulary::{AddedToken, ByteLetters, CutBudget, MAX_TOKEN_BYTES, MAX_VOCABULARY};

/// Largest file; those of the largest public vocabularies have 4 MB.
const MAX_FILE_BYTES: usize = 1 << 26;

/// A class of tiktoken files, and what its code says.
struct Class {
    name: &'static str,
    /// A name in `tokenizer.ggml.pre` for the same rule.
    split: &'static str,
    /// The special tokens behind the ranks, given the first free id.
    specials: fn(TokenId) -> Vec<String>,
}

const CLASSES: [Class; 4] = [
    Class { name: "QWenTokenizer", split: "qwen2", specials: qwen_specials },
    Class { name: "TikTokenTokenizer", split: "kimi-k2", specials: kimi_specials },
    Class { name: "HYTokenizer", split: "hunyuan", specials: |_| Vec::new() },
    Class { name: "ChatGLM4Tokenizer", split: "glm4", specials: |_| Vec::new() },
];
const SUPPORTED: &str = "QWenTokenizer, TikTokenTokenizer, HYTokenizer, ChatGLM4Tokenizer";

fn qwen_specials(_: TokenId) -> Vec<String> {
    let names = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"].map(str::to_owned);
    names.into_iter().chain((0..205).map(|number| format!("<|extra_{number}|>"))).collect()
}

fn kimi_specials(first: TokenId) -> Vec<String> {
    (first..first + 256).map(|id| format!("<|reserved_token_{id}|>")).collect()
}

impl Tokenizer {
    /// Reads a tiktoken file and what tokenizer_config.json adds to it: the class, and the names of special tokens.
    ///
    /// # Errors
    /// `MalformedRank`, `DuplicateToken`, `DuplicateId`; an unknown class; sizes above their limits.
    pub fn from_tiktoken(file: &[u8], config: &TokenizerConfig) -> Result<Self, TextError> {
        let name = config.class.as_deref().unwrap_or("nothing");
        let class = CLASSES.iter().find(|class| class.name == name).ok_or(TextError::UnsupportedKind {
            part: "tokenizer_class of a tiktoken file",
            found: name.to_owned(),
            supported: SUPPORTED,
        })?;
        let tokens = ranked_tokens(file)?;
        let split = Split { ignore_merges: true, ..splits::named(Some(class.split))? };
        let mut parts = Parts {
            skeleton: byte_level(split),
            kind: Kind::Bpe { merges: merges(&tokens)? },
            added: specials(class, &tokens),
            vocabulary: spelled(&tokens),
            ends: None,
            named: NamedTokens::default(),
        };
        config.extend(&mut parts, [false, false])?;
        Self::assemble(parts)
    }

    /// Whether the bytes of a tokenizer.model are tiktoken lines, which some repositories call so.
    pub fn is_tiktoken(file: &[u8]) -> bool {
        let first = file.split(|&byte| byte == b'\n').next().unwrap_or_default();
        std::str::from_utf8(first).is_ok_and(|line| ranked_token(line).is_some())
    }
}

/// The tokens by rank.
fn ranked_tokens(file: &[u8]) -> Result<Vec<(Vec<u8>, TokenId)>, TextError> {
    if file.len() > MAX_FILE_BYTES {
        let (found, limit) = (file.len(), MAX_FILE_BYTES);
        return Err(TextError::TooLarge { what: "the length of the tiktoken file in bytes", found, limit });
    }
    let text = String::from_utf8_lossy(file);
    let mut tokens = Vec::new();
    for (number, line) in text.lines().enumerate().filter(|(_, line)| !line.is_empty()) {
        let token = ranked_token(line);
        tokens.push(
            token.ok_or_else(|| TextError::MalformedRank {
                line: number + 1,
                found: first_characters(line),
            })?,
        );
    }
    tokens.sort_by_key(|(_, rank)| *rank);
    // The rank is the place in every list from here on.
    match tokens.iter().zip(0..).find(|((_, rank), place)| rank != place) {
        Some(((_, rank), place)) => {
            let (key, found) = (format!("rank {place} of the tiktoken file"), rank.to_string());
            Err(TextError::WrongKey { key, found, expected: "each rank once, from 0 up" })
        }
        None => Ok(tokens),
    }
}

fn ranked_token(line: &str) -> Option<(Vec<u8>, TokenId)> {
    let (token, rank) = line.split_once(' ')?;
    let rank: TokenId = rank.trim_end().parse().ok().filter(|&rank| (rank as usize) < MAX_VOCABULARY)?;
    let token = base64::decode(token)?;
    (1..=MAX_TOKEN_BYTES).contains(&token.len()).then_some((token, rank))
}

fn spelled(tokens: &[(Vec<u8>, TokenId)]) -> Vec<(String, TokenId)> {
    let letters = ByteLetters::new();
    tokens.iter().map(|(token, rank)| (letters.write(token), *rank)).collect()
}

fn merges(tokens: &[(Vec<u8>, TokenId)]) -> Result<Vec<(String, String)>, TextError> {
    let ranks: HashMap<&[u8], TokenId> = tokens.iter().map(|(token, rank)| (&token[..], *rank)).collect();
    let letters = ByteLetters::new();
    let mut budget = CutBudget::default();
    let mut merges = Vec::new();
    for (token, _) in tokens {
        budget.spend(token.len())?;
        let cuts = (1..token.len()).map(|cut| token.split_at(cut));
        let mut halves: Vec<(TokenId, TokenId, usize)> = cuts
            .filter_map(|(left, right)| Some((*ranks.get(left)?, *ranks.get(right)?, left.len())))
            .collect();
        halves.sort_unstable();
        merges.extend(halves.into_iter().map(|(_, _, cut)| {
            let (left, right) = token.split_at(cut);
            (letters.write(left), letters.write(right))
        }));
    }
    Ok(merges)
}

fn specials(class: &Class, tokens: &[(Vec<u8>, TokenId)]) -> Vec<AddedToken> {
    let first = tokens.len() as TokenId;
    let token = |name: String| tokenizers::AddedToken::from(name, true).normalized(false);
    (class.specials)(first)
        .into_iter()
        .zip(first..)
        .map(|(name, id)| AddedToken { id, token: token(name) })
        .collect()
}
