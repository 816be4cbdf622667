//! `/v1/messages`: a conversation is continued; `/v1/messages/count_tokens`: how long it is.

use super::conversation;
use super::form::{MessageStream, whole};
use crate::app::App;
use crate::error::ApiError;
use crate::generate::answering::Answering;
use crate::generate::params::{Params, stops, token_count};
use crate::generate::prompt::{self, Conversation};
use crate::http::sse;
use crate::models::Served;
use crate::openai::chat_form::json;
use crate::openai::request::{Head, model};
use crate::wire::body;
use crate::wire::fields::Fields;
use axum::body::Body;
use axum::extract::State;
use axum::http::Request;
use axum::response::{IntoResponse, Response};
use gannet_text::chat::RenderOptions;
use serde_json::json;
use std::sync::Arc;

/// A refusal in this protocol's form.
pub(crate) struct Refusal(ApiError);

impl From<ApiError> for Refusal {
    fn from(error: ApiError) -> Self {
        Self(error)
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        self.0.into_anthropic_response()
    }
}

/// Answers a conversation.
pub(crate) async fn answer(State(app): State<Arc<App>>, request: Request<Body>) -> Result<Response, Refusal> {
    let mut fields = body::fields(request, &app.config.limits).await?;
    let served = model(&app, &mut fields).await?;
    let (conversation, params, is_streamed) = take(fields, &served, &app)?;
    let prompt = prompt::of_chat(&app, &served, conversation).await?;
    let head = Head::new("msg_", &served);
    let mut answering = Answering::start(served, vec![prompt], &params, "messages")?;
    if is_streamed {
        return Ok(sse::respond(answering, MessageStream::new(head), app.config.limits.keep_alive));
    }
    let answers = answering.collect(1).await?;
    Ok(whole(&head, answers.into_iter().next().unwrap_or_default(), &answering.total))
}

/// How many tokens a conversation has, up to where the answer begins.
pub(crate) async fn count(State(app): State<Arc<App>>, request: Request<Body>) -> Result<Response, Refusal> {
    let mut fields = body::fields(request, &app.config.limits).await?;
    let served = model(&app, &mut fields).await?;
    let messages = conversation::take(&mut fields)?;
    refuse(&mut fields)?;
    fields.finish()?;
    let prompt = prompt::of_chat(&app, &served, plain(messages)).await?;
    Ok(json(&json!({"input_tokens": prompt.ids.len()})))
}

fn take(mut fields: Fields, served: &Served, app: &App) -> Result<(Conversation, Params, bool), ApiError> {
    let messages = conversation::take(&mut fields)?;
    refuse(&mut fields)?;
    for name in ["n", "stop"] {
        fields.refuse(name, "it is no parameter of this route")?;
    }
    let stop_sequences = stops(&mut fields, "stop_sequences")?;
    let max_tokens = token_count(&mut fields, "max_tokens", 1)?;
    let most = max_tokens
        .ok_or(ApiError::Missing { path: "max_tokens".to_owned(), expected: "a number of tokens" })?;
    let mut params = Params::take(&mut fields, served, app.config.limits.request_time)?;
    params.stops = stop_sequences;
    params.max_tokens = Some(("max_tokens", most));
    let is_streamed = fields.boolean("stream")?.unwrap_or(false);
    if let Some(metadata) = fields.take("metadata") {
        metadata.object()?;
    }
    fields.only("service_tier", &[json!("auto"), json!("standard_only")], "there is one tier")?;
    fields.finish()?;
    Ok((plain(messages), params.check()?, is_streamed))
}

fn plain(messages: Vec<gannet_text::chat::Message>) -> Conversation {
    Conversation { messages, tools: Vec::new(), options: RenderOptions::default() }
}

fn refuse(fields: &mut Fields) -> Result<(), ApiError> {
    fields.only("tools", &[json!([])], "calls of tools are not told apart from text")?;
    let none = [json!({"type": "auto"}), json!({"type": "none"})];
    fields.only("tool_choice", &none, "there are no tools to choose from")?;
    fields.only("thinking", &[json!({"type": "disabled"})], "reasoning is not told apart from content")?;
    for name in ["container", "mcp_servers", "context_management", "output_format", "output_config"] {
        fields.refuse(name, "this server has nothing of that kind")?;
    }
    Ok(())
}
