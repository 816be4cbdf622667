//! Whether the tokenizer fits the model: sizes, splitting rule, ids with a meaning.

use super::Check;
use crate::commands::end_token_ids;
use gannet_formats::Source;
use gannet_loader::Opened;
use gannet_ops::TokenId;
use gannet_text::text::Text;

/// The kind of vocabulary that splits text by a rule; the key means nothing to others.
const BYTE_LEVEL: &str = "gpt2";
/// The splitting rule that files name when their converter didn't know the tokenizer.
const UNKNOWN_RULE: &str = "default";
/// A vocabulary that fills less of the embedding than this share is probably another model's.
const SHARE_MIN: f64 = 0.9;

/// All checks of the vocabulary.
pub(super) fn checks(opened: &Opened, text: &Text) -> Vec<Check> {
    let mut checks = vec![size(opened, text)];
    checks.extend(splitting(opened));
    checks.push(special_ids(opened, text));
    checks.push(end_tokens(opened, text));
    checks
}

fn size(opened: &Opened, text: &Text) -> Check {
    let (tokens, rows) = (text.tokenizer.vocabulary_size(), opened.model.config.vocabulary);
    let detail = format!("{tokens} tokens, and the embedding has {rows} rows");
    if tokens > rows {
        return Check::fault("vocabulary", format!("{detail}: the last {} tokens have none", tokens - rows));
    }
    if (tokens as f64) < SHARE_MIN * rows as f64 {
        return Check::note("vocabulary", format!("{detail}: the tokenizer may be another model's"));
    }
    Check::ok("vocabulary", detail)
}

/// The rule by which a byte-level vocabulary splits text, which GGUF files name.
fn splitting(opened: &Opened) -> Option<Check> {
    let Source::Gguf(metadata) = &opened.checkpoint.source else { return None };
    let text = |key: &str| metadata.opt_str(key).ok().flatten();
    if text("tokenizer.ggml.model") != Some(BYTE_LEVEL) {
        return None;
    }
    Some(match text("tokenizer.ggml.pre")? {
        UNKNOWN_RULE => Check::note(
            "splitting rule",
            "`default`: the converter didn't know this tokenizer, so that numbers and words may be split wrongly; look \
             for a newer conversion",
        ),
        rule => Check::ok("splitting rule", format!("`{rule}`")),
    })
}

/// Ids that the model's files name must be tokens.
fn special_ids(opened: &Opened, text: &Text) -> Check {
    let tokens = &opened.model.tokens;
    let named = tokens.bos.iter().chain(&tokens.eos);
    let is_unknown = |id: &&TokenId| text.tokenizer.token_bytes(id.0).is_none();
    let unknown: Vec<String> = named.clone().filter(is_unknown).map(|id| id.0.to_string()).collect();
    if !unknown.is_empty() {
        let size = text.tokenizer.vocabulary_size();
        let ids = unknown.join(", ");
        return Check::fault(
            "special ids",
            format!("{ids}: no token of the vocabulary of {size} has this id"),
        );
    }
    let spelled = |id: &TokenId| format!("{} {}", id.0, spelling(text, *id));
    let all: Vec<String> = named.map(spelled).collect();
    Check::ok("special ids", if all.is_empty() { "none are named".to_owned() } else { all.join(", ") })
}

/// Something has to end an answer, and no text should be able to spell it.
fn end_tokens(opened: &Opened, text: &Text) -> Check {
    let ends = end_token_ids(&opened.model, Some(text));
    if ends.is_empty() {
        return Check::fault("end tokens", "none: an answer would only end at its limit");
    }
    let plain: Vec<String> = ends
        .iter()
        .filter(|id| text.tokenizer.token_bytes(id.0).is_some() && !text.tokenizer.is_special(id.0))
        .map(|id| spelling(text, *id))
        .collect();
    if !plain.is_empty() {
        let detail =
            format!("{} ends answers and is no control token, so that a text may spell it", plain.join(", "));
        return Check::note("end tokens", detail);
    }
    Check::ok("end tokens", ends.iter().map(|id| spelling(text, *id)).collect::<Vec<_>>().join(", "))
}

/// A token for the eye.
pub(super) fn spelling(text: &Text, id: TokenId) -> String {
    let known = text.tokenizer.token_text(id.0);
    known.map_or_else(|| id.0.to_string(), |known| format!("`{}`", known.escape_debug()))
}
