//! The engine on a simulated device: scheduling as readable traces, and a seeded random driver.

mod constrained;
mod contained;
mod drafts;
mod faults;
mod late;
mod lending;
mod lifecycle;
mod random;
mod rule;
mod scenarios;
mod simulated;
mod verified;

use super::{Engine, EngineOptions, Turn};
use crate::handle::{Command, EngineHandle};
use crate::masker::Patience;
use crate::request::{Event, FinishReason, Request, RequestId, Sink, Usage};
use crate::sequence::Sequence;
use crate::state::budget::{Wish, for_wish};
use crate::stats::Clock;
use gannet_ops::{Budget, TokenId};
use rule::Rule;
use simulated::Kind;
use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Keeps all events, by request; may stop listening to some.
#[derive(Default)]
struct Recorder {
    events: Mutex<HashMap<RequestId, Vec<Event>>>,
    deaf: Mutex<Vec<RequestId>>,
    messages: Mutex<usize>,
}

impl Sink for Recorder {
    fn deliver(&self, events: &mut Vec<(RequestId, Event)>) -> Vec<RequestId> {
        *self.messages.lock().expect("no test panics here") += 1;
        let deaf = self.deaf.lock().expect("no test panics here");
        let mut closed = Vec::new();
        for (id, event) in events.drain(..) {
            if deaf.contains(&id) {
                closed.push(id);
            }
            self.events.lock().expect("no test panics here").entry(id).or_default().push(event);
        }
        closed
    }
}

/// An engine that is stepped by hand.
struct Bench {
    kind: Kind,
    engine: Engine,
    /// Without one an engine that waits for a mask looks up at once, to end.
    _handle: EngineHandle,
    recorder: Arc<Recorder>,
    next_id: u64,
}

/// Steps in flight at which scenarios are played.
const DEPTHS: [usize; 2] = [1, 2];

/// Plays a scenario with one step in flight and with two: every request hears the same tokens.
fn at_each_depth(scenario: impl Fn(usize) -> Bench) {
    let [one, two] = DEPTHS.map(|depth| scenario(depth).all_tokens());
    assert_eq!(one, two);
}

impl Bench {
    /// With more than one step in flight the device does nothing before it is waited for.
    fn new(kind: Kind, budget: Budget, options: EngineOptions) -> Self {
        let latency = if options.depth.unwrap_or(1) > 1 { usize::MAX } else { 0 };
        Self::late(kind, budget, options, latency)
    }

    /// Over a device that is behind by so many calls.
    fn late(kind: Kind, budget: Budget, options: EngineOptions, latency: usize) -> Self {
        let runner = simulated::late_runner(kind, budget, 4096, latency);
        let (engine, _handle) = Engine::new(runner, options);
        Self { kind, engine, _handle, recorder: Arc::default(), next_id: 0 }
    }

    /// Memory for `sequences` sequences of 1,024 tokens.
    fn roomy(kind: Kind, options: EngineOptions) -> Self {
        let sequences = options.sequences as u32;
        let wish = Wish {
            context: 1024,
            step_rows: 256,
            depth: options.depth.unwrap_or(1),
            sequences,
            snapshots: 64,
            drafts: 0,
        };
        Self::new(kind, for_wish(&simulated::layout(kind), &wish), options)
    }

    /// Waits for no mask that a worker makes.
    fn be_hasty(&mut self) {
        let (bounds, alone) = ((Duration::ZERO, Duration::ZERO), Duration::ZERO);
        self.engine.masker.patience = Patience { bounds, alone };
    }

    fn submit(&mut self, prompt: &[u32], max_tokens: u32) -> RequestId {
        self.submit_with(prompt, max_tokens, |_| ())
    }

    fn submit_with(
        &mut self,
        prompt: &[u32],
        max_tokens: u32,
        change: impl FnOnce(&mut Request),
    ) -> RequestId {
        let prompt = prompt.iter().copied().map(TokenId).collect();
        let mut request = Request::greedy(prompt, max_tokens, self.recorder.clone());
        change(&mut request);
        self.enqueue(request, None)
    }

