//! Streams of server-sent events: frames as they come, comments while nothing comes, an error as an event.
//!
//! A task makes the frames and never waits for the reader; what the reader has not taken is counted, and a stream with
//! too much of it is given up. When the reader goes, the task ends at once, and the engine forgets its requests.

use crate::error::ApiError;
use crate::generate::answering::{Answering, Update};
use crate::limits::Limits;
use axum::body::{Body, Bytes, HttpBody};
use axum::http::{HeaderValue, header};
use axum::response::Response;
use gannet_engine::QueuePlace;
use hyper::body::Frame;
use serde_json::Value;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::timeout;
use tracing::Instrument;

/// One event.
#[derive(Clone, Debug)]
pub(crate) struct SseEvent {
    /// Its name, where the protocol has names.
    pub(crate) name: Option<&'static str>,
    pub(crate) data: Value,
}

impl From<Value> for SseEvent {
    fn from(data: Value) -> Self {
        Self { name: None, data }
    }
}

/// What a protocol makes of answers as they come.
pub(crate) trait Protocol: Send + 'static {
    /// The events before the first token.
    fn begin(&mut self) -> Vec<SseEvent>;
    /// The events of what is new.
    fn update(&mut self, update: Update) -> Vec<SseEvent>;
    /// The last events.
    fn end(&mut self, answering: &Answering) -> Vec<SseEvent>;
    /// The event that says why there won't be more.
    fn fail(&mut self, error: &ApiError) -> Vec<SseEvent>;
    /// What stands behind the last event.
    fn trailer(&self) -> &'static str;
}

/// The answer whose body is made by a task of its own.
pub(crate) fn respond(answering: Answering, protocol: impl Protocol, limits: &Arc<Limits>) -> Response {
    let (sender, frames) = unbounded_channel();
    let unsent = Arc::new(AtomicUsize::new(0));
    let writer = Writer { sender, unsent: unsent.clone() };
    tokio::spawn(write(writer, answering, protocol, limits.clone()).in_current_span());
    let mut response = Response::new(Body::new(Frames { frames, unsent }));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    response
}

async fn write(writer: Writer, mut answering: Answering, mut protocol: impl Protocol, limits: Arc<Limits>) {
    let told = follow(&writer, &mut answering, &mut protocol, &limits).await;
    let events = match told {
        Ok(()) => protocol.end(&answering),
        Err(End::ReaderGone) => return,
        Err(End::Failed(error)) => {
            tracing::warn!(%error, "a stream failed");
            protocol.fail(&error)
        }
    };
    // Who is gone by now hears nothing of the end.
    let _ = writer.events(events).and_then(|()| writer.send(protocol.trailer().into()));
}

/// What a stream says while nothing comes: where its request stands.
fn comment(answering: &Answering) -> String {
    match answering.waits() {
        Some(QueuePlace { before, wait: Some(wait) }) => {
            format!(": keep-alive, {before} requests go before, about {:.1} s\n\n", wait.as_secs_f64())
        }
        Some(QueuePlace { before, wait: None }) => format!(": keep-alive, {before} requests go before\n\n"),
        None => ": keep-alive\n\n".to_owned(),
    }
}

/// Why a stream ends early.
enum End {
    ReaderGone,
    Failed(ApiError),
}

async fn follow(
    writer: &Writer,
    answering: &mut Answering,
    protocol: &mut impl Protocol,
    limits: &Limits,
) -> Result<(), End> {
    writer.events(protocol.begin())?;
    loop {
        let next = tokio::select! {
            biased;
            () = writer.sender.closed() => return Err(End::ReaderGone),
            next = timeout(limits.keep_alive, answering.next()) => next,
        };
        match next {
            Err(_) => writer.send(comment(answering).into())?,
            Ok(Ok(None)) => return Ok(()),
            Ok(Ok(Some(updates))) => {
                for update in updates {
                    writer.events(protocol.update(update))?;
                }
            }
            Ok(Err(error)) => return Err(End::Failed(error)),
        }
        let unsent = writer.unsent.load(Ordering::Relaxed);
        if unsent > limits.unsent_bytes {
            return Err(End::Failed(ApiError::SlowReader { unsent }));
        }
    }
}

/// The end of a stream where frames are made.
struct Writer {
    sender: UnboundedSender<Bytes>,
    unsent: Arc<AtomicUsize>,
}

impl Writer {
    fn events(&self, events: Vec<SseEvent>) -> Result<(), End> {
        let mut text = String::new();
        for SseEvent { name, data } in events {
            if let Some(name) = name {
                text.push_str(&format!("event: {name}\n"));
            }
            text.push_str(&format!("data: {data}\n\n"));
        }
        if text.is_empty() { Ok(()) } else { self.send(text.into()) }
    }

    fn send(&self, frame: Bytes) -> Result<(), End> {
        if frame.is_empty() {
            return Ok(());
        }
        self.unsent.fetch_add(frame.len(), Ordering::Relaxed);
        self.sender.send(frame).map_err(|_| End::ReaderGone)
    }
}

/// The end of a stream that the connection reads.
struct Frames {
    frames: UnboundedReceiver<Bytes>,
    unsent: Arc<AtomicUsize>,
}

impl HttpBody for Frames {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        self.frames.poll_recv(context).map(|bytes| {
            let bytes = bytes?;
            self.unsent.fetch_sub(bytes.len(), Ordering::Relaxed);
            Some(Ok(Frame::data(bytes)))
        })
    }
}
