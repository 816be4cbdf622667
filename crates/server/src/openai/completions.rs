//! `/v1/completions`: texts or token ids are continued as they are.

use super::chat_form::{json, rendered};
use super::completion_form::{CompletionStream, Echo, cut_at_once, echo_alone, whole};
use super::format;
use super::request::{self, Delivery, Head, Prompts, Said};
use crate::app::App;
use crate::error::ApiError;
use crate::generate::answering::Answering;
use crate::generate::held::{self, Form, Held};
use crate::generate::params::{Params, logprob_count, token_count};
use crate::generate::prompt::{self, Prompt, TextEnds};
use crate::http::sse;
use crate::models::Served;
use crate::wire::fields::Fields;
use axum::body::Body;
use axum::extract::State;
use axum::http::Request;
use axum::response::Response;
use gannet_text::decode::Place;
use serde_json::{Value, json};
use std::sync::Arc;

const PROMPT: &str = "prompt";
/// The parameter that asks for the scores of a prompt's tokens.
const PROMPT_LOGPROBS: &str = "prompt_logprobs";
/// Tokens of an answer where nothing is said, as the protocol has it.
const MAX_TOKENS: u32 = 16;

/// A request to continue texts.
struct CompletionRequest {
    prompts: Prompts,
    ends: TextEnds,
    params: Params,
    has_echo: bool,
    /// Whether the scores of the prompts' tokens are told apart.
    tells_scores: bool,
    form: Option<Form>,
    delivery: Delivery,
}

/// Continues texts.
pub(crate) async fn answer(
    State(app): State<Arc<App>>,
    request: Request<Body>,
) -> Result<Response, ApiError> {
    let (fields, served) = request::open(&app, request).await?;
    let request = take(fields, &served)?;
    let CompletionRequest { params, delivery, form, .. } = &request;
    let (prompts, echo) = prompts(&app, &served, &request).await?;
    let head = Head::new("cmpl-", &served);
    let count = prompts.len() * params.choices as usize;
    let is_echo_alone = params.max_tokens.is_some_and(|(_, most)| most == 0);
    if is_echo_alone && params.prompt_logprobs.is_none() {
        return Ok(echo_alone(&head, &prompts, params, &echo));
    }
    if is_echo_alone {
        // The scores of a prompt come with the step that draws a token, which nobody hears of.
        let drawn = Params { max_tokens: Some(("max_tokens", 1)), ..params.clone() };
        let mut answering = Answering::start(served.clone(), prompts, &drawn, &Held::plain(), PROMPT)?;
        answering.collect(count).await?;
        answering.total.answer_tokens = 0;
        return Ok(whole(&head, &served, params, vec![cut_at_once(); count], &answering, &echo));
    }
    let held = held::of_texts(&app, &served, form.clone()).await?;
    let mut answering = Answering::start(served.clone(), prompts, params, &held, PROMPT)?;
    match *delivery {
        Delivery::Whole => {
            let answers = answering.collect(count).await?;
            Ok(whole(&head, &served, params, answers, &answering, &echo))
        }
        Delivery::Stream { with_usage } => {
            let stream = CompletionStream::new(head, served, params, with_usage, echo);
            Ok(sse::respond(answering, stream, &app.config.limits))
        }
    }
}

/// The token ids that texts become, without answers.
pub(crate) async fn render(
    State(app): State<Arc<App>>,
    request: Request<Body>,
) -> Result<Response, ApiError> {
    let (fields, served) = request::open(&app, request).await?;
    let request = take(fields, &served)?;
    let (prompts, _) = prompts(&app, &served, &request).await?;
    Ok(json(&Value::Array(prompts.iter().map(|prompt| rendered(&served, prompt)).collect())))
}

/// The prompts as ids, and what is said of them before the answers.
async fn prompts(
    app: &App,
    served: &Arc<Served>,
    request: &CompletionRequest,
) -> Result<(Vec<Prompt>, Echo), ApiError> {
    let all = request.prompts.ids(app, served, request.ends).await?;
    let mut prompts: Vec<Prompt> =
        all.into_iter().map(|ids| Prompt::new(ids, Vec::new(), Place::Middle)).collect();
    prompts.iter_mut().for_each(|prompt| request.params.cut(prompt, served));
    let is_whole = prompts.iter().all(|prompt| prompt.cut_tokens == 0);
    let texts = match (request.has_echo, &request.prompts.said) {
        (false, Said::Texts(_) | Said::Ids(_)) => None,
        (true, Said::Texts(texts)) if is_whole => Some(texts.clone()),
        (true, Said::Texts(_) | Said::Ids(_)) => {
            let mut texts = Vec::new();
            for prompt in &prompts {
                texts.push(prompt::text_of(app, served, prompt.ids.clone()).await?);
            }
            Some(texts)
        }
    };
    let (choices, tells_scores) = (request.params.choices as usize, request.tells_scores);
    let ids = prompts.iter().map(|prompt| prompt.ids.clone()).collect();
    Ok((prompts, Echo { texts, prompts: ids, tells_scores, choices }))
}

fn take(mut fields: Fields, served: &Served) -> Result<CompletionRequest, ApiError> {
    let prompts =
        request::prompts(fields.require("prompt", "a text, token ids, or a list of them")?, served)?;
    let mut params = Params::take(&mut fields, served)?;
    let has_echo = fields.boolean("echo")?.unwrap_or(false);
    params.max_tokens = Some(("max_tokens", max_tokens(&mut fields, has_echo)?));
    params.logprobs = logprob_count(&mut fields, "logprobs")?;
    params.prompt_logprobs = logprob_count(&mut fields, PROMPT_LOGPROBS)?;
    let tells_scores = params.prompt_logprobs.is_some();
    let echoes_scores = has_echo && params.logprobs.is_some();
    let scores = if echoes_scores { "echo" } else { PROMPT_LOGPROBS };
    if echoes_scores {
        params.prompt_logprobs = params.prompt_logprobs.max(params.logprobs);
    }
    let ends = request::text_ends(&mut fields)?;
    fields.only("suffix", &[json!("")], "the answer stands at the end; the text behind it can't be given")?;
    best_of(&mut fields, params.choices)?;
    let form = format::take(&mut fields)?;
    fields.refuse("thinking_token_budget", "reasoning is told apart in chats alone")?;
    let delivery = request::delivery(&mut fields)?;
    request::check_prompt_logprobs(&params, delivery, scores)?;
    params.extras.progress = request::progress(&mut fields, delivery)?;
    request::about_the_client(&mut fields)?;
    fields.finish()?;
    Ok(CompletionRequest { prompts, ends, params: params.check()?, has_echo, tells_scores, form, delivery })
}

/// No tokens at all make sense where the prompt is what comes back.
fn max_tokens(fields: &mut Fields, has_echo: bool) -> Result<u32, ApiError> {
    match token_count(fields, "max_tokens", 0)? {
        Some(0) if !has_echo => Err(ApiError::Invalid {
            path: "max_tokens".to_owned(),
            why: "it may be 0 only where `echo` is true".to_owned(),
        }),
        most => Ok(most.unwrap_or(MAX_TOKENS)),
    }
}

/// None is chosen among several answers.
fn best_of(fields: &mut Fields, choices: u32) -> Result<(), ApiError> {
    let most = i64::from(fields.limits().choices);
    match fields.integer("best_of", 1..=most)? {
        Some(best) if best != 1 && best != i64::from(choices) => Err(ApiError::Invalid {
            path: "best_of".to_owned(),
            why: "all answers are sent, none is chosen; use `n`".to_owned(),
        }),
        Some(_) | None => Ok(()),
    }
}
