//! What the prefix caches gain and lose, published over ZeroMQ as vLLM does, so that routers know which replica has what.
//!
//! The engine's thread hands its changes to a bounded channel and goes on; a task makes messages of them. A change that
//! finds the channel full is lost, and its number is left out, so that who listens sees the gap.

mod replay;
mod wire;

use crate::http::serve::ServeError;
use gannet_engine::{PrefixEvent, PrefixFollower};
use replay::{Sent, Shared};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::SystemTime;
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::sync::oneshot;
use tokio::task::unconstrained;
use zeromq::{PubSocket, Socket, SocketSend, ZmqMessage};

/// Batches of changes that may wait to be sent.
const BATCHES: usize = 4096;

/// Where to publish.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KvEvents {
    /// Where to listen, such as `tcp://0.0.0.0:5557`.
    pub endpoint: String,
    /// What routers call this replica: its address and the port of its routes.
    pub replica: String,
    /// Where to listen for those who ask for old messages again, such as `tcp://0.0.0.0:5558`.
    pub replay: Option<String>,
}

/// The way to those who listen.
pub(crate) struct Publisher {
    sender: Sender<Message>,
    replica: String,
    /// Those of models that are or were in memory.
    streams: Mutex<Vec<Weak<Stream>>>,
}

/// What the task that publishes is told.
enum Message {
    Batch(Batch),
    /// Say when all before it is sent.
    Flush(oneshot::Sender<()>),
}

/// Changes of one model's cache.
struct Batch {
    topic: Arc<str>,
    number: u64,
    changes: Changes,
}

enum Changes {
    Events(Vec<PrefixEvent>),
    /// The model has left memory.
    Cleared,
}

/// One model's changes in their order; says that all is gone when it is dropped.
struct Stream {
    sender: Sender<Message>,
    topic: Arc<str>,
    next: AtomicU64,
    is_cleared: AtomicBool,
}

impl Publisher {
    /// Takes the addresses, and publishes from now on.
    pub(crate) async fn bind(wanted: &KvEvents) -> Result<Self, ServeError> {
        let fault = |endpoint: &str, reason| ServeError::Events { endpoint: endpoint.to_owned(), reason };
        let mut socket = PubSocket::new();
        let bound = socket.bind(&wanted.endpoint).await;
        bound.map_err(|error| fault(&wanted.endpoint, error.to_string()))?;
        let kept = match &wanted.replay {
            Some(endpoint) => Some(replay::bind(endpoint).await.map_err(|reason| fault(endpoint, reason))?),
            None => None,
        };
        let (sender, messages) = channel(BATCHES);
        // The socket tries to write once a message: a task that has used up its turn would be told to come again later, which
        // for the last message is never.
        tokio::spawn(unconstrained(publish(socket, messages, kept)));
        Ok(Self { sender, replica: wanted.replica.clone(), streams: Mutex::default() })
    }

    /// Who hears the changes of a model's cache.
    pub(crate) fn follower(&self, model: &str) -> PrefixFollower {
        let topic = format!("kv@{}@{model}", self.replica).into();
        let (next, is_cleared) = (AtomicU64::new(0), AtomicBool::new(false));
        let stream = Arc::new(Stream { sender: self.sender.clone(), topic, next, is_cleared });
        let mut streams = self.streams.lock().unwrap_or_else(PoisonError::into_inner);
        streams.retain(|stream| stream.strong_count() > 0);
        streams.push(Arc::downgrade(&stream));
        Box::new(move |events| stream.send(Changes::Events(events.to_vec())))
    }

    /// Says of every model that all is gone, and waits until that is sent: the server stops.
    pub(crate) async fn close(&self) {
        let streams = std::mem::take(&mut *self.streams.lock().unwrap_or_else(PoisonError::into_inner));
        streams.iter().filter_map(Weak::upgrade).for_each(|stream| stream.clear());
        let (done, is_done) = oneshot::channel();
        if self.sender.send(Message::Flush(done)).await.is_ok() {
            // A task that has ended has nothing left to send.
            let _ = is_done.await;
        }
    }
}

impl Stream {
    fn send(&self, changes: Changes) {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let batch = Batch { topic: self.topic.clone(), number, changes };
        if self.sender.try_send(Message::Batch(batch)).is_err() {
            tracing::warn!(topic = &*self.topic, number, "changes of a prefix cache are not published");
        }
    }

    fn clear(&self) {
        if !self.is_cleared.swap(true, Ordering::Relaxed) {
            self.send(Changes::Cleared);
        }
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.clear();
    }
}

async fn publish(mut socket: PubSocket, mut messages: Receiver<Message>, kept: Option<Shared>) {
    while let Some(message) = messages.recv().await {
        let Batch { topic, number, changes } = match message {
            Message::Batch(batch) => batch,
            Message::Flush(done) => {
                // Who asked may be gone.
                let _ = done.send(());
                continue;
            }
        };
        let seconds =
            SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0.0, |time| time.as_secs_f64());
        let payload = match &changes {
            Changes::Events(events) => wire::events(seconds, events),
            Changes::Cleared => wire::cleared(seconds),
        };
        if let Some(kept) = &kept {
            let sent = Sent { topic: topic.clone(), number, payload: payload.clone().into() };
            kept.lock().unwrap_or_else(PoisonError::into_inner).keep(sent);
        }
        let mut message = ZmqMessage::from(topic.as_bytes().to_vec());
        message.push_back(number.to_be_bytes().to_vec().into());
        message.push_back(payload.into());
        if let Err(error) = socket.send(message).await {
            tracing::warn!(%error, "changes of a prefix cache are not published");
        }
    }
}
