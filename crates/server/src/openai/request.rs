//! What requests of this protocol have in common.

use crate::app::App;
use crate::error::ApiError;
use crate::generate::params::Params;
use crate::generate::prompt::{self, TextEnds};
use crate::models::Served;
use crate::names;
use crate::wire::body;
use crate::wire::fields::{Field, Fields};
use axum::body::Body;
use axum::http::Request;
use gannet_ops::TokenId;
use gannet_text::chat::{ChatTemplate, RenderOptions};
use serde_json::{Map, Value, json};
use std::sync::Arc;

/// How an answer is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Delivery {
    /// Whole, at the end.
    Whole,
    /// As it comes.
    Stream { with_usage: bool },
}

/// What stands at the head of an answer and of each of its chunks.
#[derive(Clone, Debug)]
pub(crate) struct Head {
    pub(crate) id: String,
    pub(crate) created: u64,
    pub(crate) model: String,
}

impl Head {
    pub(crate) fn new(prefix: &str, served: &Served) -> Self {
        Self { id: names::fresh(prefix), created: names::now_seconds(), model: served.name.clone() }
    }

    /// An object of this kind with these choices.
    pub(crate) fn object(&self, kind: &str, choices: Vec<Value>) -> Map<String, Value> {
        let object = json!({
            "id": self.id, "object": kind, "created": self.created, "model": self.model,
            "choices": choices, "system_fingerprint": names::FINGERPRINT,
        });
        if let Value::Object(object) = object { object } else { Map::new() }
    }
}

/// The fields of a request, and the model that it names.
pub(super) async fn open(app: &App, request: Request<Body>) -> Result<(Fields, Arc<Served>), ApiError> {
    let mut fields = body::fields(request, &app.config.limits).await?;
    let served = model(app, &mut fields).await?;
    Ok((fields, served))
}

/// Whether special tokens are put around texts.
pub(super) fn text_ends(fields: &mut Fields) -> Result<TextEnds, ApiError> {
    Ok(match fields.boolean("add_special_tokens")?.unwrap_or(true) {
        true => TextEnds::Added,
        false => TextEnds::Bare,
    })
}

/// A list of tokens that the model has.
pub(super) fn token_ids(field: Field, served: &Served) -> Result<Vec<TokenId>, ApiError> {
    let vocabulary = served.handle.vocabulary();
    let Value::Array(values) = field.value else { return Err(field.wrong("a list of token ids")) };
    // Paths are made for faults alone: a list may be as long as a body.
    let id = |(place, value): (usize, Value)| match value.as_u64() {
        Some(id) if id < vocabulary as u64 => Ok(TokenId(id as u32)),
        Some(_) | None => {
            let (path, limits) = (format!("{}[{place}]", field.path), field.limits.clone());
            Field { path, value, limits }.token_id(vocabulary).map(TokenId)
        }
    };
    values.into_iter().enumerate().map(id).collect()
}

/// The model that the request names.
pub(crate) async fn model(app: &App, fields: &mut Fields) -> Result<Arc<Served>, ApiError> {
    let name = fields.require("model", "the name of a model")?.string()?;
    app.models.get(&name).await
}

/// The model that the request names, or the only one.
pub(crate) async fn model_or_only(app: &App, fields: &mut Fields) -> Result<Arc<Served>, ApiError> {
    let only = {
        let mut names = app.models.list().map(|(name, _)| name.to_owned());
        names.next().filter(|_| names.next().is_none())
    };
    match (fields.string("model")?, only) {
        (Some(name), _) | (None, Some(name)) => app.models.get(&name).await,
        (None, None) => {
            Err(ApiError::Missing { path: "model".to_owned(), expected: "the name of one of several models" })
        }
    }
}

/// How the answer is to be sent.
pub(crate) fn delivery(fields: &mut Fields) -> Result<Delivery, ApiError> {
    let is_streamed = fields.boolean("stream")?.unwrap_or(false);
    let options = fields.take("stream_options");
    if !is_streamed {
        return match options {
            Some(options) => Err(options.invalid("it is only allowed where `stream` is true")),
            None => Ok(Delivery::Whole),
        };
    }
    let Some(options) = options else { return Ok(Delivery::Stream { with_usage: false }) };
    let mut options = options.object()?;
    let with_usage = options.boolean("include_usage")?.unwrap_or(false);
    options.only("include_obfuscation", &[json!(false)], "chunks are not padded")?;
    options.only("continuous_usage_stats", &[json!(false)], "usage comes once, at the end")?;
    options.finish()?;
    Ok(Delivery::Stream { with_usage })
}

/// Whether a stream tells how far its prompt is.
pub(super) fn progress(fields: &mut Fields, delivery: Delivery) -> Result<bool, ApiError> {
    let Some(field) = fields.take("return_progress") else { return Ok(false) };
    let alone = field.invalid("it is only allowed where `stream` is true");
    match (field.boolean()?, delivery) {
        (true, Delivery::Whole) => Err(alone),
        (is_told, Delivery::Whole | Delivery::Stream { .. }) => Ok(is_told),
    }
}

/// Parameters about the client, which change no answer, and those that have one value here.
pub(crate) fn about_the_client(fields: &mut Fields) -> Result<(), ApiError> {
    for name in ["user", "safety_identifier", "prompt_cache_key", "prompt_cache_retention"] {
        fields.string(name)?;
    }
    if let Some(metadata) = fields.take("metadata") {
        metadata.object()?;
    }
    fields.only("store", &[json!(false)], "answers are not kept")?;
    fields.only("service_tier", &[json!("auto"), json!("default")], "there is one tier")?;
    fields.only("request_id", &[], "send it as the header `x-request-id`")
}

