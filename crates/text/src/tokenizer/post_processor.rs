//! What the post-processor of a tokenizer.json puts around a text.
//!
//! It is read here and never run: the library follows its tables without looking, and panics where they lead nowhere.
//! Known are the templates that nearly all files have, the two older forms of BERT's and RoBERTa's, and sequences; byte
//! level, which moves offsets alone, puts nothing there.
//!
//! Knows no tokenizer library.

use serde_json::Value;

use super::{TextEnds, TokenId};
use crate::error::{TextError, first_characters};

const SUPPORTED: &str = "ByteLevel, TemplateProcessing, BertProcessing, RobertaProcessing, Sequence";

/// The ids around a text; each is below `vocabulary_size`.
pub(super) fn ends(post_processor: Option<&Value>, vocabulary_size: usize) -> Result<TextEnds, TextError> {
    let mut ends = TextEnds::default();
    for part in parts(post_processor) {
        let inner = match part.get("type").and_then(Value::as_str) {
            Some("ByteLevel") => TextEnds::default(),
            Some("TemplateProcessing") => of_template(part)?,
            Some("BertProcessing" | "RobertaProcessing") => of_pair(part)?,
            Some(_) | None => {
                let found = first_characters(&part.to_string());
                return Err(TextError::UnsupportedKind {
                    part: "post-processor",
                    found,
                    supported: SUPPORTED,
                });
            }
        };
        // The next one of a sequence works on what the one before made.
        ends.prefix.splice(0..0, inner.prefix);
        ends.suffix.extend(inner.suffix);
    }
    let outside = |id: &&TokenId| **id as usize >= vocabulary_size;
    match ends.prefix.iter().chain(&ends.suffix).find(outside) {
        Some(&id) => Err(TextError::IdOutsideVocabulary { key: "post_processor", id, vocabulary_size }),
        None => Ok(ends),
    }
}

/// The part itself, or the parts of a sequence; none for null.
fn parts(post_processor: Option<&Value>) -> Vec<&Value> {
    let Some(part) = post_processor.filter(|part| !part.is_null()) else {
        return Vec::new();
    };
    match part.get("processors").and_then(Value::as_array) {
        Some(parts) if part.get("type").and_then(Value::as_str) == Some("Sequence") => parts.iter().collect(),
        Some(_) | None => vec![part],
    }
}

fn of_template(part: &Value) -> Result<TextEnds, TextError> {
    let key = "post_processor.single";
    let wrong = |found: Option<&Value>| TextError::wrong_key(key, found, "special tokens around one text");
    let pieces = part.get("single").and_then(Value::as_array).ok_or_else(|| wrong(part.get("single")))?;
    let mut ends = TextEnds::default();
    let mut texts = 0;
    for piece in pieces {
        if piece.pointer("/Sequence/id").and_then(Value::as_str) == Some("A") {
            texts += 1;
            continue;
        }
        let name = piece.pointer("/SpecialToken/id").and_then(Value::as_str);
        let ids = name.and_then(|name| part.get("special_tokens")?.get(name)?.get("ids")?.as_array());
        let ids = ids.and_then(|ids| ids.iter().map(token_id).collect::<Option<Vec<_>>>());
        let end = if texts == 0 { &mut ends.prefix } else { &mut ends.suffix };
        end.extend(ids.ok_or_else(|| wrong(Some(piece)))?);
    }
    if texts == 1 { Ok(ends) } else { Err(wrong(part.get("single"))) }
}

/// `cls` and `sep` are each a token and its id.
fn of_pair(part: &Value) -> Result<TextEnds, TextError> {
    let id = |key: &str| {
        let id = part.get(key).and_then(|pair| pair.get(1)).and_then(token_id);
        id.ok_or_else(|| {
            TextError::wrong_key(format!("post_processor.{key}"), part.get(key), "a token and its id")
        })
    };
    Ok(TextEnds { prefix: vec![id("cls")?], suffix: vec![id("sep")?] })
}

fn token_id(value: &Value) -> Option<TokenId> {
    value.as_u64().and_then(|id| TokenId::try_from(id).ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn ends_are_those_of_the_parts_from_the_inside_out() {
        let check = |part: Value, prefix: &[TokenId], suffix: &[TokenId]| {
            let found = ends(Some(&part), 10).unwrap();
            assert_eq!((found.prefix.as_slice(), found.suffix.as_slice()), (prefix, suffix), "{part}");
        };
        let template = json!({
            "type": "TemplateProcessing",
            "single": [{"SpecialToken": {"id": "<s>"}}, {"Sequence": {"id": "A"}}, {"SpecialToken": {"id": "</s>"}}],
            "special_tokens": {"<s>": {"ids": [1, 2]}, "</s>": {"ids": [3]}},
        });
        let bert = json!({"type": "BertProcessing", "sep": ["[SEP]", 5], "cls": ["[CLS]", 4]});
        check(Value::Null, &[], &[]);
        check(json!({"type": "ByteLevel"}), &[], &[]);
        check(template.clone(), &[1, 2], &[3]);
        check(bert.clone(), &[4], &[5]);
        check(json!({"type": "Sequence", "processors": [template, bert]}), &[4, 1, 2], &[3, 5]);
    }

    #[test]
    fn tables_that_lead_nowhere_are_refused() {
        let check = |part: Value, message: &str| {
            let error = ends(Some(&part), 10).unwrap_err().to_string();
            assert!(error.starts_with(message), "{error}");
        };
        let text = json!({"Sequence": {"id": "A"}});
        let template =
            |single: Value| json!({"type": "TemplateProcessing", "single": single, "special_tokens": {}});
        check(
            template(json!([text, text])),
            "`post_processor.single` is `a list of 2`, expected special tokens",
        );
        check(
            template(json!([])),
            "`post_processor.single` is `a list of 0`, expected special tokens around one",
        );
        check(
            template(json!([{"Sequence": {"id": "B"}}])),
            "`post_processor.single` is `an object of 1`, expected",
        );
        check(
            template(json!([{"SpecialToken": {"id": "x"}}, text])),
            "`post_processor.single` is `an object of 1`",
        );
        check(
            json!({"type": "RobertaProcessing", "sep": ["a", 1]}),
            "`post_processor.cls` is `nothing`, expected a token",
        );
        check(
            json!({"type": "BertProcessing", "sep": ["a", 1], "cls": ["b", 10]}),
            "`post_processor` is 10, but the vocabulary has 10 tokens",
        );
        check(
            json!({"type": "Other"}),
            "post-processor `{\"type\":\"Other\"}` is not supported; supported: ByteLevel,",
        );
    }
}
