//! What every request passes: it gets an id, shows its key, and takes a turn; then its route answers, and a line of the
//! log says so.

use super::page;
use crate::app::App;
use crate::config::KeyIndex;
use crate::error::ApiError;
use crate::http::door::Answered;
use crate::http::keys::Turn;
use crate::names;
use crate::wire::fields::shortened;
use axum::body::{Body, Bytes, HttpBody};
use axum::extract::State;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, Request, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use hyper::body::{Frame, SizeHint};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;
use tracing::{Instrument, Span};

/// What answers name their request by.
pub(super) const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
const API_KEY: HeaderName = HeaderName::from_static("x-api-key");
/// Characters of a request id that a client chose.
const REQUEST_ID_BYTES: usize = 128;
/// Paths that need no key and no turn: those who watch the server have none.
const OPEN: [&str; 5] = ["/health", "/ready", "/version", "/metrics", "/v1/health"];
/// Parameters of an address that change no answer: versions of protocols, which clients' libraries add.
const VERSIONS: [&str; 2] = ["api-version", "beta"];

/// Whose request it is; nobody's where there are no keys.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Caller(pub(crate) Option<KeyIndex>);

/// Lets a request through, or says why not.
pub(crate) async fn pass(State(app): State<Arc<App>>, mut request: Request<Body>, next: Next) -> Response {
    let started = Instant::now();
    let id = request_id(request.headers());
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    let is_chunked = request.headers().contains_key(header::TRANSFER_ENCODING);
    let span = span(&request, &id);
    let answered = request.extensions_mut().remove::<Arc<Answered>>();
    let admitted = admit(&app, &request);
    let key = admitted.as_ref().ok().and_then(|(key, _)| *key).map(|key| app.config.keys.label(key));
    let mut response = match admitted {
        Ok((key, turn)) => {
            request.extensions_mut().insert(Caller(key));
            let response = next.run(request).instrument(span.clone()).await;
            response
                .map(|body| Body::new(Held { body, _turn: turn, _answered: answered, _span: span.clone() }))
        }
        Err(error) => refusal(&path, error),
    };
    let _entered = span.enter();
    let milliseconds = started.elapsed().as_millis() as u64;
    let status = response.status().as_u16();
    span.record("http.response.status_code", status);
    tracing::info!(%method, path = logged(&path), status, milliseconds, key, "answered");
    let headers = response.headers_mut();
    headers.insert(REQUEST_ID, id);
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    if is_chunked || status == 413 || !app.is_open() {
        // What follows a body without a length, or one that was not read, could be taken for another request. A server that
        // stops takes no further one.
        headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

/// Whether a path needs no key and no turn.
pub(super) fn is_open(path: &str) -> bool {
    OPEN.contains(&path) || page::PATHS.contains(&path)
}

/// Refuses an address that says more than its path: routes take their parameters from bodies alone.
pub(super) async fn plain_address(request: Request<Body>, next: Next) -> Response {
    let query = request.uri().query().unwrap_or_default();
    let mut names = query.split('&').map(|pair| pair.split_once('=').map_or(pair, |(name, _)| name));
    match names.find(|name| !name.is_empty() && !VERSIONS.contains(name)) {
        None => next.run(request).await,
        Some(name) => {
            let why = "parameters stand in bodies, not in addresses".to_owned();
            refusal(request.uri().path(), ApiError::Unsupported { path: shortened(name), why })
        }
    }
}

/// A refusal in the form of the path's protocol.
fn refusal(path: &str, error: ApiError) -> Response {
    if path.starts_with("/v1/messages") || path.starts_with("/messages") {
        return error.into_anthropic_response();
    }
    error.into_response()
}

/// What the log's lines about a request have in common.
#[cfg(not(feature = "otlp"))]
fn span(_request: &Request<Body>, id: &HeaderValue) -> Span {
    tracing::info_span!("request", id = id.to_str().unwrap_or_default())
}

/// The same, with what a trace tells of a request, as a part of its client's trace.
#[cfg(feature = "otlp")]
fn span(request: &Request<Body>, id: &HeaderValue) -> Span {
    use tracing::field::Empty;
    let span = tracing::info_span!(
        "request",
        id = id.to_str().unwrap_or_default(),
        otel.name = format!("{} {}", request.method(), logged(request.uri().path())),
        otel.kind = "server",
        http.request.method = request.method().as_str(),
        url.path = logged(request.uri().path()),
        http.response.status_code = Empty,
        gen_ai.request.model = Empty,
        gen_ai.usage.input_tokens = Empty,
        gen_ai.usage.output_tokens = Empty,
    );
    crate::traces::adopt(&span, request.headers());
    span
}

/// At most 128 bytes of a path.
fn logged(path: &str) -> &str {
    &path[..path.len().min(128)]
}

/// Whose request it is, and its turn.
fn admit(app: &App, request: &Request<Body>) -> Result<(Option<KeyIndex>, Option<Turn>), ApiError> {
    let path = request.uri().path();
    if is_open(path) || request.method() == Method::OPTIONS {
        return Ok((None, None));
    }
    let key = key_of(app, request.headers())?;
    if !app.is_open() {
        return Err(ApiError::Draining);
    }
    Ok((key, Some(app.keys.take(key.unwrap_or(0))?)))
}

fn key_of(app: &App, headers: &HeaderMap) -> Result<Option<KeyIndex>, ApiError> {
    if app.config.keys.is_empty() {
        return Ok(None);
    }
    let bearer = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok()).and_then(|value| {
        let (scheme, key) = value.split_once(' ')?;
        scheme.eq_ignore_ascii_case("bearer").then_some(key.trim())
    });
    let key = bearer.or_else(|| headers.get(API_KEY).and_then(|value| value.to_str().ok()));
    let key = key.ok_or(ApiError::NoKey)?;
    app.config.keys.find(key).map(Some).ok_or(ApiError::WrongKey)
}

/// The client's own id, if it is a plain word, or a fresh one.
fn request_id(headers: &HeaderMap) -> HeaderValue {
    let is_plain = |value: &&HeaderValue| {
        let bytes = value.as_bytes();
        (1..=REQUEST_ID_BYTES).contains(&bytes.len())
            && bytes.iter().all(|byte| byte.is_ascii_alphanumeric() || b"-_.:".contains(byte))
    };
    headers.get(REQUEST_ID).filter(is_plain).cloned().unwrap_or_else(|| {
        HeaderValue::from_str(&names::fresh("req_")).expect("letters and digits are a header's value")
    })
}

/// A body that holds a turn until it is sent or given up.
struct Held {
    body: Body,
    _turn: Option<Turn>,
    _answered: Option<Arc<Answered>>,
    /// A request's span ends with its answer.
    _span: Span,
}

impl HttpBody for Held {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
