//! What the prefix caches gain and lose, published over ZeroMQ as vLLM does, so that routers know which replica has what.
//!
//! The engine's thread hands its changes to a bounded channel and goes on; a task makes messages of them. A change that
//! finds the channel full is lost, and its number is left out, so that who listens sees the gap.

mod wire;

use gannet_engine::{PrefixEvent, PrefixFollower};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;
use tokio::sync::mpsc::{Receiver, Sender, channel};
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
}

/// The way to those who listen.
pub(crate) struct Publisher {
    sender: Sender<Batch>,
    replica: String,
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
    sender: Sender<Batch>,
    topic: Arc<str>,
    next: AtomicU64,
}

impl Publisher {
    /// Takes the address, and publishes from now on.
    pub(crate) async fn bind(wanted: &KvEvents) -> Result<Self, String> {
        let mut socket = PubSocket::new();
        socket.bind(&wanted.endpoint).await.map_err(|error| error.to_string())?;
        let (sender, batches) = channel(BATCHES);
        tokio::spawn(publish(socket, batches));
        Ok(Self { sender, replica: wanted.replica.clone() })
    }

    /// Who hears the changes of a model's cache.
    pub(crate) fn follower(&self, model: &str) -> PrefixFollower {
        let topic = format!("kv@{}@{model}", self.replica).into();
        let stream = Stream { sender: self.sender.clone(), topic, next: AtomicU64::new(0) };
        Box::new(move |events| stream.send(Changes::Events(events.to_vec())))
    }
}

impl Stream {
    fn send(&self, changes: Changes) {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let batch = Batch { topic: self.topic.clone(), number, changes };
        if self.sender.try_send(batch).is_err() {
            tracing::warn!(topic = &*self.topic, number, "changes of a prefix cache are not published");
        }
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.send(Changes::Cleared);
    }
}

async fn publish(mut socket: PubSocket, mut batches: Receiver<Batch>) {
    while let Some(Batch { topic, number, changes }) = batches.recv().await {
        let seconds =
            SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0.0, |time| time.as_secs_f64());
        let payload = match &changes {
            Changes::Events(events) => wire::events(seconds, events),
            Changes::Cleared => wire::cleared(seconds),
        };
        let mut message = ZmqMessage::from(topic.as_bytes().to_vec());
        message.push_back(number.to_be_bytes().to_vec().into());
        message.push_back(payload.into());
        if let Err(error) = socket.send(message).await {
            tracing::warn!(%error, "changes of a prefix cache are not published");
        }
    }
}
