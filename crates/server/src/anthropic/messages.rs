//! `/v1/messages`: a conversation is continued; `/v1/messages/count_tokens`: how long it is.

use super::conversation;
use super::form::{MessageStream, whole};
use crate::app::App;
use crate::error::ApiError;
use crate::generate::answering::Answering;
use crate::generate::held::{self, Wanted};
use crate::generate::params::{Params, stops, token_count};
use crate::generate::prompt::{self, Conversation};
use crate::http::sse;
use crate::models::Served;
use crate::openai::chat_form::json;
use crate::openai::format;
use crate::openai::request::{Head, model};
use crate::openai::tools;
use crate::wire::body;
use crate::wire::fields::Fields;
use axum::body::Body;
use axum::extract::State;
use axum::http::Request;
use axum::response::{IntoResponse, Response};
use gannet_text::calls::ReasoningFormat;
use gannet_text::chat::RenderOptions;
use serde_json::json;
use std::sync::Arc;

/// A request for a conversation's next message.
struct MessageRequest {
    conversation: Conversation,
    wanted: Wanted,
    params: Params,
    is_streamed: bool,
}

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
    let MessageRequest { conversation, wanted, params, is_streamed } = take(fields, &served)?;
    let (mut prompt, formats) = prompt::of_chat(&app, &served, conversation).await?;
    params.cut(&mut prompt, &served);
    let held = held::of_chat(&app, &served, wanted, formats).await?;
    let head = Head::new("msg_", &served);
    let mut answering = Answering::start(served, vec![prompt], &params, &held, "messages")?;
    if is_streamed {
        let stream = MessageStream::new(head, params.extras, answering.total.prompt_tokens);
        return Ok(sse::respond(answering, stream, &app.config.limits));
    }
    let answers = answering.collect(1).await?;
    Ok(whole(&head, &answers.into_iter().next().unwrap_or_default(), &answering, params.extras))
}

/// How many tokens a conversation has, up to where the answer begins.
pub(crate) async fn count(State(app): State<Arc<App>>, request: Request<Body>) -> Result<Response, Refusal> {
    let mut fields = body::fields(request, &app.config.limits).await?;
    let served = model(&app, &mut fields).await?;
    let (conversation, _) = conversation(&mut fields, &served)?;
    refuse(&mut fields)?;
    fields.finish()?;
    let (prompt, _) = prompt::of_chat(&app, &served, conversation).await?;
    Ok(json(&json!({"input_tokens": prompt.ids.len()})))
}

fn take(mut fields: Fields, served: &Served) -> Result<MessageRequest, ApiError> {
    let (conversation, mut wanted) = conversation(&mut fields, served)?;
    wanted.form = format::take_guided(&mut fields)?;
    refuse(&mut fields)?;
    for name in ["n", "stop"] {
        fields.refuse(name, "it is no parameter of this route")?;
    }
    let stop_sequences = stops(&mut fields, "stop_sequences")?;
    let max_tokens = token_count(&mut fields, "max_tokens", 1)?;
    let most = max_tokens
        .ok_or(ApiError::Missing { path: "max_tokens".to_owned(), expected: "a number of tokens" })?;
    fields.only("return_token_ids", &[json!(false)], "token ids come with chats and completions")?;
    let mut params = Params::take(&mut fields, served)?;
    params.stops = stop_sequences;
    params.max_tokens = Some(("max_tokens", most));
    let is_streamed = fields.boolean("stream")?.unwrap_or(false);
    if let Some(metadata) = fields.take("metadata") {
        metadata.object()?;
    }
    fields.only("service_tier", &[json!("auto"), json!("standard_only")], "there is one tier")?;
    fields.finish()?;
    Ok(MessageRequest { conversation, wanted, params: params.check()?, is_streamed })
}

/// What is said, with tools, and how much the model is to think.
fn conversation(fields: &mut Fields, served: &Served) -> Result<(Conversation, Wanted), ApiError> {
    let messages = conversation::take(fields)?;
    let tools = tools::take_anthropic(fields)?;
    let mut options = RenderOptions::default();
    let thinking_budget = thinking(fields, served, &mut options)?;
    let conversation = Conversation { messages, tools: tools.shown.clone(), options };
    Ok((conversation, Wanted { form: None, tools, thinking_budget }))
}

/// Whether the model is to think, for templates that can be told; the parameter that bounds it, and the bound.
fn thinking(
    fields: &mut Fields,
    served: &Served,
    options: &mut RenderOptions,
) -> Result<Option<(&'static str, u32)>, ApiError> {
    let Some(field) = fields.take("thinking") else { return Ok(None) };
    let template = served.text.template.as_ref();
    let reasons = template.is_some_and(|template| ReasoningFormat::of_template(template.source()).is_some());
    let cannot = field.model_lacks("this model doesn't reason");
    let mut thinking = field.object()?;
    let kind = thinking.require("type", "one of enabled, adaptive, disabled")?;
    let is_wanted = match kind.value.as_str() {
        Some("enabled" | "adaptive") => true,
        Some("disabled") => false,
        Some(_) | None => return Err(kind.wrong("one of enabled, adaptive, disabled")),
    };
    let budget = token_count(&mut thinking, "budget_tokens", 0)?;
    thinking.only("display", &[json!("summarized")], "reasoning is shown as it is")?;
    thinking.finish()?;
    if is_wanted && !reasons {
        return Err(cannot);
    }
    if template.is_some_and(|template| template.mentions("enable_thinking")) {
        options.variables.insert("enable_thinking".to_owned(), json!(is_wanted));
    }
    Ok(budget.filter(|_| is_wanted).map(|budget| ("thinking.budget_tokens", budget)))
}

fn refuse(fields: &mut Fields) -> Result<(), ApiError> {
    for name in ["container", "mcp_servers", "context_management", "output_format", "output_config"] {
        fields.refuse(name, "this server has nothing of that kind")?;
    }
    Ok(())
}
