//! What a request for a response says: items of input, and parameters.

use super::super::format::{self, Schema};
use super::super::messages::{messages, of_items};
use super::super::request::{about_the_client, reasoning_effort};
use super::super::tools::{self, ToolForm};
use crate::error::ApiError;
use crate::generate::held::{Form, Wanted};
use crate::generate::params::{Params, token_count};
use crate::models::Served;
use crate::wire::fields::{Field, Fields};
use gannet_text::calls::Tool;
use gannet_text::chat::{Message, RenderOptions};
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
    pub(super) options: RenderOptions,
    pub(super) wanted: Wanted,
    pub(super) params: Params,
    pub(super) delivery: Delivery,
    pub(super) is_kept: bool,
    /// Whether the oldest messages may be left out.
    pub(super) truncates: bool,
    /// Parameters that the response repeats.
    pub(super) echo: Map<String, Value>,
}

/// Parameters that a response repeats as they were sent.
const ECHOED: [&str; 12] = [
    "temperature",
    "top_p",
    "instructions",
    "max_output_tokens",
    "metadata",
    "user",
    "background",
    "tools",
    "tool_choice",
    "parallel_tool_calls",
    "text",
    "reasoning",
];
/// The parameter that bounds the reasoning.
const THINKING: &str = "thinking_token_budget";

/// Takes a request apart.
pub(super) fn take(mut fields: Fields, served: &Served) -> Result<ResponseRequest, ApiError> {
    let mut echo = Map::new();
    for name in ECHOED {
        echo.insert(name.to_owned(), fields.peek(name));
    }
    let said = said(fields.require("input", "a text or a list of items")?)?;
    let instructions = fields.string("instructions")?.map(|text| Message::new("system", &text));
    let previous = fields.string("previous_response_id")?;
    refuse(&mut fields)?;
    let truncates = truncation(&mut fields)?;
    let mut options = RenderOptions::default();
    reasoning(&mut fields, served, &mut options)?;
    let wanted = Wanted {
        form: form(&mut fields)?,
        tools: tools::take(&mut fields, ToolForm::Flat)?,
        thinking_budget: token_count(&mut fields, THINKING, 0)?.map(|budget| (THINKING, budget)),
    };
    let is_kept = fields.boolean("store")?.unwrap_or(true);
    let most = token_count(&mut fields, "max_output_tokens", 1)?;
    fields.only("return_token_ids", &[json!(false)], "token ids come with chats and completions")?;
    let mut params = Params::take(&mut fields, served)?;
    params.max_tokens = most.map(|most| ("max_output_tokens", most));
    let delivery = delivery(&mut fields, is_kept)?;
    about_the_client(&mut fields)?;
    fields.finish()?;
    echo.insert("store".to_owned(), json!(is_kept));
    let params = params.check()?;
    fill_strict(&mut echo, &wanted.tools.callable);
    Ok(ResponseRequest {
        previous,
        instructions,
        said,
        options,
        wanted,
        params,
        delivery,
        is_kept,
        truncates,
        echo,
    })
}

fn said(field: Field) -> Result<Vec<Message>, ApiError> {
    if field.value.is_string() {
        return Ok(vec![Message::new("user", &field.string()?)]);
    }
    if !field.value.is_array() {
        return Err(field.wrong("a text or a list of items"));
    }
    let (path, limits) = (field.path.clone(), field.limits.clone());
    let items = of_items(field.list_within(|limits| limits.messages)?)?;
    messages(Field { path, value: Value::Array(items), limits })
}

fn delivery(fields: &mut Fields, is_kept: bool) -> Result<Delivery, ApiError> {
    let is_streamed = fields.boolean("stream")?.unwrap_or(false);
    if let Some(options) = fields.take("stream_options") {
        let mut options = options.object()?;
        options.only("include_obfuscation", &[json!(false)], "chunks are not padded")?;
        options.finish()?;
    }
    let background = fields.take("background");
    let Some(background) = background.filter(|field| field.value != false) else {
        return Ok(if is_streamed { Delivery::Stream } else { Delivery::Whole });
    };
    if is_streamed || !is_kept {
        return Err(background.invalid("a response in the background is kept and not streamed"));
    }
    background.boolean().map(|_| Delivery::Background)
}

/// Tools are repeated with what stands where they said nothing.
fn fill_strict(echo: &mut Map<String, Value>, tools: &[Tool]) {
    for shown in echo.get_mut("tools").and_then(Value::as_array_mut).into_iter().flatten() {
        let tool = tools.iter().find(|tool| shown["name"] == json!(tool.name));
        if let (Some(tool), true) = (tool, shown["strict"].is_null()) {
            shown["strict"] = json!(tool.strict);
        }
    }
}

/// Whether the oldest messages may be left out where the conversation is too long.
fn truncation(fields: &mut Fields) -> Result<bool, ApiError> {
    let Some(field) = fields.take("truncation") else { return Ok(false) };
    match field.value.as_str() {
        Some("auto") => Ok(true),
        Some("disabled") => Ok(false),
        Some(_) | None => Err(field.wrong("auto or disabled")),
    }
}

fn refuse(fields: &mut Fields) -> Result<(), ApiError> {
    for name in ["n", "stop", "conversation", "prompt", "max_tool_calls"] {
        fields.refuse(name, "this route has nothing of that kind")?;
    }
    fields.only("include", &[json!([])], "there is nothing to include")?;
    fields.only("top_logprobs", &[json!(0)], "log-probabilities come with chats and completions")
}

/// What the answer must look like.
fn form(fields: &mut Fields) -> Result<Option<Form>, ApiError> {
    let guided = format::take_guided(fields)?;
    let Some(text) = fields.take("text") else { return Ok(guided) };
    let mut text = text.object()?;
    text.refuse("verbosity", "no model here has such a setting")?;
    let format = text.take("format");
    text.finish()?;
    let Some(format) = format else { return Ok(guided) };
    let conflict = format.invalid("another parameter says already what the answer must look like");
    match (guided, format::response_format(format, Schema::Flat)?) {
        (Some(_), Some(_)) => Err(conflict),
        (guided, form) => Ok(form.or(guided)),
    }
}

/// How much the model is to think.
fn reasoning(fields: &mut Fields, served: &Served, options: &mut RenderOptions) -> Result<(), ApiError> {
    let Some(reasoning) = fields.take("reasoning") else { return Ok(()) };
    let mut reasoning = reasoning.object()?;
    let template = served.text.template.as_ref();
    reasoning_effort(&mut reasoning, "effort", template, &mut options.variables)?;
    for name in ["summary", "generate_summary"] {
        reasoning.refuse(name, "reasoning is given whole, as `reasoning_text`; no summary is made")?;
    }
    reasoning.finish()
}
