//! Log-probabilities in both of the protocol's forms.

use crate::generate::answering::Token;
use gannet_ops::{TokenId, TokenLogprobs};
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

/// The form of completions: lists side by side.
#[derive(Debug, Default)]
pub(crate) struct Lists {
    texts: Vec<String>,
    logprobs: Vec<Option<f32>>,
    top: Vec<Option<Map<String, Value>>>,
    offsets: Vec<usize>,
    /// Characters before the next token.
    pub(crate) offset: usize,
}

impl Lists {
    /// With so many characters before the first token.
    pub(crate) fn behind(offset: usize) -> Self {
        Self { offset, ..Self::default() }
    }

    /// A prompt: its first token has no score.
    pub(crate) fn push_prompt(&mut self, tokenizer: &Tokenizer, ids: &[TokenId], scores: &[TokenLogprobs]) {
        for (place, id) in ids.iter().enumerate() {
            self.push(tokenizer, *id, place.checked_sub(1).and_then(|place| scores.get(place)));
        }
    }

    /// Tokens of an answer.
    pub(crate) fn push_answer(&mut self, tokenizer: &Tokenizer, tokens: &[Token]) {
        for token in tokens.iter().filter(|token| token.logprobs.is_some()) {
            self.push(tokenizer, token.id, token.logprobs.as_ref());
        }
    }

    fn push(&mut self, tokenizer: &Tokenizer, id: TokenId, found: Option<&TokenLogprobs>) {
        let text = text_of(tokenizer, id);
        self.offsets.push(self.offset);
        self.offset += text.chars().count();
        let sampled = found.map(|found| found.sampled.unwrap_or(IMPOSSIBLE).max(IMPOSSIBLE));
        self.top.push(found.map(|found| {
            let mut rivals = Map::new();
            for (id, logprob) in &found.top {
                rivals.entry(text_of(tokenizer, *id)).or_insert(json!(logprob.max(IMPOSSIBLE)));
            }
            rivals.entry(text.clone()).or_insert(json!(sampled));
            rivals
        }));
        self.logprobs.push(sampled);
        self.texts.push(text);
    }

    pub(crate) fn value(self) -> Value {
        let Self { texts, logprobs, top, offsets, .. } = self;
        json!({"tokens": texts, "token_logprobs": logprobs, "top_logprobs": top, "text_offset": offsets})
    }
}

/// The field's form for the scores of a prompt: nothing for the first token, then objects by token id. A rank is told
/// where it is known, among the most likely ones.
pub(crate) fn of_prompt(tokenizer: &Tokenizer, ids: &[TokenId], scores: &[TokenLogprobs]) -> Value {
    let entry = |id: TokenId, logprob: f32, rank: Option<usize>| {
        let text = text_of(tokenizer, id);
        let value = json!({"logprob": logprob.max(IMPOSSIBLE), "rank": rank, "decoded_token": text});
        (id.0.to_string(), value)
    };
    let of_token = |(id, found): (&TokenId, &TokenLogprobs)| {
        let mut entries = Map::new();
        let rank = found.top.iter().position(|(rival, _)| rival == id).map(|place| place + 1);
        entries.extend([entry(*id, found.sampled.unwrap_or(IMPOSSIBLE), rank)]);
        for (place, (rival, logprob)) in found.top.iter().enumerate().filter(|(_, (rival, _))| rival != id) {
            entries.extend([entry(*rival, *logprob, Some(place + 1))]);
        }
        Value::Object(entries)
    };
    let rest = ids.iter().skip(1).zip(scores).map(of_token);
    std::iter::once(Value::Null).chain(rest).collect()
}

fn text_of(tokenizer: &Tokenizer, id: TokenId) -> String {
    tokenizer.token_text(id.0).unwrap_or_default()
}

/// The ids of tokens.
pub(crate) fn ids_of(tokens: &[Token]) -> Vec<u32> {
    tokens.iter().map(|token| token.id.0).collect()
}
