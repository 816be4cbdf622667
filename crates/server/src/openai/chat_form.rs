//! Answers to conversations in the protocol's form: whole, and as chunks.

use super::chunks::{Chunks, DONE};
use super::logprobs::{ids_of, of_chat, of_prompt};
use super::request::Head;
use super::usage::account;
use crate::error::ApiError;
use crate::generate::answering::{Answering, Finish, FinishKind, Token, Update};
use crate::generate::collect::{Call, Whole};
use crate::generate::params::{Extras, Params};
use crate::generate::parts::Part;
use crate::generate::prompt::Prompt;
use crate::http::sse::{Protocol, SseEvent};
use crate::models::Served;
use axum::body::Body;
use axum::http::{HeaderValue, header};
use axum::response::Response;
use gannet_ops::TokenId;
use serde_json::{Map, Value, json};
use std::sync::Arc;

/// A JSON body.
pub(crate) fn json(value: &Value) -> Response {
    let mut response = Response::new(Body::from(value.to_string()));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// The whole answer.
pub(super) fn whole(
    head: &Head,
    served: &Served,
    params: &Params,
    answers: Vec<Whole>,
    answering: &Answering,
    prompt_ids: &[TokenId],
) -> Response {
    let choices = answers.into_iter().enumerate().map(|(index, answer)| {
        let message = message(&answer);
        let mut choice = ended(index, "message", message, answer.finish.as_ref());
        add_tokens(&mut choice, served, params.logprobs, params.extras, &answer.tokens);
        Value::Object(choice)
    });
    let mut object = head.object("chat.completion", choices.collect());
    account(&mut object, params.extras, answering);
    if params.extras.token_ids {
        object.insert("prompt_token_ids".to_owned(), json!(plain(prompt_ids)));
    }
    if params.prompt_logprobs.is_some() {
        let scores = answering.prompt_scores.first().map(Vec::as_slice).unwrap_or_default();
        let scores = of_prompt(&served.text.tokenizer, prompt_ids, scores);
        object.insert("prompt_logprobs".to_owned(), scores);
    }
    json(&Value::Object(object))
}

/// The message of a whole answer.
fn message(answer: &Whole) -> Value {
    let (content, calls) = (answer.content(), answer.calls());
    let content = if content.is_empty() && !calls.is_empty() { Value::Null } else { json!(content) };
    let mut message = json!({"role": "assistant", "content": content, "refusal": null});
    if let Some(reasoning) = answer.reasoning() {
        message["reasoning_content"] = json!(reasoning);
    }
    if !calls.is_empty() {
        let call = |Call { id, name, arguments }: &Call| json!({"id": id, "type": "function", "function": {"name": name, "arguments": arguments}});
        message["tool_calls"] = calls.iter().map(call).collect();
    }
    message
}

/// What a part adds to a message.
fn delta(part: Part) -> Value {
    match part {
        Part::Content(text) => json!({"content": text}),
        Part::Reasoning(text) => json!({"reasoning_content": text}),
        Part::Call { index, id, name } => {
            let function = json!({"name": name, "arguments": ""});
            json!({"tool_calls": [{"index": index, "id": id, "type": "function", "function": function}]})
        }
        Part::Arguments { index, json } => {
            json!({"tool_calls": [{"index": index, "function": {"arguments": json}}]})
        }
    }
}

/// The word for how an answer ended.
pub(super) fn finish_word(finish: Option<&Finish>) -> Value {
    match finish.map(|finish| finish.kind) {
        Some(FinishKind::Stop) => json!("stop"),
        Some(FinishKind::Calls) => json!("tool_calls"),
        Some(FinishKind::Length) => json!("length"),
        None => Value::Null,
    }
}

/// What stopped an answer, where the request named it: a text or a token.
pub(super) fn stop_reason(finish: Option<&Finish>) -> Value {
    let text = finish.and_then(|finish| finish.stop_text.as_ref()).map(|text| json!(text));
    let token = finish.and_then(|finish| finish.stop_token).map(|token| json!(token.0));
    text.or(token).unwrap_or(Value::Null)
}

pub(super) fn plain(ids: &[TokenId]) -> Vec<u32> {
    ids.iter().map(|id| id.0).collect()
}

/// The token ids of a prompt that is not answered.
pub(super) fn rendered(served: &Served, prompt: &Prompt) -> Value {
    json!({"model": served.name, "token_ids": plain(&prompt.ids), "features": null})
}

fn ended(index: usize, name: &str, said: Value, finish: Option<&Finish>) -> Map<String, Value> {
    let mut choice = Map::new();
    choice.insert("index".to_owned(), json!(index));
    choice.insert(name.to_owned(), said);
    choice.insert("logprobs".to_owned(), Value::Null);
    choice.insert("finish_reason".to_owned(), finish_word(finish));
    if finish.is_some() {
        choice.insert("stop_reason".to_owned(), stop_reason(finish));
    }
    choice
}

fn add_tokens(
    choice: &mut Map<String, Value>,
    served: &Served,
    logprobs: Option<u32>,
    extras: Extras,
    tokens: &[Token],
) {
    if logprobs.is_some() {
        choice.insert("logprobs".to_owned(), of_chat(&served.text.tokenizer, tokens));
    }
    if extras.token_ids {
        choice.insert("token_ids".to_owned(), json!(ids_of(tokens)));
    }
}

/// An answer as chunks.
pub(super) struct ChatStream {
    chunks: Chunks,
    served: Arc<Served>,
    logprobs: Option<u32>,
    prompt_ids: Option<Vec<TokenId>>,
    /// Which answers have said who speaks.
    begun: Vec<bool>,
}

impl ChatStream {
    pub(super) fn new(
        head: Head,
        served: Arc<Served>,
        params: &Params,
        with_usage: bool,
        prompt_ids: Option<Vec<TokenId>>,
    ) -> Self {
        let begun = vec![false; params.choices as usize];
        let chunks = Chunks { head, kind: "chat.completion.chunk", extras: params.extras, with_usage };
        Self { chunks, served, logprobs: params.logprobs, prompt_ids, begun }
    }

    fn delta(&self, index: usize, delta: Value, tokens: &[Token], finish: Option<&Finish>) -> SseEvent {
        let mut choice = ended(index, "delta", delta, finish);
        if !tokens.is_empty() {
            add_tokens(&mut choice, &self.served, self.logprobs, self.chunks.extras, tokens);
        }
        Value::Object(self.chunks.chunk(vec![Value::Object(choice)])).into()
    }

    /// Says who speaks, once.
    fn opening(&mut self, index: usize) -> Option<SseEvent> {
        if std::mem::replace(&mut self.begun[index], true) {
            return None;
        }
        let choice = ended(index, "delta", json!({"role": "assistant", "content": ""}), None);
        let mut chunk = self.chunks.chunk(vec![Value::Object(choice)]);
        if let Some(ids) = &self.prompt_ids {
            chunk.insert("prompt_token_ids".to_owned(), json!(plain(ids)));
        }
        Some(Value::Object(chunk).into())
    }
}

impl Protocol for ChatStream {
    fn begin(&mut self) -> Vec<SseEvent> {
        Vec::new()
    }

    fn update(&mut self, update: Update) -> Vec<SseEvent> {
        let Update { choice, parts, mut tokens, finish, progress } = update;
        let mut events: Vec<SseEvent> = progress.iter().map(|it| self.chunks.progress(it)).collect();
        if parts.is_empty() && tokens.is_empty() && finish.is_none() {
            return events;
        }
        events.extend(self.opening(choice));
        for part in parts {
            events.push(self.delta(choice, delta(part), &tokens, None));
            tokens.clear();
        }
        let has_more = !tokens.is_empty() && (self.logprobs.is_some() || self.chunks.extras.token_ids);
        if has_more && finish.is_none() {
            events.push(self.delta(choice, json!({"content": ""}), &tokens, None));
            tokens.clear();
        }
        if finish.is_some() {
            events.push(self.delta(choice, json!({}), &tokens, finish.as_ref()));
        }
        events
    }

    fn end(&mut self, answering: &Answering) -> Vec<SseEvent> {
        self.chunks.end(answering)
    }

    fn fail(&mut self, error: &ApiError) -> Vec<SseEvent> {
        vec![error.body().into()]
    }

    fn trailer(&self) -> &'static str {
        DONE
    }
}
