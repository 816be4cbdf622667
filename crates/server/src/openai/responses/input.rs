//! What a request for a response says: items of input, and parameters.

use super::super::messages::{messages, of_item};
use super::super::request::about_the_client;
use crate::app::App;
use crate::error::ApiError;
use crate::generate::params::{Params, token_count};
use crate::limits::MESSAGES;
use crate::models::Served;
use crate::wire::fields::{Field, Fields};
use gannet_text::chat::Message;
use serde_json::{Map, Value, json};

/// How a response is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Delivery {
    Whole,
    Stream,
    Background,
}

/// A request for a response.
pub(super) struct ResponseRequest {
    pub(super) previous: Option<String>,
    pub(super) instructions: Option<Message>,
    pub(super) said: Vec<Message>,
    pub(super) params: Params,
    pub(super) delivery: Delivery,
    pub(super) is_kept: bool,
    /// Parameters that the response repeats.
    pub(super) echo: Map<String, Value>,
}

/// Takes a request apart.
pub(super) fn take(mut fields: Fields, served: &Served, app: &App) -> Result<ResponseRequest, ApiError> {
    let mut echo = Map::new();
    for name in
        ["temperature", "top_p", "instructions", "max_output_tokens", "metadata", "user", "background"]
    {
        echo.insert(name.to_owned(), fields.peek(name));
    }
    let said = said(fields.require("input", "a text or a list of items")?)?;
    let instructions = fields.string("instructions")?.map(|text| Message::new("system", &text));
    let previous = fields.string("previous_response_id")?;
    refuse(&mut fields)?;
    let is_kept = fields.boolean("store")?.unwrap_or(true);
    let most = token_count(&mut fields, "max_output_tokens", 1)?;
    let mut params = Params::take(&mut fields, served, app.config.limits.request_time)?;
    params.max_tokens = most.map(|most| ("max_output_tokens", most));
    let delivery = delivery(&mut fields, is_kept)?;
    about_the_client(&mut fields)?;
    fields.finish()?;
    echo.insert("store".to_owned(), json!(is_kept));
    Ok(ResponseRequest { previous, instructions, said, params: params.check()?, delivery, is_kept, echo })
}

fn said(field: Field) -> Result<Vec<Message>, ApiError> {
    if field.value.is_string() {
        return Ok(vec![Message::new("user", &field.string()?)]);
    }
    if !field.value.is_array() {
        return Err(field.wrong("a text or a list of items"));
    }
    let path = field.path.clone();
    let items = field.list(MESSAGES)?.into_iter().map(of_item).collect::<Result<Vec<_>, _>>()?;
    messages(Field { path, value: Value::Array(items) })
}

fn delivery(fields: &mut Fields, is_kept: bool) -> Result<Delivery, ApiError> {
    let is_streamed = fields.boolean("stream")?.unwrap_or(false);
    fields.only(
        "stream_options",
        &[json!({}), json!({"include_obfuscation": false})],
        "chunks are not padded",
    )?;
    let background = fields.take("background");
    let Some(background) = background.filter(|field| field.value != false) else {
        return Ok(if is_streamed { Delivery::Stream } else { Delivery::Whole });
    };
    if is_streamed || !is_kept {
        return Err(background.invalid("a response in the background is kept and not streamed"));
    }
    background.boolean().map(|_| Delivery::Background)
}

fn refuse(fields: &mut Fields) -> Result<(), ApiError> {
    for name in ["n", "stop", "conversation", "prompt", "max_tool_calls"] {
        fields.refuse(name, "this route has nothing of that kind")?;
    }
    fields.only("tools", &[json!([])], "calls of tools are not told apart from text")?;
    fields.only("tool_choice", &[json!("auto"), json!("none")], "there are no tools to choose from")?;
    fields.boolean("parallel_tool_calls")?;
    let formats = [json!({}), json!({"format": {"type": "text"}})];
    fields.only("text", &formats, "answers can't be held to a format")?;
    fields.only("truncation", &[json!("disabled")], "prompts are never cut")?;
    fields.only("include", &[json!([])], "there is nothing to include")?;
    fields.only("top_logprobs", &[json!(0)], "log-probabilities come with chats and completions")?;
    let Some(reasoning) = fields.take("reasoning") else { return Ok(()) };
    let mut reasoning = reasoning.object()?;
    reasoning.refuse("effort", "reasoning is not told apart from content")?;
    reasoning.refuse("summary", "reasoning is not told apart from content")?;
    reasoning.finish()
}
