//! Everything that a request can be refused for, and how each protocol says it.
//!
//! A fault of the request is a 4xx that names the field by its path (`messages[2].content`). OpenAI's form is
//! `{"error": {"message", "type", "param", "code"}}`, Anthropic's `{"type": "error", "error": {"type", "message"}}` with the
//! same `param` and `code`.
//!
//! Knows no route.

use crate::wire::fields::shortened;
use axum::body::Body;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use gannet_engine::SubmitError;
use gannet_grammar::GrammarError;
use gannet_text::error::TextError;
use serde_json::{Value, json};
use std::time::Duration;

/// Why a request isn't answered.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ApiError {
    #[error("the body is no valid JSON{}: {why}", at(path))]
    NotJson { path: Option<String>, why: String },
    #[error("the body is nested more than {limit} levels deep{}", at(path))]
    TooDeep { path: Option<String>, limit: usize },
    #[error("the body has more than {limit} bytes, which is the most that this server takes")]
    BodyTooLarge { limit: usize },
    #[error("the body did not arrive within {} seconds", limit.as_secs())]
    BodyTooSlow { limit: Duration },
    #[error("the body could not be read: {0}")]
    BodyBroken(String),
    #[error("the head of the request is not as it should be: {}{why}", header.map(|name| format!("`{name}`: ")).unwrap_or_default())]
    BadHead { header: Option<&'static str>, why: &'static str },
    #[error("the head of the request has more than {limit} bytes, which is the most that this server takes")]
    HeadTooLarge { limit: usize },
    #[error("the head of the request has more than {limit} lines, which is the most that this server takes")]
    HeadTooLong { limit: usize },
    #[error("the head of the request did not arrive within {} seconds", limit.as_secs_f32())]
    HeadTooSlow { limit: Duration },
    #[error("the content type is `{found}`, expected `application/json`")]
    ContentType { found: String },
    #[error("`{path}` is missing; expected {expected}")]
    Missing { path: String, expected: &'static str },
    #[error("`{path}` is {found}, expected {expected}")]
    WrongType { path: String, found: String, expected: String },
    #[error("`{path}` is {found}, expected {expected}")]
    OutOfRange { path: String, found: String, expected: String },
    #[error("`{path}` has {found} entries, at most {limit} are allowed")]
    TooMany { path: String, found: usize, limit: usize },
    #[error("unknown parameter `{path}`")]
    Unknown { path: String },
    #[error("`{path}` is not supported: {why}")]
    Unsupported { path: String, why: String },
    /// The same where it is this model that lacks it.
    #[error("`{path}` is not supported: {why}")]
    ModelLacks { path: String, why: String },
    /// What no document of names, kinds and ranges says: it depends on the model, on other parameters, on what was sent
    /// before, or on what a text says. What `/openapi.json` can say is one of the kinds above.
    #[error("`{path}`: {why}")]
    Invalid { path: String, why: String },
    #[error(
        "the context of this model has {context} tokens, and {prompt} of the prompt and {answer} of the answer were \
         asked for, {total} in all; shorten the prompt or lower `{path}`", total = prompt + answer
    )]
    ContextExceeded { path: &'static str, context: usize, prompt: usize, answer: usize },
    #[error("the model `{asked}` does not exist; this server has: {}", known.join(", "))]
    UnknownModel { asked: String, known: Vec<String> },
    #[error("the model `{model}` can't be loaded: {why}")]
    NotLoaded { model: String, why: String },
    #[error("no API key was given; send it as `Authorization: Bearer KEY`")]
    NoKey,
    #[error("the API key is wrong")]
    WrongKey,
    #[error("{limit} requests of this key are being answered already; try again when one of them has ended")]
    TooManyConcurrent { limit: usize },
    #[error("more than {limit} requests a minute; try again in {} seconds", whole_seconds(*retry_after))]
    TooFrequent { limit: u32, retry_after: Duration },
    #[error(
        "{waiting} requests are waiting already, at most {limit} may; a place is expected in about {} seconds",
        whole_seconds(*retry_after)
    )]
    QueueFull { waiting: usize, limit: usize, retry_after: Duration },
    #[error("{0}")]
    GrammarsBusy(String),
    #[error("the server is stopping and takes no new requests")]
    Draining,
    #[error("there is no route `{path}`")]
    NoRoute { path: String },
    #[error("`{path}` takes no {method}")]
    NoMethod { path: String, method: String },
    #[error("there is no {what} `{id}`")]
    NotFound { what: &'static str, id: String },
    #[error("the request was not done within {} seconds", limit.length.as_secs_f32())]
    TimedOut { limit: TimeLimit },
    #[error(
        "no token of the model's vocabulary fits what the request allows after {tokens} tokens of the answer"
    )]
    NothingFits { tokens: usize },
    #[error("the client read too slowly: {unsent} bytes were waiting for it")]
    SlowReader { unsent: usize },
    #[error("the engine gave the request up: {0}")]
    Failed(String),
}

