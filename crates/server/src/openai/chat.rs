//! `/v1/chat/completions`: a conversation is continued.

use super::chat_form::{self, ChatStream};
use super::format;
use super::messages::messages;
use super::request::{self, Delivery, Head};
use super::tools::{self, ToolForm};
use crate::app::App;
use crate::error::ApiError;
use crate::generate::answering::Answering;
use crate::generate::held::{self, Wanted};
use crate::generate::params::{Params, logprob_count, token_count};
use crate::generate::prompt::{self, Conversation};
use crate::http::sse;
use crate::models::Served;
use crate::wire::fields::Fields;
use axum::body::Body;
use axum::extract::State;
use axum::http::Request;
use axum::response::Response;
use serde_json::json;
use std::sync::Arc;

/// Where a request's prompt stands in it.
pub(super) const PROMPT: &str = "messages";
/// The parameter that asks for the scores of the prompt's tokens.
const PROMPT_LOGPROBS: &str = "prompt_logprobs";
/// The parameter that bounds the reasoning.
const THINKING: &str = "thinking_token_budget";

/// A request for a conversation's next message.
struct ChatRequest {
    conversation: Conversation,
    wanted: Wanted,
    params: Params,
    delivery: Delivery,
}

/// Answers a conversation.
pub(crate) async fn answer(
    State(app): State<Arc<App>>,
    request: Request<Body>,
) -> Result<Response, ApiError> {
    let (fields, served) = request::open(&app, request).await?;
    let ChatRequest { conversation, wanted, params, delivery } = take(fields, &served)?;
    let (mut prompt, formats) = prompt::of_chat(&app, &served, conversation).await?;
    params.cut(&mut prompt, &served);
    let held = held::of_chat(&app, &served, wanted, formats).await?;
    let head = Head::new("chatcmpl-", &served);
    let prompt_ids = prompt.ids.clone();
    let mut answering = Answering::start(served.clone(), vec![prompt], &params, &held, PROMPT)?;
    match delivery {
        Delivery::Whole => {
            let answers = answering.collect(params.choices as usize).await?;
            Ok(chat_form::whole(&head, &served, &params, answers, &answering, &prompt_ids))
        }
        Delivery::Stream { with_usage } => {
            let stream = ChatStream::new(
                head,
                served,
                &params,
                with_usage,
                Some(prompt_ids).filter(|_| params.extras.token_ids),
            );
            Ok(sse::respond(answering, stream, &app.config.limits))
        }
    }
}

/// The token ids that a conversation becomes, without an answer.
pub(crate) async fn render(
    State(app): State<Arc<App>>,
    request: Request<Body>,
) -> Result<Response, ApiError> {
    let (fields, served) = request::open(&app, request).await?;
    let ChatRequest { conversation, params, .. } = take(fields, &served)?;
    let (mut prompt, _) = prompt::of_chat(&app, &served, conversation).await?;
    params.cut(&mut prompt, &served);
    Ok(chat_form::json(&chat_form::rendered(&served, &prompt)))
}

fn take(mut fields: Fields, served: &Served) -> Result<ChatRequest, ApiError> {
    let messages = messages(fields.require("messages", "a list of messages")?)?;
    let mut options = request::render_options(&mut fields)?;
    let template = served.text.template.as_ref();
    request::reasoning_effort(&mut fields, "reasoning_effort", template, &mut options.variables)?;
    let wanted = Wanted {
        form: format::take(&mut fields)?,
        tools: tools::take(&mut fields, ToolForm::Nested)?,
        thinking_budget: token_count(&mut fields, THINKING, 0)?.map(|budget| (THINKING, budget)),
    };
    fields.refuse("functions", "functions are gone; use `tools`")?;
    fields.refuse("function_call", "functions are gone; use `tool_choice`")?;
    let mut params = Params::take(&mut fields, served)?;
    params.max_tokens = max_tokens(&mut fields)?;
    params.logprobs = logprobs(&mut fields)?;
    params.prompt_logprobs = logprob_count(&mut fields, PROMPT_LOGPROBS)?;
    let delivery = request::delivery(&mut fields)?;
    request::check_prompt_logprobs(&params, delivery, PROMPT_LOGPROBS)?;
    params.extras.progress = request::progress(&mut fields, delivery)?;
    request::about_the_client(&mut fields)?;
    for name in ["audio", "prediction", "web_search_options", "verbosity", "moderation"] {
        fields.refuse(name, "this server has nothing of that kind")?;
    }
    fields.only("modalities", &[json!(["text"])], "answers are text")?;
    fields.finish()?;
    Ok(ChatRequest {
        conversation: Conversation { messages, tools: wanted.tools.shown.clone(), options },
        wanted,
        params: params.check()?,
        delivery,
    })
}

/// Both names mean the same; where both are given they have to agree.
fn max_tokens(fields: &mut Fields) -> Result<Option<(&'static str, u32)>, ApiError> {
    let newer = token_count(fields, "max_completion_tokens", 1)?;
    let older = token_count(fields, "max_tokens", 1)?;
    match (newer, older) {
        (Some(newer), Some(older)) if newer != older => Err(ApiError::Invalid {
            path: "max_tokens".to_owned(),
            why: format!("it is {older} and `max_completion_tokens` {newer}; give one of them"),
        }),
        (Some(most), _) => Ok(Some(("max_completion_tokens", most))),
        (None, older) => Ok(older.map(|most| ("max_tokens", most))),
    }
}

fn logprobs(fields: &mut Fields) -> Result<Option<u32>, ApiError> {
    let wanted = fields.boolean("logprobs")?.unwrap_or(false);
    let top = logprob_count(fields, "top_logprobs")?;
    match (wanted, top) {
        (false, Some(top)) if top > 0 => Err(ApiError::Invalid {
            path: "top_logprobs".to_owned(),
            why: "it is only allowed where `logprobs` is true".to_owned(),
        }),
        (false, _) => Ok(None),
        (true, top) => Ok(Some(top.unwrap_or(0))),
    }
}