    /// Another answer to the prompt of `after`.
    fn submit_choice(&mut self, prompt: &[u32], max_tokens: u32, choice: u32, after: RequestId) -> RequestId {
        let prompt = prompt.iter().copied().map(TokenId).collect();
        let request = Request { choice, ..Request::greedy(prompt, max_tokens, self.recorder.clone()) };
        self.enqueue(request, Some(after))
    }

    fn enqueue(&mut self, request: Request, after: Option<RequestId>) -> RequestId {
        let id = RequestId(self.next_id);
        self.next_id += 1;
        if let Err(waiting) = self.engine.stats.accept(self.engine.options.waiting) {
            let reason = FinishReason::Failed(format!("{waiting} requests are waiting already"));
            let usage = Usage::default();
            self.recorder.deliver(&mut vec![(id, Event::Finished { reason, usage })]);
            return id;
        }
        let sequence = Sequence::new(id, request, after, Clock::start());
        self.engine.obey(Command::Submit(Box::new(sequence)));
        id
    }

    /// One turn; what the newest step in flight, or just collected, holds.
    fn turn(&mut self) -> Turn {
        self.engine.turn()
    }

    fn finish(&mut self) {
        for _ in 0..100_000 {
            match self.turn() {
                Turn::Idle => return,
                Turn::Waits => self.engine.await_mask(Duration::from_secs(1)),
                Turn::Worked => {}
            }
        }
        panic!("the engine does not come to an end");
    }

    fn events(&self, id: RequestId) -> Vec<Event> {
        self.recorder.events.lock().expect("no test panics here").get(&id).cloned().unwrap_or_default()
    }

    fn tokens(&self, id: RequestId) -> Vec<TokenId> {
        let token = |event: Event| match event {
            Event::Token { token, .. } => Some(token),
            Event::Started { .. } | Event::Prefilled { .. } | Event::Finished { .. } => None,
        };
        self.events(id).into_iter().filter_map(token).collect()
    }

    /// The tokens of every request, in the order of their submission.
    fn all_tokens(&self) -> Vec<Vec<TokenId>> {
        (0..self.next_id).map(|id| self.tokens(RequestId(id))).collect()
    }

    fn ending(&self, id: RequestId) -> Option<(FinishReason, Usage)> {
        match self.events(id).pop()? {
            Event::Finished { reason, usage } => Some((reason, usage)),
            Event::Started { .. } | Event::Prefilled { .. } | Event::Token { .. } => None,
        }
    }

    /// Panics unless a request's tokens are what the model says after its prompt.
    fn check_answer(&self, id: RequestId, prompt: &[u32]) {
        self.check_ruled(id, prompt, None);
    }

    /// The same for a request that a rule constrains.
    fn check_ruled(&self, id: RequestId, prompt: &[u32], rule: Option<&Rule>) {
        let mut tokens: Vec<TokenId> = prompt.iter().copied().map(TokenId).collect();
        for (place, found) in self.tokens(id).into_iter().enumerate() {
            let wanted = simulated::next_token(self.kind, &tokens);
            let expected = rule.map_or(wanted, |rule| rule.expected(&tokens[prompt.len()..], wanted));
            assert_eq!(found, expected, "token {place} of request {}", id.0);
            tokens.push(found);
        }
    }
}

impl Bench {
    /// Panics where anything but the prefix cache still holds memory.
    fn check_nothing_is_held(&mut self) {
        let engine = &mut self.engine;
        engine.check_invariants();
        assert!(engine.running.is_empty() && engine.queue.is_empty() && engine.in_flight.is_empty());
        assert_eq!(engine.free_slots.len(), engine.options.sequences);
        assert_eq!(engine.stats.read().pages.in_use, 0);
    }
}

fn prompt(first: u32, length: u32) -> Vec<u32> {
    (0..length).map(|n| (first * 37 + n * 11) % simulated::VOCABULARY).collect()
}