/// Seconds after which it makes sense to try again: whole ones, and at least one.
fn whole_seconds(time: Duration) -> u64 {
    (time.as_secs_f64().ceil() as u64).max(1)
}

/// The place of a fault, where it has one.
fn at(path: &Option<String>) -> String {
    path.as_ref().map(|path| format!(" at `{path}`")).unwrap_or_default()
}

/// How long a request may take, from now to its end, and whether the client or the server says so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TimeLimit {
    pub(crate) length: Duration,
    /// By the request's own `timeout`.
    pub(crate) is_asked: bool,
}

/// The kinds of faults that both protocols know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    Request,
    Head,
    Content,
    Method,
    Slow,
    Key,
    Absent,
    TooLarge,
    TooMany,
    Unavailable,
    AskedTime,
    TimedOut,
    Server,
}

impl ApiError {
    /// A text that the model's text side refuses, at this path of the request.
    pub(crate) fn text(path: &str, error: &TextError) -> Self {
        ApiError::Invalid { path: path.to_owned(), why: error.to_string() }
    }

    /// A grammar that can't be held; `path` is where it stands. A fault of a schema is told by the place of its keyword.
    pub(crate) fn grammar(path: &str, error: &GrammarError) -> Self {
        match error {
            GrammarError::Busy { .. } => ApiError::GrammarsBusy(error.to_string()),
            GrammarError::Schema { path: pointer, reason, .. } => {
                ApiError::Invalid { path: format!("{path}{}", dotted(pointer)), why: reason.clone() }
            }
            GrammarError::Vocabulary { .. } => {
                ApiError::ModelLacks { path: path.to_owned(), why: error.to_string() }
            }
            GrammarError::TooLarge { .. }
            | GrammarError::NotJson { .. }
            | GrammarError::Regex { .. }
            | GrammarError::Lark { .. }
            | GrammarError::TooSlow { .. }
            | GrammarError::Tools { .. } => {
                ApiError::Invalid { path: path.to_owned(), why: error.to_string() }
            }
        }
    }

    /// A refusal of the engine; `path` is where the prompt stands.
    pub(crate) fn submit(path: &'static str, error: SubmitError) -> Self {
        match error {
            SubmitError::EmptyPrompt | SubmitError::UnknownToken { .. } => {
                ApiError::Invalid { path: path.to_owned(), why: error.to_string() }
            }
            SubmitError::PromptTooLong { prompt, context } => {
                ApiError::ContextExceeded { path, context, prompt, answer: 1 }
            }
            SubmitError::PromptTooLarge { prompt, memory } => {
                ApiError::ContextExceeded { path, context: memory, prompt, answer: 1 }
            }
            SubmitError::QueueFull { waiting, wait } => ApiError::QueueFull {
                waiting,
                limit: waiting,
                retry_after: wait.unwrap_or(Duration::from_secs(1)),
            },
            SubmitError::Busy { waiting } => {
                ApiError::QueueFull { waiting, limit: waiting, retry_after: Duration::from_secs(1) }
            }
            SubmitError::MakesVectors => {
                ApiError::ModelLacks { path: "model".to_owned(), why: error.to_string() }
            }
            SubmitError::TooManyLogprobs { .. } => {
                ApiError::Invalid { path: "logprobs".to_owned(), why: error.to_string() }
            }
            // Each filter was held to its range by name before; what is left depends on several.
            SubmitError::Sampling(_) => {
                ApiError::Invalid { path: "temperature".to_owned(), why: error.to_string() }
            }
            SubmitError::NoTokens | SubmitError::Stopped => ApiError::Failed(error.to_string()),
        }
    }

