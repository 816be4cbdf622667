//! Prompts as token ids: conversations rendered and encoded, texts encoded, ids as they are.
//!
//! Rendering and encoding are work, and what they work on comes from outside: they run on threads of their own, a few at
//! once, never on those that serve connections.

use super::held::Formats;
use super::toolless;
use crate::app::App;
use crate::error::ApiError;
use crate::models::Served;
use gannet_grammar::Reasoning;
use gannet_ops::TokenId;
use gannet_text::calls::{CallFormat, ReasoningFormat};
use gannet_text::chat::{ChatTemplate, Message, RenderOptions};
use gannet_text::decode::{Place, SpecialTokens};
use gannet_text::error::TextError;
use gannet_text::text::Text;
use gannet_text::tokenizer::{Specials, Tokenizer};
use serde_json::Value;
use std::sync::Arc;

/// A prompt, ready for the engine.
#[derive(Clone, Debug)]
pub(crate) struct Prompt {
    pub(crate) ids: Vec<TokenId>,
    /// Where later prompts are likely to branch off.
    pub(crate) boundaries: Vec<u32>,
    /// Where the answer's text stands.
    pub(crate) place: Place,
    /// Tokens that were cut off in front, because the request asked for it.
    pub(crate) cut_tokens: usize,
}

impl Prompt {
    /// One that was not cut.
    pub(crate) fn new(ids: Vec<TokenId>, boundaries: Vec<u32>, place: Place) -> Self {
        Self { ids, boundaries, place, cut_tokens: 0 }
    }

    /// Cuts off all but the last tokens.
    pub(crate) fn keep_last(&mut self, tokens: usize) {
        let cut = self.ids.len().saturating_sub(tokens);
        self.ids.drain(..cut);
        self.cut_tokens += cut;
        let moved = |boundary: &u32| boundary.checked_sub(cut as u32).filter(|boundary| *boundary > 0);
        self.boundaries = self.boundaries.iter().filter_map(moved).collect();
    }
}

/// A conversation to be continued.
#[derive(Clone, Debug)]
pub(crate) struct Conversation {
    pub(crate) messages: Vec<Message>,
    pub(crate) tools: Vec<Value>,
    pub(crate) options: RenderOptions,
}

/// Renders and encodes a conversation, and tells in which formats it goes on.
pub(crate) async fn of_chat(
    app: &App,
    served: &Arc<Served>,
    mut chat: Conversation,
) -> Result<(Prompt, Formats), ApiError> {
    let model = served.clone();
    chat.options.boundaries = served.resumes_at_messages;
    aside(app, move || encoded(&model.text, chat).map_err(|error| ApiError::text("messages", &error))).await
}

/// As [`of_chat`], of a conversation whose oldest messages behind the instructions may be left out until it has at most
/// `room` tokens; how many were is told too.
pub(crate) async fn of_chat_within(
    app: &App,
    served: &Arc<Served>,
    mut chat: Conversation,
    room: usize,
) -> Result<(Prompt, Formats, usize), ApiError> {
    let model = served.clone();
    chat.options.boundaries = served.resumes_at_messages;
    aside(app, move || shortened(&model.text, &chat, room).map_err(|error| ApiError::text("input", &error)))
        .await
}

/// The longest conversation that fits, found by halving; all of its messages where even the last one doesn't.
fn shortened(text: &Text, chat: &Conversation, room: usize) -> Result<(Prompt, Formats, usize), TextError> {
    let whole = encoded(text, chat.clone())?;
    let kept = chat.messages.iter().take_while(|message| message.role == "system").count();
    let most = chat.messages.len().saturating_sub(kept + 1);
    if whole.0.ids.len() <= room || most == 0 {
        return Ok((whole.0, whole.1, 0));
    }
    let without = |left_out: usize| {
        let mut rest = chat.clone();
        rest.messages.drain(kept..kept + left_out);
        // Templates refuse some beginnings; then more must go.
        encoded(text, rest).ok().filter(|(prompt, _)| prompt.ids.len() <= room)
    };
    let (mut below, mut found) = (0, None);
    let mut above = most + 1;
    while below + 1 < above {
        let middle = below.midpoint(above);
        match without(middle) {
            Some((prompt, formats)) => (above, found) = (middle, Some((prompt, formats, middle))),
            None => below = middle,
        }
    }
    Ok(found.unwrap_or((whole.0, whole.1, 0)))
}

