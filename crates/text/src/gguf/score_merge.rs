//! `llama`: SentencePiece BPE. Neighbours merge in the order of the merged piece's score; characters without a piece
//! become bytes.
//!
//! The file has scores where tokenizer.json has merges, so the merges are made here: each way to cut a piece into two
//! pieces is a merge. Ordered by score, then the longer left half, then the longer right half, then id, they are the
//! list that the models' own tokenizer.json files hold, entry by entry (Gemma 3: all 514,906). It is BPE, not Unigram:
//! Unigram finds the best-scored segmentation, which is a different one.
//!
//! Knows no splitting rule: there is none, a text is one run.

use std::cmp::Ordering;
use std::thread;

use ahash::AHashSet;
use serde_json::{Map, Value, json};

use super::{GgufVocabulary, TokenKind, added_tokens, normalizer, position, skeleton, text_ends, with_ids};
use crate::error::TextError;
use crate::tokenizer::{Kind, NamedTokens, Parts, TokenId};
use crate::vocabulary::{CutBudget, MAX_TOKEN_BYTES};

/// Threads that cut pieces, at most: beyond, the library's own reading of the merges takes longer.
const CUTTERS_MAX: usize = 4;

/// SentencePiece gives user-defined pieces this score, above all learned ones.
const USER_DEFINED_SCORE: f32 = 0.0;

pub(super) fn parts(
    mut vocabulary: GgufVocabulary,
    kinds: &[TokenKind],
    named: NamedTokens,
) -> Result<Parts, TextError> {
    if vocabulary.scores.is_empty() {
        return Err(TextError::wrong_key("tokenizer.ggml.scores", None, "a list of scores, one a token"));
    }
    let unknown = vocabulary.unknown.or_else(|| position(kinds, TokenKind::Unknown));
    let unknown = unknown.map(|id| vocabulary.tokens[id as usize].clone());
    let skeleton = merging(&vocabulary, unknown);
    let ends = text_ends(&vocabulary, [true, false]);
    let mut scores = std::mem::take(&mut vocabulary.scores);
    for (score, _) in scores.iter_mut().zip(kinds).filter(|(_, kind)| **kind == TokenKind::UserDefined) {
        *score = USER_DEFINED_SCORE;
    }
    let mut pieces = with_ids(vocabulary.tokens);
    restore_spaces(&mut pieces, kinds);
    let merges = merges(&pieces, &scores, kinds)?;
    let added = added_tokens(&pieces, kinds);
    let kind = Kind::Bpe { merges };
    Ok(Parts { skeleton, vocabulary: pieces, kind, added, ends: Some(ends), named })
}

/// Runs of spaces are user-defined pieces of `▁`; conversion to GGUF writes them as spaces.
fn restore_spaces(pieces: &mut [(String, TokenId)], kinds: &[TokenKind]) {
    let runs: Vec<usize> = (0..pieces.len())
        .filter(|&id| kinds[id] == TokenKind::UserDefined)
        .filter(|&id| !pieces[id].0.is_empty() && pieces[id].0.bytes().all(|byte| byte == b' '))
        .collect();
    let taken: Vec<String> =
        pieces.iter().map(|(text, _)| text.clone()).filter(|text| is_run(text)).collect();
    for id in runs {
        let restored = pieces[id].0.replace(' ', "▁");
        if !taken.contains(&restored) {
            pieces[id].0 = restored;
        }
    }
}

fn is_run(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|letter| letter == '▁')
}

/// One way to cut a piece in two, with what it is ordered by.
struct Cut {
    score: f32,
    left_chars: u32,
    right_chars: u32,
    piece: u32,
    left_bytes: u32,
}

impl Cut {
    fn order(&self, other: &Self) -> Ordering {
        other
            .score
            .total_cmp(&self.score)
            .then(other.left_chars.cmp(&self.left_chars))
            .then(other.right_chars.cmp(&self.right_chars))
            .then(self.piece.cmp(&other.piece))
    }
}

/// All merges, the most urgent first. Control tokens and bytes are neither halves nor results: text must not spell them.
fn merges(
    pieces: &[(String, TokenId)],
    scores: &[f32],
    kinds: &[TokenKind],
) -> Result<Vec<(String, String)>, TextError> {
    let mergeable = |id: &usize| match kinds[*id] {
        TokenKind::Normal | TokenKind::UserDefined | TokenKind::Unused => true,
        TokenKind::Unknown | TokenKind::Control | TokenKind::Byte => false,
    };
    let candidates: Vec<usize> = (0..pieces.len()).filter(mergeable).collect();
    let mut budget = CutBudget::default();
    for id in &candidates {
        let found = pieces[*id].0.len();
        if found > MAX_TOKEN_BYTES {
            return Err(TextError::TooLarge {
                what: "a token's length in bytes",
                found,
                limit: MAX_TOKEN_BYTES,
            });
        }
        budget.spend(found)?;
    }
    let known: AHashSet<&str> = candidates.iter().map(|id| pieces[*id].0.as_str()).collect();
    let cut_all = |ids: &[usize]| {
        let cuts = ids.iter().flat_map(|id| cuts(*id, &pieces[*id].0, scores[*id], &known));
        cuts.collect::<Vec<Cut>>()
    };
    let threads = thread::available_parallelism().map_or(1, |count| count.get().min(CUTTERS_MAX));
    let mut cuts = thread::scope(|scope| {
        let shares = candidates.chunks(candidates.len().div_ceil(threads).max(1));
        let cutters: Vec<_> = shares.map(|share| scope.spawn(|| cut_all(share))).collect();
        cutters
            .into_iter()
            .flat_map(|cutter| cutter.join().expect("cutting can't fail"))
            .collect::<Vec<Cut>>()
    });
    cuts.sort_unstable_by(Cut::order);
    let halves = cuts.into_iter().map(|cut| {
        let (left, right) = pieces[cut.piece as usize].0.split_at(cut.left_bytes as usize);
        (left.to_owned(), right.to_owned())
    });
    Ok(halves.collect())
}

/// The ways to cut a piece into two that are known.
fn cuts<'a>(
    id: usize,
    text: &'a str,
    score: f32,
    known: &'a AHashSet<&str>,
) -> impl Iterator<Item = Cut> + 'a {
    let chars = text.chars().count() as u32;
    let places = (0..).zip(text.char_indices()).skip(1);
    let is_merge =
        |(_, (cut, _)): &(u32, (usize, char))| known.contains(&text[..*cut]) && known.contains(&text[*cut..]);
    places.filter(is_merge).map(move |(left_chars, (cut, _))| Cut {
        score,
        left_chars,
        right_chars: chars - left_chars,
        piece: id as u32,
        left_bytes: cut as u32,
    })
}

fn merging(vocabulary: &GgufVocabulary, unknown: Option<String>) -> Map<String, Value> {
    let space_prefix = vocabulary.add_space_prefix.unwrap_or(true);
    let mut normalizers = normalizer::steps(vocabulary, vocabulary.remove_extra_whitespaces.unwrap_or(false));
    if space_prefix {
        normalizers.push(json!({"type": "Prepend", "prepend": "▁"}));
    }
    normalizers.push(json!({"type": "Replace", "pattern": {"String": " "}, "content": "▁"}));
    skeleton([
        ("normalizer", json!({"type": "Sequence", "normalizers": normalizers})),
        ("pre_tokenizer", Value::Null),
        ("decoder", normalizer::decoder(space_prefix)),
        ("model", json!({"type": "BPE", "unk_token": unknown, "fuse_unk": true, "byte_fallback": true})),
    ])
}
