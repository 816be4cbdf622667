//! The events of one step, on their way to the sinks: one message and one wake-up each.
//!
//! A sink is the client's code: where it panics, the requests that it was told of count as unheard.

use crate::containment::contained;
use crate::embedding::{EmbeddingResult, EmbeddingSink};
use crate::request::{Event, RequestId, Sink};
use std::sync::Arc;

/// Events that are still to be delivered.
#[derive(Default)]
pub(crate) struct Outbox {
    messages: Vec<Message>,
    /// Emptied lists of events, for the next messages.
    spare: Vec<Vec<(RequestId, Event)>>,
    results: Vec<Letter>,
    /// Whose events the message has that is being delivered.
    addressed: Vec<RequestId>,
}

/// The one result of a request for a vector.
struct Letter {
    sink: Arc<dyn EmbeddingSink>,
    id: RequestId,
    result: EmbeddingResult,
}

/// What one sink is told of one step.
struct Message {
    sink: Arc<dyn Sink>,
    events: Vec<(RequestId, Event)>,
}

impl Outbox {
    pub(crate) fn push(&mut self, sink: &Arc<dyn Sink>, id: RequestId, event: Event) {
        match self.messages.iter_mut().find(|message| Arc::ptr_eq(&message.sink, sink)) {
            Some(message) => message.events.push((id, event)),
            None => {
                let mut events = self.spare.pop().unwrap_or_default();
                events.push((id, event));
                self.messages.push(Message { sink: sink.clone(), events });
            }
        }
    }

    /// The one result of a request for a vector.
    pub(crate) fn push_embedding(
        &mut self,
        sink: &Arc<dyn EmbeddingSink>,
        id: RequestId,
        result: EmbeddingResult,
    ) {
        self.results.push(Letter { sink: sink.clone(), id, result });
    }

    /// Delivers everything; returns the requests that nobody listens to any more.
    pub(crate) fn flush(&mut self) -> Vec<RequestId> {
        for Letter { sink, id, result } in self.results.drain(..) {
            // It was the last word: who doesn't hear it has nothing left to be told.
            let _heard = contained(|| sink.deliver(id, result));
        }
        let (spare, addressed) = (&mut self.spare, &mut self.addressed);
        let deliver = |Message { sink, mut events }: Message| {
            addressed.clear();
            addressed.extend(events.iter().map(|(id, _)| *id));
            let heard = contained(|| sink.deliver(&mut events));
            events.clear();
            spare.push(events);
            heard.unwrap_or_else(|_| addressed.clone())
        };
        self.messages.drain(..).flat_map(deliver).collect()
    }
}
