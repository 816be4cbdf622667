//! Faults in the path of one request, and in the engine itself: who hears of them, and who goes on.

use super::simulated::Kind;
use super::*;
use crate::Runner;
use gannet_ops::{Batch, DeviceError, Interrupter, Plan, PlanBytes, SampleRows, State, StepId, StepOutput};

fn options(depth: usize) -> EngineOptions {
    EngineOptions { sequences: 3, waiting: 16, depth: Some(depth), step_rows: Some(64) }
}

/// Panics at a message of its, counted from 0.
struct Panicking {
    at: usize,
    messages: Mutex<usize>,
}

impl Sink for Panicking {
    fn deliver(&self, events: &mut Vec<(RequestId, Event)>) -> Vec<RequestId> {
        // The first event is taken, the others are not, as where the panic comes from one of them.
        drop(events.drain(..1));
        let number = {
            let mut messages = self.messages.lock().expect("the lock is free when it panics");
            *messages += 1;
            *messages - 1
        };
        assert!(number < self.at, "the client's code is broken");
        Vec::new()
    }
}

#[test]
fn a_sink_that_panics_loses_its_own_requests_alone() {
    for kind in Kind::ALL {
        for (depth, at) in [(1, 0), (1, 3), (2, 5), (2, 19)] {
            let mut bench = Bench::roomy(kind, options(depth));
            let sink = Arc::new(Panicking { at, messages: Mutex::default() });
            for n in 0..2 {
                bench.submit_with(&prompt(n, 70), 20, |request| request.sink = sink.clone());
            }
            let other = bench.submit(&prompt(3, 70), 20);
            bench.finish();
            let messages = *sink.messages.lock().expect("nobody holds it");
            assert!((at + 1..=at + 2).contains(&messages), "after the panic comes the last word alone");
            assert_eq!(bench.tokens(other).len(), 20);
            bench.check_answer(other, &prompt(3, 70));
            bench.check_nothing_is_held();
        }
    }
}

/// A plan that is broken beyond what an error says.
struct Broken;

impl Plan for Broken {
    fn submit(&mut self, _batch: &Batch, _state: &mut dyn State) -> Result<StepId, DeviceError> {
        panic!("a kernel left its bounds")
    }

    fn sample(&mut self, _: StepId, _: &SampleRows, _: &mut dyn State) -> Result<(), DeviceError> {
        unreachable!("no step is submitted")
    }

    fn wait(&mut self, _step: StepId) -> Result<StepOutput, DeviceError> {
        unreachable!("no step is submitted")
    }

    fn interrupter(&self) -> Interrupter {
        Interrupter::default()
    }

    fn bytes(&self) -> PlanBytes {
        PlanBytes::default()
    }
}

#[test]
fn every_request_hears_why_where_the_engine_itself_panics() {
    DEPTHS.into_iter().for_each(an_engine_that_panics);
}

fn an_engine_that_panics(depth: usize) {
    let wish = Wish { context: 1024, step_rows: 256, depth, sequences: 1, snapshots: 0, drafts: 0 };
    let runner = simulated::runner(Kind::Dense, for_wish(&simulated::layout(Kind::Dense), &wish), 1024);
    let broken = Runner { plan: Box::new(Broken), ..runner };
    let (engine, handle) = Engine::new(broken, EngineOptions { sequences: 1, ..options(depth) });
    let recorder = Arc::new(Recorder::default());
    let submit = || handle.submit(Request::greedy(vec![TokenId(1)], 5, recorder.clone()));
    let ids: Vec<RequestId> = (0..3).map(|_| submit().expect("three may wait")).collect();
    engine.run();
    for id in ids {
        let events = recorder.events.lock().expect("no test panics here").remove(&id);
        let Some(Event::Finished { reason, .. }) = events.and_then(|mut events| events.pop()) else {
            panic!("request {} hears nothing", id.0)
        };
        let why = reason.to_string();
        assert!(why.contains("the engine has stopped") && why.contains("a kernel left its bounds"), "{why}");
    }
    assert_eq!(submit(), Err(crate::handle::SubmitError::Stopped));
    assert_eq!((handle.stats().running, handle.stats().waiting), (0, 0));
}