    /// Whose fault it is, and OpenAI's word for it where there is one.
    fn classify(&self) -> (Fault, Option<&'static str>) {
        match self {
            ApiError::NotJson { .. } | ApiError::TooDeep { .. } => (Fault::Request, Some("invalid_json")),
            ApiError::BodyBroken(_) | ApiError::SlowReader { .. } => (Fault::Request, None),
            ApiError::ContentType { .. } => (Fault::Content, None),
            ApiError::NoMethod { .. } => (Fault::Method, None),
            ApiError::BadHead { .. } => (Fault::Request, None),
            ApiError::HeadTooLarge { .. } | ApiError::HeadTooLong { .. } => (Fault::Head, None),
            ApiError::BodyTooSlow { .. } | ApiError::HeadTooSlow { .. } => (Fault::Slow, None),
            ApiError::BodyTooLarge { .. } => (Fault::TooLarge, None),
            ApiError::Missing { .. } => (Fault::Request, Some("missing_required_parameter")),
            ApiError::WrongType { .. } => (Fault::Request, Some("invalid_type")),
            ApiError::OutOfRange { .. } | ApiError::TooMany { .. } => (Fault::Request, Some("invalid_value")),
            ApiError::Invalid { .. } => (Fault::Request, Some("invalid_request")),
            ApiError::ModelLacks { .. } | ApiError::NothingFits { .. } => {
                (Fault::Request, Some("unsupported_by_model"))
            }
            ApiError::Unknown { .. } => (Fault::Request, Some("unknown_parameter")),
            ApiError::Unsupported { .. } => (Fault::Request, Some("unsupported_parameter")),
            ApiError::ContextExceeded { .. } => (Fault::Request, Some("context_length_exceeded")),
            ApiError::UnknownModel { .. } => (Fault::Absent, Some("model_not_found")),
            ApiError::NoRoute { .. } | ApiError::NotFound { .. } => (Fault::Absent, None),
            ApiError::NoKey | ApiError::WrongKey => (Fault::Key, Some("invalid_api_key")),
            ApiError::TooManyConcurrent { .. } | ApiError::TooFrequent { .. } => {
                (Fault::TooMany, Some("rate_limit_exceeded"))
            }
            ApiError::QueueFull { .. } | ApiError::GrammarsBusy(_) => (Fault::TooMany, Some("queue_full")),
            ApiError::Draining => (Fault::Unavailable, Some("draining")),
            ApiError::NotLoaded { .. } => (Fault::Unavailable, Some("model_not_loaded")),
            ApiError::TimedOut { limit } if limit.is_asked => (Fault::AskedTime, None),
            ApiError::TimedOut { .. } => (Fault::TimedOut, None),
            ApiError::Failed(_) => (Fault::Server, None),
        }
    }

    /// The status of the answer.
    pub(crate) fn status(&self) -> StatusCode {
        match self.classify().0 {
            Fault::Request => StatusCode::BAD_REQUEST,
            Fault::Head => StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
            Fault::Content => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            Fault::Method => StatusCode::METHOD_NOT_ALLOWED,
            Fault::Slow | Fault::AskedTime => StatusCode::REQUEST_TIMEOUT,
            Fault::Key => StatusCode::UNAUTHORIZED,
            Fault::Absent => StatusCode::NOT_FOUND,
            Fault::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Fault::TooMany => StatusCode::TOO_MANY_REQUESTS,
            Fault::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
            Fault::TimedOut => StatusCode::GATEWAY_TIMEOUT,
            Fault::Server => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }

    fn kind(&self) -> &'static str {
        match self.classify().0 {
            Fault::Request
            | Fault::Head
            | Fault::Content
            | Fault::Method
            | Fault::Slow
            | Fault::Key
            | Fault::Absent
            | Fault::TooLarge => "invalid_request_error",
            Fault::TooMany => "rate_limit_error",
            Fault::Unavailable => "service_unavailable_error",
            Fault::AskedTime | Fault::TimedOut => "timeout_error",
            Fault::Server => "server_error",
        }
    }

