//! From the engine's thread to the task that follows a request: the events of each step as one message.
//!
//! The engine never waits. A task that is too many steps behind has its request ended, and hears why when it comes to it.

use crate::error::ApiError;
use gannet_engine::{Event, RequestId, Sink};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::mpsc::{Receiver, Sender, channel};

/// Steps whose events may wait for their task. It does little else than take them, so only a server without a moment for
/// it is so far behind.
const STEPS_BEHIND_MAX: usize = 4096;

/// The events of a step.
type Events = Vec<(RequestId, Event)>;

/// The engine's end.
struct Inbox {
    /// None once it was full: what comes later would leave a gap.
    sender: Mutex<Option<Sender<Events>>>,
    was_full: Arc<AtomicBool>,
}

/// The task's end.
pub(super) struct Heard {
    receiver: Receiver<Events>,
    was_full: Arc<AtomicBool>,
}

/// Both ends.
pub(super) fn inbox() -> (Arc<dyn Sink>, Heard) {
    with_room_for(STEPS_BEHIND_MAX)
}

fn with_room_for(steps: usize) -> (Arc<dyn Sink>, Heard) {
    let (sender, receiver) = channel(steps);
    let was_full = Arc::new(AtomicBool::new(false));
    let inbox = Inbox { sender: Mutex::new(Some(sender)), was_full: Arc::clone(&was_full) };
    (Arc::new(inbox), Heard { receiver, was_full })
}

impl Sink for Inbox {
    fn deliver(&self, events: &mut Events) -> Vec<RequestId> {
        let mut sender = self.sender.lock().unwrap_or_else(PoisonError::into_inner);
        let unheard = match sender.as_ref().map(|sender| (sender, sender.try_reserve())) {
            Some((_, Ok(place))) => {
                place.send(std::mem::take(events));
                return Vec::new();
            }
            Some((open, Err(_))) => {
                self.was_full.store(!open.is_closed(), Ordering::Relaxed);
                events.drain(..)
            }
            None => events.drain(..),
        };
        let ids = unheard.map(|(id, _)| id).collect();
        *sender = None;
        ids
    }
}

impl Heard {
    /// The events of the next step.
    ///
    /// # Errors
    /// Nothing comes any more: the task was too far behind, or the engine has stopped.
    pub(super) async fn next(&mut self) -> Result<Events, ApiError> {
        self.receiver.recv().await.ok_or_else(|| match self.was_full.load(Ordering::Relaxed) {
            true => ApiError::Failed(format!(
                "{} steps of it were waiting for the server",
                self.receiver.max_capacity()
            )),
            false => ApiError::Failed("the engine has stopped".to_owned()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gannet_engine::{FinishReason, Usage};
    use tokio::runtime::Builder;

    fn next(heard: &mut Heard) -> Result<Events, ApiError> {
        Builder::new_current_thread().build().unwrap().block_on(heard.next())
    }

    fn end(id: u64) -> Events {
        vec![(RequestId(id), Event::Finished { reason: FinishReason::MaxTokens, usage: Usage::default() })]
    }

    #[test]
    fn a_task_that_is_too_far_behind_loses_its_request_and_hears_why() {
        let (sink, mut heard) = with_room_for(3);
        for step in 0..3 {
            assert_eq!(sink.deliver(&mut end(step)), []);
        }
        assert_eq!(sink.deliver(&mut end(3)), [RequestId(3)]);
        // There is room again, but what was lost in between would be missing.
        assert_eq!(next(&mut heard).unwrap(), end(0));
        assert_eq!(sink.deliver(&mut [end(4), end(5)].concat()), [RequestId(4), RequestId(5)]);
        for step in 1..3 {
            assert_eq!(next(&mut heard).unwrap(), end(step));
        }
        let why = next(&mut heard).unwrap_err().to_string();
        assert!(why.contains("3 steps of it were waiting"), "{why}");
    }

    #[test]
    fn an_engine_that_drops_its_end_has_stopped() {
        let (sink, mut heard) = with_room_for(3);
        sink.deliver(&mut end(0));
        drop(sink);
        assert_eq!(next(&mut heard).unwrap(), end(0));
        let why = next(&mut heard).unwrap_err().to_string();
        assert!(why.contains("the engine has stopped"), "{why}");
    }

    #[test]
    fn a_task_that_is_gone_is_heard_of_at_once() {
        let (sink, heard) = with_room_for(3);
        drop(heard);
        assert_eq!(sink.deliver(&mut end(7)), [RequestId(7)]);
    }
}
