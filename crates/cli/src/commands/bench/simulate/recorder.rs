//! What the engine told of each request, and when.

use crate::failure::Failure;
use crossbeam_channel::{Receiver, Sender, unbounded};
use gannet_engine::{Event, FinishReason, RequestId, Sink, Usage};
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// The events of one step and the moment at which they came.
type Message = (Instant, Vec<(RequestId, Event)>);

/// A sink for all requests of a trace.
pub(super) struct Recorder(Sender<Message>);

/// What was recorded.
pub(super) struct Records(Receiver<Message>);

/// One request from its arrival to its end.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Record {
    /// From the arrival to the first token.
    pub(super) first_token: Option<Duration>,
    /// Between one token and the next.
    pub(super) between: Vec<Duration>,
    pub(super) usage: Usage,
    /// Why it failed, if it did.
    pub(super) failure: Option<String>,
}

impl Recorder {
    pub(super) fn new() -> (Self, Records) {
        let (sender, receiver) = unbounded();
        (Self(sender), Records(receiver))
    }
}

impl Sink for Recorder {
    fn deliver(&self, events: &mut Vec<(RequestId, Event)>) -> Vec<RequestId> {
        match self.0.send((Instant::now(), std::mem::take(events))) {
            Ok(()) => Vec::new(),
            Err(unheard) => unheard.into_inner().1.into_iter().map(|(id, _)| id).collect(),
        }
    }
}

impl Record {
    /// The time to the first token from the moment at which the request left the queue.
    pub(super) fn first_token_once_begun(&self) -> Option<Duration> {
        Some(self.first_token?.saturating_sub(self.usage.timings.queued))
    }
}

/// A request that is being followed.
struct Followed {
    last: Instant,
    has_token: bool,
    record: Record,
}

impl Records {
    /// Follows all requests, each with the moment of its arrival, to their ends.
    pub(super) fn follow(
        &self,
        requests: &[(RequestId, Instant)],
    ) -> Result<Vec<(RequestId, Record)>, Failure> {
        let begin = |(id, last): &(RequestId, Instant)| {
            (*id, Followed { last: *last, has_token: false, record: Record::default() })
        };
        let mut running: HashMap<RequestId, Followed> = requests.iter().map(begin).collect();
        let mut finished = Vec::new();
        while !running.is_empty() {
            let (now, events) = self
                .0
                .recv()
                .map_err(|_| anyhow::anyhow!("the engine stopped in the middle of the trace"))?;
            for (id, event) in events {
                let Some(followed) = running.get_mut(&id) else { continue };
                followed.hears(now, &event);
                if let Event::Finished { .. } = event {
                    finished.extend(running.remove(&id).map(|followed| (id, followed.record)));
                }
            }
        }
        Ok(finished)
    }
}

impl Followed {
    fn hears(&mut self, now: Instant, event: &Event) {
        match event {
            Event::Started { .. } | Event::Prefilled { .. } => {}
            Event::Token { .. } => {
                let passed = now.saturating_duration_since(self.last);
                match self.has_token {
                    true => self.record.between.push(passed),
                    false => self.record.first_token = Some(passed),
                }
                (self.last, self.has_token) = (now, true);
            }
            Event::Finished { reason, usage } => {
                self.record.usage = *usage;
                if let FinishReason::Failed(why) = reason {
                    self.record.failure = Some(why.clone());
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gannet_ops::TokenId;

    #[test]
    fn times_count_from_the_arrival_and_then_from_token_to_token() {
        let (recorder, records) = Recorder::new();
        let arrival = Instant::now();
        let at = |milliseconds| arrival + Duration::from_millis(milliseconds);
        let token = || Event::Token { token: TokenId(1), logprobs: None };
        let usage = Usage { prompt_tokens: 3, ..Usage::default() };
        let finished = |reason| Event::Finished { reason, usage };
        let (first, second) = (RequestId(4), RequestId(5));
        for (time, events) in [
            (at(10), vec![(first, token()), (second, token())]),
            (at(15), vec![(first, token())]),
            (at(25), vec![(first, token()), (first, finished(FinishReason::MaxTokens))]),
            (at(30), vec![(second, finished(FinishReason::Failed("no room".to_owned())))]),
        ] {
            recorder.0.send((time, events)).unwrap();
        }
        let found = records.follow(&[(first, arrival), (second, at(4))]).unwrap();
        let milliseconds = |list: &[u64]| list.iter().copied().map(Duration::from_millis).collect();
        let expected = [
            Record {
                first_token: Some(Duration::from_millis(10)),
                between: milliseconds(&[5, 10]),
                usage,
                failure: None,
            },
            Record {
                first_token: Some(Duration::from_millis(6)),
                between: vec![],
                usage,
                failure: Some("no room".to_owned()),
            },
        ];
        assert_eq!(found.into_iter().map(|(_, record)| record).collect::<Vec<_>>(), expected);
    }
}