    /// The path of the parameter at fault, where there is one.
    fn param(&self) -> Option<&str> {
        if let ApiError::Missing { path, .. }
        | ApiError::WrongType { path, .. }
        | ApiError::OutOfRange { path, .. }
        | ApiError::TooMany { path, .. }
        | ApiError::Unknown { path }
        | ApiError::Unsupported { path, .. }
        | ApiError::ModelLacks { path, .. }
        | ApiError::Invalid { path, .. } = self
        {
            return Some(path);
        }
        if let ApiError::NotJson { path, .. } | ApiError::TooDeep { path, .. } = self {
            return path.as_deref();
        }
        if let ApiError::ContextExceeded { path, .. } = self {
            return Some(path);
        }
        if let ApiError::BadHead { header, .. } = self {
            return *header;
        }
        if matches!(self, ApiError::TimedOut { limit } if limit.is_asked) {
            return Some("timeout");
        }
        matches!(self, ApiError::UnknownModel { .. }).then_some("model")
    }

    /// When it makes sense to try again.
    fn retry_after(&self) -> Option<Duration> {
        if let ApiError::QueueFull { retry_after, .. } | ApiError::TooFrequent { retry_after, .. } = self {
            return Some(*retry_after);
        }
        match self.classify().0 {
            Fault::TooMany => Some(Duration::from_secs(1)),
            Fault::Unavailable => Some(Duration::from_secs(5)),
            Fault::Request
            | Fault::Head
            | Fault::Content
            | Fault::Method
            | Fault::Slow
            | Fault::Key
            | Fault::Absent
            | Fault::TooLarge
            | Fault::AskedTime
            | Fault::TimedOut
            | Fault::Server => None,
        }
    }

    /// OpenAI's form.
    pub(crate) fn body(&self) -> Value {
        json!({"error": {
            "message": self.to_string(),
            "type": self.kind(),
            "param": self.param(),
            "code": self.classify().1,
        }})
    }

    /// Anthropic's form, with the parameter and the code of OpenAI's, which its clients leave aside.
    pub(crate) fn anthropic_body(&self) -> Value {
        let kind = match self.classify().0 {
            Fault::Request | Fault::Head | Fault::Content | Fault::Method | Fault::Slow => {
                "invalid_request_error"
            }
            Fault::Key => "authentication_error",
            Fault::Absent => "not_found_error",
            Fault::TooLarge => "request_too_large",
            Fault::TooMany => "rate_limit_error",
            Fault::Unavailable => "overloaded_error",
            Fault::AskedTime | Fault::TimedOut => "timeout_error",
            Fault::Server => "api_error",
        };
        let (param, code) = (self.param(), self.classify().1);
        json!({"type": "error", "error": {
            "type": kind, "message": self.to_string(), "param": param, "code": code,
        }})
    }

    /// The answer in Anthropic's form.
    pub(crate) fn into_anthropic_response(self) -> Response {
        let body = self.anthropic_body();
        self.respond(&body)
    }

    fn respond(&self, body: &Value) -> Response {
        let mut response = Response::new(Body::from(body.to_string()));
        *response.status_mut() = self.status();
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if let Some(after) = self.retry_after() {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(whole_seconds(after)));
        }
        if self.status() == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}

/// A JSON pointer in the words of our paths: `/properties/a/items/0` as `.properties.a.items[0]`.
fn dotted(pointer: &str) -> String {
    let name = |part: &str| {
        let part = part.replace("~1", "/").replace("~0", "~");
        let is_place = !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
        if is_place { format!("[{part}]") } else { format!(".{}", shortened(&part)) }
    };
    pointer.split('/').skip(1).map(name).collect()
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let body = self.body();
        self.respond(&body)
    }
}
