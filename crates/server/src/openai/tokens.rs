//! `/tokenize` and `/detokenize`: what a text or a conversation is to the model, and back; `/tokenizer_info`: the tokens
//! that have a role.

use super::chat_form::{json, plain};
use super::messages::messages;
use super::request;
use super::tools::{self, ToolForm};
use crate::app::App;
use crate::error::ApiError;
use crate::generate::prompt::{self, Conversation};
use crate::models::Served;
use crate::wire::body;
use crate::wire::fields::Fields;
use axum::body::Body;
use axum::extract::State;
use axum::http::Request;
use axum::response::Response;
use gannet_ops::TokenId;
use serde_json::{Map, Value, json};
use std::sync::Arc;

/// Text or conversation to ids.
pub(crate) async fn tokenize(
    State(app): State<Arc<App>>,
    request: Request<Body>,
) -> Result<Response, ApiError> {
    let mut fields = body::fields(request, &app.config.limits).await?;
    let served = request::model_or_only(&app, &mut fields).await?;
    let with_texts = fields.boolean("return_token_strs")?.unwrap_or(false);
    let ids = match fields.take("messages") {
        Some(field) => {
            let options = request::render_options(&mut fields)?;
            let tools = tools::take(&mut fields, ToolForm::Nested)?.shown;
            let conversation = Conversation { messages: messages(field)?, tools, options };
            fields.finish()?;
            prompt::of_chat(&app, &served, conversation).await?.0.ids
        }
        None => text_ids(&app, &served, fields).await?,
    };
    let texts = with_texts.then(|| {
        let text = |id: &TokenId| served.text.tokenizer.token_text(id.0).unwrap_or_default();
        ids.iter().map(text).collect::<Vec<_>>()
    });
    let plain = plain(&ids);
    let context = served.handle.context();
    Ok(json(&json!({"count": plain.len(), "max_model_len": context, "tokens": plain, "token_strs": texts})))
}

async fn text_ids(app: &App, served: &Arc<Served>, mut fields: Fields) -> Result<Vec<TokenId>, ApiError> {
    let text = fields.require("prompt", "a text, or `messages` instead")?.string()?;
    let ends = request::text_ends(&mut fields)?;
    fields.finish()?;
    let ids = prompt::of_texts(app, served, vec![text], ends).await?;
    Ok(ids.into_iter().flatten().collect())
}

/// Ids to text.
pub(crate) async fn detokenize(
    State(app): State<Arc<App>>,
    request: Request<Body>,
) -> Result<Response, ApiError> {
    let mut fields = body::fields(request, &app.config.limits).await?;
    let served = request::model_or_only(&app, &mut fields).await?;
    let tokens = fields.require("tokens", "a list of token ids")?;
    fields.finish()?;
    let ids = request::token_ids(tokens, &served)?;
    Ok(json(&json!({"prompt": prompt::text_of(&app, &served, ids).await?})))
}

/// The texts of the first model's tokens that have a role (`bos_token`, `eos_token` and the like), and its chat template.
/// Harnesses ask for it before they have the server encode.
pub(crate) async fn info(State(app): State<Arc<App>>) -> Result<Response, ApiError> {
    let first = app.models.list().next().map(|(name, _)| name.to_owned());
    let served = app.models.get(&first.unwrap_or_default()).await?;
    let named = served.text.tokenizer.named_tokens().entries.iter();
    let mut info: Map<String, Value> = named.map(|(name, text)| (name.clone(), json!(text))).collect();
    let template = served.text.template.as_ref().map(|template| json!(template.source()));
    info.extend(template.map(|template| ("chat_template".to_owned(), template)));
    Ok(json(&Value::Object(info)))
}