/// Variables of a template that are not for requests to set.
pub(crate) const OWN_VARIABLES: [&str; 5] =
    ["messages", "tools", "add_generation_prompt", "bos_token", "eos_token"];

/// What the conversation's template is told: whether it ends where the answer begins, and its variables.
pub(crate) fn render_options(fields: &mut Fields) -> Result<RenderOptions, ApiError> {
    fields.refuse("chat_template", "templates come with models, never from requests")?;
    let continued = fields.boolean("continue_final_message")?.unwrap_or(false);
    let generation = fields.take("add_generation_prompt");
    let conflict = generation
        .as_ref()
        .map(|field| field.invalid("it must be false where `continue_final_message` is true"));
    let generation = generation.map(|field| field.boolean()).transpose()?;
    if let (true, Some(true), Some(conflict)) = (continued, generation, conflict) {
        return Err(conflict);
    }
    let mut variables = Map::new();
    if let Some(field) = fields.take("chat_template_kwargs") {
        let (path, limit) = (field.path.clone(), field.limits.template_variables);
        variables = field.object()?.into_rest();
        if variables.len() > limit {
            return Err(ApiError::TooMany { path, found: variables.len(), limit });
        }
        if let Some(name) = OWN_VARIABLES.iter().find(|name| variables.contains_key(**name)) {
            let why = "this variable is not for requests to set".to_owned();
            return Err(ApiError::Unsupported { path: format!("{path}.{name}"), why });
        }
    }
    Ok(RenderOptions {
        add_generation_prompt: generation.unwrap_or(true),
        continue_final_message: continued,
        variables,
        ..RenderOptions::default()
    })
}

/// How much the model is to think, as a variable of its template.
pub(crate) fn reasoning_effort(
    fields: &mut Fields,
    name: &str,
    template: Option<&ChatTemplate>,
    variables: &mut Map<String, Value>,
) -> Result<(), ApiError> {
    let Some(field) = fields.take(name) else { return Ok(()) };
    let levels = ["none", "minimal", "low", "medium", "high", "xhigh"];
    if !field.value.as_str().is_some_and(|level| levels.contains(&level)) {
        return Err(field.wrong("one of none, minimal, low, medium, high, xhigh"));
    }
    let knows = |name: &str| template.is_some_and(|template| template.mentions(name));
    if !knows("reasoning_effort") && !knows("enable_thinking") {
        return Err(field.model_lacks("the chat template of this model has no such setting"));
    }
    let thinks = field.value != "none";
    if knows("enable_thinking") {
        variables.entry("enable_thinking").or_insert(json!(thinks));
    }
    if knows("reasoning_effort") && thinks {
        variables.entry("reasoning_effort").or_insert(field.value);
    }
    Ok(())
}

/// Texts or token ids, as they are.
pub(super) struct Prompts {
    pub(super) said: Said,
    /// Whether the request has a list of them.
    pub(super) is_list: bool,
}

/// What a request says.
pub(super) enum Said {
    Texts(Vec<String>),
    Ids(Vec<Vec<TokenId>>),
}

impl Prompts {
    /// All of them as token ids.
    pub(super) async fn ids(
        &self,
        app: &App,
        served: &Arc<Served>,
        ends: TextEnds,
    ) -> Result<Vec<Vec<TokenId>>, ApiError> {
        match &self.said {
            Said::Texts(texts) => prompt::of_texts(app, served, texts.clone(), ends).await,
            Said::Ids(ids) => Ok(ids.clone()),
        }
    }
}

/// A text, token ids, or a list of them.
pub(super) fn prompts(field: Field, served: &Served) -> Result<Prompts, ApiError> {
    let of = |said, is_list| Prompts { said, is_list };
    if field.value.is_string() {
        return Ok(of(Said::Texts(vec![field.string()?]), false));
    }
    let Some(first) = field.value.as_array().map(|list| list.first().cloned()) else {
        return Err(field.wrong("a text, token ids, or a list of them"));
    };
    let Some(first) = first else { return Err(field.beyond("something to read")) };
    let ids_of = |field: Field| {
        let empty = field.beyond("at least one token id");
        let ids = token_ids(field, served)?;
        if ids.is_empty() { Err(empty) } else { Ok(ids) }
    };
    if first.is_number() {
        return Ok(of(Said::Ids(vec![ids_of(field)?]), false));
    }
    let entries = field.list_within(|limits| limits.prompts)?.into_iter();
    let said = match first {
        Value::Array(_) => Said::Ids(entries.map(ids_of).collect::<Result<_, _>>()?),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Object(_) => {
            Said::Texts(entries.map(Field::string).collect::<Result<_, _>>()?)
        }
    };
    Ok(of(said, true))
}

/// The scores of a prompt come with a whole answer alone; `name` is what asks for them.
pub(super) fn check_prompt_logprobs(params: &Params, delivery: Delivery, name: &str) -> Result<(), ApiError> {
    match delivery {
        Delivery::Stream { .. } if params.prompt_logprobs.is_some() => Err(ApiError::Invalid {
            path: name.to_owned(),
            why: "the scores of a prompt's tokens are not streamed; ask without `stream`".to_owned(),
        }),
        Delivery::Stream { .. } | Delivery::Whole => Ok(()),
    }
}
