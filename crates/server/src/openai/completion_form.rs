//! Answers to texts in the protocol's form: whole, and as chunks.

use super::chat_form::{finish_word, json, plain, stop_reason};
use super::chunks::{Chunks, DONE};
use super::logprobs::{Lists, ids_of, of_prompt};
use super::request::Head;
use super::usage::{account, usage};
use crate::error::ApiError;
use crate::generate::answering::{Answering, Finish, FinishKind, Total, Update};
use crate::generate::collect::Whole;
use crate::generate::params::Params;
use crate::generate::parts::Part;
use crate::generate::prompt::Prompt;
use crate::http::sse::{Protocol, SseEvent};
use crate::models::Served;
use axum::response::Response;
use gannet_ops::TokenId;
use serde_json::{Map, Value, json};
use std::sync::Arc;

/// What is said of the prompts.
pub(super) struct Echo {
    /// Their texts, where the answers are to begin with them.
    pub(super) texts: Option<Vec<String>>,
    /// Their ids.
    pub(super) prompts: Vec<Vec<TokenId>>,
    /// Whether the scores of their tokens are told.
    pub(super) tells_scores: bool,
    /// Answers to each.
    pub(super) choices: usize,
}

impl Echo {
    fn text(&self, choice: usize) -> &str {
        self.texts.as_ref().map_or("", |texts| &texts[choice / self.choices])
    }
}

/// The whole answer.
pub(super) fn whole(
    head: &Head,
    served: &Served,
    params: &Params,
    answers: Vec<Whole>,
    answering: &Answering,
    echo: &Echo,
) -> Response {
    let tokenizer = &served.text.tokenizer;
    let choices = answers.into_iter().enumerate().map(|(index, answer)| {
        let before = echo.text(index);
        let mut choice = ended(index, &format!("{before}{}", answer.content()), answer.finish.as_ref());
        let prompt = index / echo.choices;
        let (ids, scores) = (&echo.prompts[prompt], &answering.prompt_scores[prompt]);
        if params.logprobs.is_some() {
            let mut lists = Lists::behind(if echo.texts.is_some() { 0 } else { before.chars().count() });
            if echo.texts.is_some() {
                lists.push_prompt(tokenizer, ids, scores);
            }
            lists.push_answer(tokenizer, &answer.tokens);
            choice.insert("logprobs".to_owned(), lists.value());
        }
        if params.extras.token_ids {
            choice.insert("token_ids".to_owned(), json!(ids_of(&answer.tokens)));
            choice.insert("prompt_token_ids".to_owned(), json!(plain(ids)));
        }
        if echo.tells_scores {
            choice.insert("prompt_logprobs".to_owned(), of_prompt(tokenizer, ids, scores));
        }
        Value::Object(choice)
    });
    let mut object = head.object("text_completion", choices.collect());
    account(&mut object, params.extras, answering);
    json(&Value::Object(object))
}

/// The prompts alone, for requests of no tokens.
pub(super) fn echo_alone(head: &Head, prompts: &[Prompt], params: &Params, echo: &Echo) -> Response {
    let cut = cut_at_once();
    let count = prompts.len() * params.choices as usize;
    let choices = (0..count).map(|index| Value::Object(ended(index, echo.text(index), cut.finish.as_ref())));
    let prompt_tokens = prompts.iter().map(|prompt| prompt.ids.len() as u64).sum();
    let cut_tokens = prompts.iter().map(|prompt| prompt.cut_tokens as u64).sum();
    let mut object = head.object("text_completion", choices.collect());
    object.insert("usage".to_owned(), usage(&Total { prompt_tokens, cut_tokens, ..Total::default() }));
    json(&Value::Object(object))
}

/// An answer of no tokens.
pub(super) fn cut_at_once() -> Whole {
    let finish = Finish { kind: FinishKind::Length, stop_text: None, stop_token: None };
    Whole { finish: Some(finish), ..Whole::default() }
}

fn ended(index: usize, text: &str, finish: Option<&Finish>) -> Map<String, Value> {
    let mut choice = Map::new();
    choice.insert("text".to_owned(), json!(text));
    choice.insert("index".to_owned(), json!(index));
    choice.insert("logprobs".to_owned(), Value::Null);
    choice.insert("finish_reason".to_owned(), finish_word(finish));
    if finish.is_some() {
        choice.insert("stop_reason".to_owned(), stop_reason(finish));
    }
    choice
}

/// An answer as chunks.
pub(super) struct CompletionStream {
    chunks: Chunks,
    served: Arc<Served>,
    params: Params,
    echo: Echo,
    /// Of each answer, the characters before what comes next; none before its first chunk.
    offsets: Vec<Option<usize>>,
}

impl CompletionStream {
    pub(super) fn new(
        head: Head,
        served: Arc<Served>,
        params: &Params,
        with_usage: bool,
        echo: Echo,
    ) -> Self {
        let chunks = Chunks { head, kind: "text_completion", extras: params.extras, with_usage };
        Self { chunks, served, params: params.clone(), echo, offsets: Vec::new() }
    }
}

impl Protocol for CompletionStream {
    fn begin(&mut self) -> Vec<SseEvent> {
        Vec::new()
    }

    fn update(&mut self, update: Update) -> Vec<SseEvent> {
        let Update { choice: index, parts, tokens, finish, progress } = update;
        let mut events: Vec<SseEvent> = progress.iter().map(|it| self.chunks.progress(it)).collect();
        if self.offsets.len() <= index {
            self.offsets.resize(index + 1, None);
        }
        let mut text = String::new();
        let is_first = self.offsets[index].is_none();
        if is_first {
            text.push_str(self.echo.text(index));
        }
        let mut offset = self.offsets[index].unwrap_or_else(|| text.chars().count());
        for part in parts {
            match part {
                Part::Content(more) => text.push_str(&more),
                // Continuations are read as plain text.
                Part::Reasoning(_) | Part::Call { .. } | Part::Arguments { .. } => {}
            }
        }
        let tells_tokens =
            !tokens.is_empty() && (self.params.logprobs.is_some() || self.chunks.extras.token_ids);
        if text.is_empty() && finish.is_none() && !tells_tokens {
            return events;
        }
        let mut choice = ended(index, &text, finish.as_ref());
        if !tokens.is_empty() {
            if self.params.logprobs.is_some() {
                let mut lists = Lists::behind(offset);
                lists.push_answer(&self.served.text.tokenizer, &tokens);
                offset = lists.offset;
                choice.insert("logprobs".to_owned(), lists.value());
            }
            if self.chunks.extras.token_ids {
                choice.insert("token_ids".to_owned(), json!(ids_of(&tokens)));
            }
        }
        if is_first && self.chunks.extras.token_ids {
            let ids = &self.echo.prompts[index / self.echo.choices];
            choice.insert("prompt_token_ids".to_owned(), json!(plain(ids)));
        }
        self.offsets[index] = Some(offset);
        events.push(Value::Object(self.chunks.chunk(vec![Value::Object(choice)])).into());
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
