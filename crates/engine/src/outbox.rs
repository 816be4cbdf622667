//! The events of one step, on their way to the sinks: one message and one wake-up each.

use crate::request::{Event, RequestId, Sink};
use std::sync::Arc;

/// Events that are still to be delivered.
#[derive(Default)]
pub(crate) struct Outbox {
    messages: Vec<Message>,
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
            None => self.messages.push(Message { sink: sink.clone(), events: vec![(id, event)] }),
        }
    }

    /// Delivers everything; returns the requests that nobody listens to any more.
    pub(crate) fn flush(&mut self) -> Vec<RequestId> {
        self.messages.drain(..).flat_map(|message| message.sink.deliver(message.events)).collect()
    }
}
