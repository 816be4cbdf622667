//! `/v1/completions`: texts or token ids are continued as they are.

use super::chat_form::{json, rendered};
use super::completion_form::{CompletionStream, Echo, whole};
use super::request::{self, Delivery, Head};
use crate::app::App;
use crate::error::ApiError;
use crate::generate::answering::Answering;
use crate::generate::params::{Params, logprob_count, token_count};
use crate::generate::prompt::{self, Prompt, TextEnds, shown};
use crate::http::sse;
use crate::limits::PROMPTS;
use crate::models::Served;
use crate::wire::fields::{Field, Fields};
use axum::body::Body;
use axum::extract::State;
use axum::http::Request;
use axum::response::Response;
use gannet_ops::TokenId;
use gannet_text::decode::{Place, SpecialTokens};
use serde_json::{Value, json};
use std::sync::Arc;

const PROMPT: &str = "prompt";
/// Tokens of an answer where nothing is said, as the protocol has it.
const MAX_TOKENS: u32 = 16;

/// A request to continue texts.
struct CompletionRequest {
    prompts: Prompts,
    ends: TextEnds,
    params: Params,
    has_echo: bool,
    delivery: Delivery,
}

/// What is to be continued.
enum Prompts {
    Texts(Vec<String>),
    Ids(Vec<Vec<TokenId>>),
}

/// Continues texts.
pub(crate) async fn answer(
    State(app): State<Arc<App>>,
    request: Request<Body>,
) -> Result<Response, ApiError> {
    let (fields, served) = request::open(&app, request).await?;
    let request = take(fields, &served, &app)?;
    let CompletionRequest { params, delivery, .. } = &request;
    let (prompts, echo) = prompts(&app, &served, &request).await?;
    let head = Head::new("cmpl-", &served);
    let count = prompts.len() * params.choices as usize;
    if params.max_tokens.is_some_and(|(_, most)| most == 0) {
        return Ok(super::completion_form::echo_alone(&head, &prompts, params, &echo));
    }
    let mut answering = Answering::start(served.clone(), prompts, params, PROMPT)?;
    match *delivery {
        Delivery::Whole => {
            let answers = answering.collect(count).await?;
            Ok(whole(&head, &served, params, answers, &answering, &echo))
        }
        Delivery::Stream { with_usage } => {
            let stream = CompletionStream::new(head, served, params, with_usage, echo);
            Ok(sse::respond(answering, stream, app.config.limits.keep_alive))
        }
    }
}

/// The token ids that texts become, without answers.
pub(crate) async fn render(
    State(app): State<Arc<App>>,
    request: Request<Body>,
) -> Result<Response, ApiError> {
    let (fields, served) = request::open(&app, request).await?;
    let request = take(fields, &served, &app)?;
    let (prompts, _) = prompts(&app, &served, &request).await?;
    Ok(json(&Value::Array(prompts.iter().map(|prompt| rendered(&served, prompt)).collect())))
}

/// The prompts as ids, and what is said of them before the answers.
async fn prompts(
    app: &App,
    served: &Arc<Served>,
    request: &CompletionRequest,
) -> Result<(Vec<Prompt>, Echo), ApiError> {
    let ids = match &request.prompts {
        Prompts::Texts(texts) => prompt::of_texts(app, served, texts.clone(), request.ends).await?,
        Prompts::Ids(ids) => ids.clone(),
    };
    let texts = request.has_echo.then(|| match &request.prompts {
        Prompts::Texts(texts) => texts.clone(),
        Prompts::Ids(ids) => {
            ids.iter().map(|ids| shown(&served.text.tokenizer, ids, SpecialTokens::Show)).collect()
        }
    });
    let prompt_ids = request.params.extras.token_ids.then(|| ids.clone());
    let prompt = |ids| Prompt { ids, boundaries: Vec::new(), place: Place::Middle };
    let echo = Echo { texts, prompt_ids, choices: request.params.choices as usize };
    Ok((ids.into_iter().map(prompt).collect(), echo))
}

fn take(mut fields: Fields, served: &Served, app: &App) -> Result<CompletionRequest, ApiError> {
    let prompts = take_prompts(fields.require("prompt", "a text, token ids, or a list of them")?, served)?;
    let mut params = Params::take(&mut fields, served, app.config.limits.request_time)?;
    let has_echo = fields.boolean("echo")?.unwrap_or(false);
    let least = if has_echo { 0 } else { 1 };
    params.max_tokens =
        Some(("max_tokens", token_count(&mut fields, "max_tokens", least)?.unwrap_or(MAX_TOKENS)));
    params.logprobs = logprob_count(&mut fields, "logprobs")?;
    if has_echo && params.logprobs.is_some() {
        let why =
            "the scores of a prompt's tokens are not kept, so `logprobs` can't be had with it".to_owned();
        return Err(ApiError::Unsupported { path: "echo".to_owned(), why });
    }
    let ends = request::text_ends(&mut fields)?;
    fields.only("suffix", &[json!("")], "the answer stands at the end; the text behind it can't be given")?;
    fields.only(
        "best_of",
        &[json!(1), json!(params.choices)],
        "all answers are sent, none is chosen; use `n`",
    )?;
    fields.only("response_format", &[json!({"type": "text"})], "answers can't be held to a format")?;
    let delivery = request::delivery(&mut fields)?;
    request::about_the_client(&mut fields)?;
    fields.finish()?;
    Ok(CompletionRequest { prompts, ends, params: params.check()?, has_echo, delivery })
}

fn take_prompts(field: Field, served: &Served) -> Result<Prompts, ApiError> {
    if field.value.is_string() {
        return Ok(Prompts::Texts(vec![field.string()?]));
    }
    let Some(first) = field.value.as_array().map(|list| list.first().cloned()) else {
        return Err(field.wrong("a text, token ids, or a list of them"));
    };
    let Some(first) = first else { return Err(field.invalid("it is empty; there is nothing to continue")) };
    let ids_of = |field: Field| {
        let empty = field.invalid("it is empty; there is nothing to continue");
        let ids = request::token_ids(field, served)?;
        if ids.is_empty() { Err(empty) } else { Ok(ids) }
    };
    if first.is_number() {
        return Ok(Prompts::Ids(vec![ids_of(field)?]));
    }
    let entries = field.list(PROMPTS)?;
    if first.is_array() {
        return Ok(Prompts::Ids(entries.into_iter().map(ids_of).collect::<Result<_, _>>()?));
    }
    Ok(Prompts::Texts(entries.into_iter().map(Field::string).collect::<Result<_, _>>()?))
}
