//! The events of one step, on their way to the sinks: one message and one wake-up each.

use crate::request::{Event, RequestId, Sink};
use std::sync::Arc;

/// Events that are still to be delivered, by sink.
#[derive(Default)]
pub(crate) struct Outbox {
    messages: Vec<(Arc<dyn Sink>, Vec<(RequestId, Event)>)>,
}

impl Outbox {
    pub(crate) fn push(&mut self, sink: &Arc<dyn Sink>, id: RequestId, event: Event) {
        match self.messages.iter_mut().find(|(known, _)| Arc::ptr_eq(known, sink)) {
            Some((_, events)) => events.push((id, event)),
            None => self.messages.push((sink.clone(), vec![(id, event)])),
        }
    }

    /// Delivers everything; returns the requests that nobody listens to any more.
    pub(crate) fn flush(&mut self) -> Vec<RequestId> {
        self.messages.drain(..).flat_map(|(sink, events)| sink.deliver(events)).collect()
    }
}