fn encoded(text: &Text, chat: Conversation) -> Result<(Prompt, Formats), TextError> {
    let Conversation { mut messages, mut tools, options } = chat;
    let template = text.require_template(&tools)?;
    if !template.mentions("tools") && toolless::has_tools(&messages, &tools) {
        messages = toolless::spelt(messages, &tools);
        tools.clear();
    }
    let rendered = template.render(&messages, &tools, &options)?;
    let encoded = text.tokenizer.encode_chat_with_boundaries(&rendered)?;
    let boundaries = encoded.boundaries.iter().map(|boundary| boundary.tokens as u32).collect();
    let prompt = Prompt::new(token_ids(encoded.ids), boundaries, Place::Start);
    Ok((prompt, formats(template, &rendered.text)))
}

/// The formats that the template shows, and what the prompt has opened.
fn formats(template: &ChatTemplate, prompt: &str) -> Formats {
    let source = template.source();
    let calls = CallFormat::of_template(source);
    // Harmony's reasoning is part of its calls' format.
    let reasoning = ReasoningFormat::of_template(source).filter(|_| calls != CallFormat::Harmony);
    let before = match reasoning {
        None => Reasoning::None,
        Some(format) if format.is_opened_by(prompt) => Reasoning::IsOpen(format),
        Some(format) if prompt.trim_end().ends_with(format.marks()[1]) => Reasoning::None,
        Some(format) => Reasoning::MayOpen(format),
    };
    Formats { calls, reasoning, before }
}

/// Encodes texts as they are, with what the tokenizer puts at their ends.
pub(crate) async fn of_texts(
    app: &App,
    served: &Arc<Served>,
    texts: Vec<String>,
    ends: TextEnds,
) -> Result<Vec<Vec<TokenId>>, ApiError> {
    let model = served.clone();
    aside(app, move || {
        let tokenizer = &model.text.tokenizer;
        let encode = |text: &String| match ends {
            TextEnds::Added => tokenizer.encode_prompt(text),
            TextEnds::Bare => tokenizer.encode(text, Specials::Parse),
        };
        texts
            .iter()
            .map(|text| encode(text).map(token_ids).map_err(|error| ApiError::text("prompt", &error)))
            .collect()
    })
    .await
}

/// What encoding adds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TextEnds {
    /// The beginning and end of text, where the tokenizer says so.
    Added,
    /// Nothing.
    Bare,
}

/// The text of ids, special tokens shown.
pub(crate) fn shown(tokenizer: &Tokenizer, ids: &[TokenId], special_tokens: SpecialTokens) -> String {
    let ids: Vec<u32> = ids.iter().map(|id| id.0).collect();
    tokenizer.decode(&ids, special_tokens)
}

/// The same of a request's own ids, of which there may be many.
pub(crate) async fn text_of(app: &App, served: &Arc<Served>, ids: Vec<TokenId>) -> Result<String, ApiError> {
    let model = served.clone();
    aside(app, move || Ok(shown(&model.text.tokenizer, &ids, SpecialTokens::Show))).await
}

/// Runs work on a thread for work, when there is a place.
pub(super) async fn aside<T: Send + 'static>(
    app: &App,
    work: impl FnOnce() -> Result<T, ApiError> + Send + 'static,
) -> Result<T, ApiError> {
    let place = app.encoders.clone().acquire_owned().await;
    let place = place.map_err(|_| ApiError::Draining)?;
    let result = tokio::task::spawn_blocking(move || {
        let result = work();
        drop(place);
        result
    });
    result.await.unwrap_or_else(|error| Err(ApiError::Failed(error.to_string())))
}

fn token_ids(ids: Vec<u32>) -> Vec<TokenId> {
    ids.into_iter().map(TokenId).collect()
}
