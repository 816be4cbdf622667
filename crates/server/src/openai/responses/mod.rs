//! `/v1/responses`: answers that are kept, so that the next request can go on from them.
//!
//! A response is made while the client waits, as events, or in the background; `store` keeps it with its conversation
//! for the key that made it.

mod form;
mod input;
mod items;
mod store;

use super::chat_form::json;
use super::request::{Head, model};
use crate::app::App;
use crate::config::KeyIndex;
use crate::error::ApiError;
use crate::generate::answering::Answering;
use crate::generate::collect::{Call, Whole};
use crate::generate::held;
use crate::generate::prompt::{self, Conversation};
use crate::http::gate::Caller;
use crate::http::sse;
use crate::wire::body;
use axum::body::Body;
use axum::extract::{Extension, Path, State};
use axum::http::Request;
use axum::response::Response;
use form::{Form, ResponseStream, Truncation};
use gannet_text::chat::Message;
use input::Delivery;
use serde_json::{Value, json};
use std::sync::Arc;
use store::Entry;
use tracing::Instrument;

pub(crate) use store::Store;

/// Makes a response.
pub(crate) async fn create(
    State(app): State<Arc<App>>,
    Extension(Caller(key)): Extension<Caller>,
    request: Request<Body>,
) -> Result<Response, ApiError> {
    let mut fields = body::fields(request, &app.config.limits).await?;
    let served = model(&app, &mut fields).await?;
    let request = input::take(fields, &served)?;
    let mut messages = earlier(&app, key, request.previous.as_deref())?;
    messages.extend(request.said);
    let shown: Vec<Message> = request.instructions.into_iter().chain(messages.iter().cloned()).collect();
    let tools = request.wanted.tools.shown.clone();
    let conversation = Conversation { messages: shown, tools, options: request.options };
    let room = if request.truncates { request.params.room(&served) } else { usize::MAX };
    let (mut prompt, formats, left_out) = prompt::of_chat_within(&app, &served, conversation, room).await?;
    request.params.cut(&mut prompt, &served);
    let truncation = if request.truncates { Truncation::Auto { left_out } } else { Truncation::Disabled };
    let form = Form {
        head: Head::new("resp_", &served),
        echo: request.echo,
        previous: request.previous,
        truncation,
        extras: request.params.extras,
    };
    let held = held::of_chat(&app, &served, request.wanted, formats).await?;
    let mut answering = Answering::start(served, vec![prompt], &request.params, &held, "input")?;
    let keeper = request.is_kept.then(|| Keeper { app: app.clone(), key, messages });
    match request.delivery {
        Delivery::Stream => {
            let stream = ResponseStream::new(form, keeper);
            Ok(sse::respond(answering, stream, &app.config.limits))
        }
        Delivery::Whole => {
            let answer = answering.collect(1).await?.into_iter().next().unwrap_or_default();
            let response = form.ended(&answer, &answering);
            if let Some(keeper) = keeper {
                keeper.keep(&form.head.id, &response, Some(&answer));
            }
            Ok(json(&response))
        }
        Delivery::Background => {
            let response = form.running();
            if let Some(keeper) = keeper {
                keeper.keep(&form.head.id, &response, None);
                tokio::spawn(in_background(form, keeper, answering).in_current_span());
            }
            Ok(json(&response))
        }
    }
}

/// Finishes a response that nobody waits for.
async fn in_background(form: Form, keeper: Keeper, mut answering: Answering) {
    let id = form.head.id.clone();
    let Some(cancelled) = keeper.app.responses.cancellation(&id) else { return };
    let result = tokio::select! {
        result = answering.collect(1) => result,
        () = cancelled.notified() => return,
    };
    match result {
        Ok(answers) => {
            let answer = answers.into_iter().next().unwrap_or_default();
            let response = form.ended(&answer, &answering);
            keeper.keep(&id, &response, Some(&answer));
        }
        Err(error) => keeper.keep(&id, &form.failed(&error), None),
    }
}

/// What is needed to keep a response.
struct Keeper {
    app: Arc<App>,
    key: Option<KeyIndex>,
    /// The conversation up to the answer, without instructions.
    messages: Vec<Message>,
}

impl Keeper {
    fn keep(&self, id: &str, response: &Value, answer: Option<&Whole>) {
        let mut messages = self.messages.clone();
        messages.extend(answer.map(answered));
        self.app.responses.keep(id, Entry::new(self.key, response.clone(), messages));
    }
}

/// An answer as a message of the conversation that goes on.
fn answered(answer: &Whole) -> Message {
    let calls = answer.calls();
    let mut message = Message::new("assistant", &answer.content());
    if let Some(reasoning) = answer.reasoning() {
        message.rest.insert("reasoning_content".to_owned(), json!(reasoning));
    }
    if !calls.is_empty() {
        let call = |Call { id, name, arguments }: Call| json!({"id": id, "type": "function", "function": {"name": name, "arguments": arguments}});
        message.rest.insert("tool_calls".to_owned(), calls.into_iter().map(call).collect());
        message.parse_tool_arguments();
    }
    message
}

/// The conversation that a kept response ended with.
fn earlier(app: &App, key: Option<KeyIndex>, previous: Option<&str>) -> Result<Vec<Message>, ApiError> {
    let Some(id) = previous else { return Ok(Vec::new()) };
    let entry = app.responses.find(id, key)?;
    if entry.response["status"] == "in_progress" {
        let why = "that response is not done yet".to_owned();
        return Err(ApiError::Invalid { path: "previous_response_id".to_owned(), why });
    }
    Ok(entry.messages.as_ref().clone())
}

/// A kept response.
pub(crate) async fn one(
    State(app): State<Arc<App>>,
    Extension(Caller(key)): Extension<Caller>,
    Path(id): Path<String>,
) -> Result<Response, ApiError> {
    Ok(json(&app.responses.find(&id, key)?.response))
}

/// Forgets a kept response.
pub(crate) async fn delete(
    State(app): State<Arc<App>>,
    Extension(Caller(key)): Extension<Caller>,
    Path(id): Path<String>,
) -> Result<Response, ApiError> {
    let entry = app.responses.find(&id, key)?;
    entry.cancel.notify_one();
    app.responses.forget(&id);
    Ok(json(&json!({"id": id, "object": "response", "deleted": true})))
}

/// Stops a response that is made in the background.
pub(crate) async fn cancel(
    State(app): State<Arc<App>>,
    Extension(Caller(key)): Extension<Caller>,
    Path(id): Path<String>,
) -> Result<Response, ApiError> {
    let mut entry = app.responses.find(&id, key)?;
    if entry.response["background"] != true {
        let why = "only responses that are made in the background can be cancelled".to_owned();
        return Err(ApiError::Invalid { path: "response_id".to_owned(), why });
    }
    if entry.response["status"] == "in_progress" {
        entry.response["status"] = json!("cancelled");
        entry.cancel.notify_one();
        app.responses.keep(&id, entry.clone());
    }
    Ok(json(&entry.response))
}
