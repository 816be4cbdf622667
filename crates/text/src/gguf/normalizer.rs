//! How SentencePiece models, whatever their kind, treat characters and spaces before splitting and after joining.
//!
//! Their normaliser maps characters, takes spaces off the ends, makes one of many, and may put one in front; spaces are
//! then written as `▁` (SentencePiece's `normalizer.cc`).
//!
//! Knows no pieces.

use serde_json::{Value, json};

use super::GgufVocabulary;
use crate::base64;
use crate::tokenizer::SPACES_AT_THE_ENDS;

/// The map of characters, if there is one, and what removes spaces; the caller adds what writes the rest as `▁`.
pub(super) fn steps(vocabulary: &GgufVocabulary, remove_extra_whitespaces: bool) -> Vec<Value> {
    let mut steps = Vec::new();
    if !vocabulary.precompiled_charsmap.is_empty() {
        let map = base64::encode(&vocabulary.precompiled_charsmap);
        steps.push(json!({"type": "Precompiled", "precompiled_charsmap": map}));
    }
    if remove_extra_whitespaces {
        steps.push(json!({"type": "Replace", "pattern": {"Regex": SPACES_AT_THE_ENDS}, "content": ""}));
        steps.push(json!({"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "}));
    }
    steps
}

/// The way back: spaces for `▁`, bytes for `<0xNN>`, and without the space that was put in front.
pub(super) fn decoder(space_prefix: bool) -> Value {
    let mut decoders = vec![
        json!({"type": "Replace", "pattern": {"String": "▁"}, "content": " "}),
        json!({"type": "ByteFallback"}),
        json!({"type": "Fuse"}),
    ];
    if space_prefix {
        decoders.push(json!({"type": "Strip", "content": " ", "start": 1, "stop": 0}));
    }
    json!({"type": "Sequence", "decoders": decoders})
}
