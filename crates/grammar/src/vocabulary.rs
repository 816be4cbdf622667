//! The bytes of a model's tokens, as llguidance wants them.
//!
//! A token stands for the bytes that it adds to a decoded text, half a character included. Control tokens stand for no
//! text: they are marked by a byte that UTF-8 never has, so that a grammar reaches them by name alone. One entry more
//! than the vocabulary has is the end of the text, so that the model's own end tokens stay the request's matter.
//!
//! Knows no grammar.

use std::sync::Arc;

use gannet_text::tokenizer::Tokenizer;
use llguidance::toktrie::{ApproximateTokEnv, TokEnv, TokRxInfo, TokTrie};

use crate::error::GrammarError;
use crate::limits::{TOKEN_BYTES_MAX, VOCABULARY_BYTES_MAX};

/// Marks a control token's name; no text has this byte.
const MARK: u8 = TokTrie::SPECIAL_TOKEN_MARKER;
/// The name of the end of the text.
const END: &[u8] = b"<|the end of the text|>";

/// The tokens as a tree of bytes.
pub(crate) fn token_tree(tokenizer: &Tokenizer) -> Result<TokEnv, GrammarError> {
    let mut words: Vec<Vec<u8>> =
        (0..tokenizer.vocabulary_size() as u32).map(|id| word(tokenizer, id)).collect();
    let bytes: usize = words.iter().map(Vec::len).sum();
    if bytes > VOCABULARY_BYTES_MAX {
        let what = "the bytes of all tokens";
        return Err(GrammarError::TooLarge { what, found: bytes, limit: VOCABULARY_BYTES_MAX });
    }
    if words.iter().all(Vec::is_empty) {
        return Err(GrammarError::Vocabulary { reason: "no token has any text".to_owned() });
    }
    let end = words.len() as u32;
    words.push([&[MARK], END].concat());
    let tree = TokTrie::from(&TokRxInfo::new(words.len() as u32, end), &words);
    Ok(Arc::new(ApproximateTokEnv::new(tree)))
}

/// Whether tokens spell a text; if not, the place of the first byte that none reaches.
pub(crate) fn spelled(tokens: &TokTrie, text: &[u8]) -> Result<(), usize> {
    let mut is_reached = vec![false; text.len() + 1];
    is_reached[0] = true;
    let mut farthest = 0;
    for start in 0..text.len() {
        if !is_reached[start] {
            continue;
        }
        let mut node = tokens.root();
        for (place, byte) in text.iter().enumerate().skip(start) {
            let Some(next) = tokens.child_at_byte(node, *byte) else { break };
            node = next;
            if node.token_id().is_some() {
                is_reached[place + 1] = true;
                farthest = farthest.max(place + 1);
            }
        }
    }
    if is_reached[text.len()] { Ok(()) } else { Err(farthest) }
}

/// What an id stands for; nothing where it can't be drawn.
fn word(tokenizer: &Tokenizer, id: u32) -> Vec<u8> {
    if tokenizer.is_special(id) {
        let name = tokenizer.token_text(id).unwrap_or_default();
        return if is_fit(name.as_bytes()) { [&[MARK], name.as_bytes()].concat() } else { Vec::new() };
    }
    tokenizer.token_bytes(id).filter(|bytes| is_fit(bytes)).map(<[u8]>::to_vec).unwrap_or_default()
}

/// Whether a token is neither empty nor oversized, and has a place in some text.
fn is_fit(bytes: &[u8]) -> bool {
    (1..=TOKEN_BYTES_MAX).contains(&bytes.len()) && !bytes.contains(&MARK)
}
