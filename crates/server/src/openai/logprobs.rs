//! Log-probabilities in both of the protocol's forms.

use crate::generate::answering::Token;
use gannet_ops::TokenId;
use gannet_text::tokenizer::Tokenizer;
use serde_json::{Map, Value, json};

/// What stands for a probability of zero, which JSON has no number for.
const IMPOSSIBLE: f32 = -9999.0;

/// The form of chats: a list of tokens with their rivals.
pub(crate) fn of_chat(tokenizer: &Tokenizer, tokens: &[Token]) -> Value {
    let entries: Vec<Value> = tokens.iter().filter_map(|token| chat_entry(tokenizer, token)).collect();
    json!({"content": entries, "refusal": null})
}

fn chat_entry(tokenizer: &Tokenizer, token: &Token) -> Option<Value> {
    let found = token.logprobs.as_ref()?;
    let mut entry = named(tokenizer, token.id, found.sampled.unwrap_or(IMPOSSIBLE));
    let top: Vec<Value> =
        found.top.iter().map(|(id, logprob)| Value::Object(named(tokenizer, *id, *logprob))).collect();
    entry.insert("top_logprobs".to_owned(), Value::Array(top));
    Some(Value::Object(entry))
}

fn named(tokenizer: &Tokenizer, id: TokenId, logprob: f32) -> Map<String, Value> {
    let bytes = tokenizer.token_bytes(id.0).unwrap_or_default();
    let mut entry = Map::new();
    entry.insert("token".to_owned(), json!(text_of(tokenizer, id)));
    entry.insert("logprob".to_owned(), json!(logprob.max(IMPOSSIBLE)));
    entry.insert("bytes".to_owned(), json!(bytes));
    entry
}

/// The form of completions: lists side by side. `offset` counts the characters before these tokens, and goes on.
pub(crate) fn of_completion(tokenizer: &Tokenizer, tokens: &[Token], offset: &mut usize) -> Value {
    let (mut texts, mut logprobs, mut top, mut offsets) = (vec![], vec![], vec![], vec![]);
    for token in tokens {
        let Some(found) = &token.logprobs else { continue };
        let text = text_of(tokenizer, token.id);
        let sampled = found.sampled.unwrap_or(IMPOSSIBLE).max(IMPOSSIBLE);
        offsets.push(*offset);
        *offset += text.chars().count();
        let mut rivals = Map::new();
        for (id, logprob) in &found.top {
            rivals.entry(text_of(tokenizer, *id)).or_insert(json!(logprob.max(IMPOSSIBLE)));
        }
        rivals.entry(text.clone()).or_insert(json!(sampled));
        texts.push(text);
        logprobs.push(sampled);
        top.push(rivals);
    }
    json!({"tokens": texts, "token_logprobs": logprobs, "top_logprobs": top, "text_offset": offsets})
}

fn text_of(tokenizer: &Tokenizer, id: TokenId) -> String {
    tokenizer.token_text(id.0).unwrap_or_default()
}

/// The ids of tokens.
pub(crate) fn ids_of(tokens: &[Token]) -> Vec<u32> {
    tokens.iter().map(|token| token.id.0).collect()
}
