//! Messages that were published, sent again to who missed some, in vLLM's form.
//!
//! A client (DEALER or REQ) sends an empty frame and the number of the first message that it wants, eight bytes with the
//! highest first; a third frame names the topic where there are several. It gets an empty frame, number and payload for each
//! message that is still kept, then the number -1 with nothing. Numbers that are no longer kept are left out.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::time::timeout;
use zeromq::{RouterSocket, Socket, SocketRecv, SocketSend, ZmqMessage};

/// Messages that are kept, and bytes of them.
const MESSAGES: usize = 10_000;
const BYTES: usize = 64 << 20;
/// How long a client may leave a message unread; then the rest isn't sent.
const PATIENCE: Duration = Duration::from_secs(2);
/// What stands in place of a number behind the last message.
const END: [u8; 8] = [0xff; 8];

/// A message that was published.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Sent {
    pub(super) topic: Arc<str>,
    pub(super) number: u64,
    pub(super) payload: Arc<[u8]>,
}

/// The last messages of all topics, the oldest first.
#[derive(Debug, Default)]
pub(super) struct Kept {
    messages: VecDeque<Sent>,
    /// Of all payloads.
    bytes: usize,
}

impl Kept {
    /// Keeps a message, and forgets the oldest where there are too many.
    pub(super) fn keep(&mut self, sent: Sent) {
        self.bytes += sent.payload.len();
        self.messages.push_back(sent);
        while self.messages.len() > MESSAGES || self.bytes > BYTES {
            let oldest = self.messages.pop_front();
            self.bytes -= oldest.map_or(0, |oldest| oldest.payload.len());
        }
    }

    /// Those of a topic, or of the oldest message's, from a number on.
    fn since(&self, topic: Option<&[u8]>, first: u64) -> Vec<Sent> {
        let Some(oldest) = self.messages.front() else { return Vec::new() };
        let topic = topic.unwrap_or(oldest.topic.as_bytes());
        let is_wanted = |sent: &&Sent| sent.topic.as_bytes() == topic && sent.number >= first;
        self.messages.iter().filter(is_wanted).cloned().collect()
    }
}

/// What publisher and replay share.
pub(super) type Shared = Arc<Mutex<Kept>>;

/// Takes the address, and answers from now on.
pub(super) async fn bind(endpoint: &str) -> Result<Shared, String> {
    let mut socket = RouterSocket::new();
    socket.bind(endpoint).await.map_err(|error| error.to_string())?;
    let kept = Shared::default();
    tokio::spawn(answer(socket, kept.clone()));
    Ok(kept)
}

async fn answer(mut socket: RouterSocket, kept: Shared) {
    while let Ok(asked) = socket.recv().await {
        let frames: Vec<&[u8]> = asked.iter().map(AsRef::as_ref).collect();
        let (client, first, topic) = match frames[..] {
            [client, _, first] => (client, first, None),
            [client, _, first, topic] => (client, first, Some(topic)),
            _ => continue,
        };
        let Ok(first) = first.try_into().map(u64::from_be_bytes) else { continue };
        let messages = kept.lock().unwrap_or_else(PoisonError::into_inner).since(topic, first);
        let numbered = messages.iter().map(|sent| (sent.number.to_be_bytes(), &sent.payload[..]));
        for (number, payload) in numbered.chain([(END, &[][..])]) {
            let sending = socket.send(message(client, number, payload));
            if !matches!(timeout(PATIENCE, sending).await, Ok(Ok(()))) {
                tracing::warn!(
                    "changes of a prefix cache are not sent again: the client went away or reads nothing"
                );
                break;
            }
        }
    }
}

fn message(client: &[u8], number: [u8; 8], payload: &[u8]) -> ZmqMessage {
    let mut message = ZmqMessage::from(client.to_vec());
    for frame in [&[][..], &number, payload] {
        message.push_back(frame.to_vec().into());
    }
    message
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(topic: &str, number: u64, bytes: usize) -> Sent {
        Sent { topic: topic.into(), number, payload: vec![0; bytes].into() }
    }

    fn numbers(kept: &Kept, topic: Option<&str>, first: u64) -> Vec<u64> {
        kept.since(topic.map(str::as_bytes), first).iter().map(|sent| sent.number).collect()
    }

    #[test]
    fn messages_of_a_topic_come_from_a_number_on() {
        let mut kept = Kept::default();
        assert_eq!(numbers(&kept, None, 0), [0; 0]);
        for (topic, number) in [("a", 0), ("b", 0), ("a", 1), ("b", 1), ("a", 2)] {
            kept.keep(sent(topic, number, 1));
        }
        assert_eq!(numbers(&kept, None, 1), [1, 2]);
        assert_eq!(numbers(&kept, Some("b"), 0), [0, 1]);
        assert_eq!(numbers(&kept, Some("c"), 0), [0; 0]);
        assert_eq!(numbers(&kept, Some("a"), 3), [0; 0]);
    }

    #[test]
    fn the_oldest_are_forgotten_by_their_count_and_by_their_bytes() {
        let mut kept = Kept::default();
        (0..MESSAGES as u64 + 3).for_each(|number| kept.keep(sent("a", number, 0)));
        assert_eq!(kept.since(None, 0).first().map(|sent| sent.number), Some(3));
        kept.keep(sent("a", 50_000, BYTES));
        assert_eq!((kept.bytes, numbers(&kept, None, 40_000)), (BYTES, vec![50_000]));
        kept.keep(sent("a", 50_001, 1));
        assert_eq!((kept.bytes, numbers(&kept, None, 0)), (1, vec![50_001]));
    }
}
