//! Which spelling the decoder of a tokenizer.json stands for.
//!
//! The decoders of byte-level, SentencePiece and WordPiece tokenizers are known, each other one is refused.
//!
//! Knows no pieces.

use serde_json::{Map, Value, json};

use crate::error::{TextError, first_characters};
use crate::vocabulary::Spelling;

const SUPPORTED: &str =
    "ByteLevel, Metaspace, WordPiece, and sequences of Replace(▁), ByteFallback, Fuse, Strip(space)";

/// How the decoder turns pieces into text.
pub(super) fn of_decoder(skeleton: &Map<String, Value>) -> Result<Spelling, TextError> {
    let decoder = skeleton.get("decoder").unwrap_or(&Value::Null);
    let steps = match decoder.get("type").and_then(Value::as_str) {
        Some("Sequence") => decoder.get("decoders").and_then(Value::as_array).cloned().unwrap_or_default(),
        _ => vec![decoder.clone()],
    };
    let (mut byte_fallback, mut leading_spaces) = (false, 0);
    for step in &steps {
        let text = |key: &str| step.get(key).and_then(Value::as_str);
        match text("type") {
            Some("ByteLevel") if steps.len() == 1 => return Ok(Spelling::ByteLevel),
            Some("WordPiece") if steps.len() == 1 && text("prefix") == Some("##") => {
                let cleanup = step.get("cleanup").and_then(Value::as_bool).unwrap_or(true);
                return Ok(Spelling::WordPieces { cleanup });
            }
            Some("Replace")
                if *step == json!({"type": "Replace", "pattern": {"String": "▁"}, "content": " "}) => {}
            Some("ByteFallback") => byte_fallback = true,
            Some("Fuse") => {}
            Some("Strip") if text("content") == Some(" ") && step.get("stop") == Some(&json!(0)) => {
                leading_spaces = step.get("start").and_then(Value::as_u64).unwrap_or(0) as usize;
            }
            Some("Metaspace") if text("replacement") == Some("▁") => {
                let never = text("prepend_scheme") == Some("never")
                    || step.get("add_prefix_space") == Some(&Value::Bool(false));
                leading_spaces = usize::from(!never);
            }
            Some(_) | None => {
                let found = first_characters(&step.to_string());
                return Err(TextError::UnsupportedKind { part: "decoder", found, supported: SUPPORTED });
            }
        }
    }
    Ok(Spelling::Pieces { byte_fallback, leading_spaces })
}
