//! Requests from their submission to their end: who goes first, what ends them from outside, and what is free afterwards.

use super::random::Random;
use super::simulated::Kind;
use super::*;
use crate::runner::Runner;
use crate::scheduler::Planner;
use crossbeam_channel::{Receiver, bounded, unbounded};
use gannet_ops::{
    Batch, DeviceError, Interrupter, PAGE_TOKENS, Plan, PlanBytes, SampleRows, State, StepId, StepOutput,
};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

fn options(sequences: usize, depth: usize) -> EngineOptions {
    EngineOptions { sequences, waiting: 64, depth: Some(depth), step_rows: Some(64) }
}

fn reason(bench: &Bench, id: RequestId) -> FinishReason {
    bench.ending(id).expect("it has ended").0
}

#[test]
fn a_prompt_that_has_run_for_long_has_half_of_what_shorter_ones_would_get() {
    at_each_depth(|depth| {
        let mut bench = Bench::roomy(Kind::Dense, options(3, depth));
        bench.submit(&prompt(1, 600), 1);
        bench.submit(&prompt(2, 300), 1);
        bench.engine.admit().expect("the simulated device does not fail");
        let plan = |bench: &Bench| Planner::default().plan(&bench.engine.running, 64, 4096).to_string();
        assert_eq!(plan(&bench), "r0 0..8, r1 0..56");
        bench.engine.running[0].sequence.clock.started_earlier(Duration::from_secs(3));
        assert_eq!(plan(&bench), "r0 0..32, r1 0..32");
        bench.engine.running[1].sequence.clock.started_earlier(Duration::from_secs(4));
        assert_eq!(plan(&bench), "r0 0..32, r1 0..32", "of two old ones the half is the first's");
        bench.submit(&prompt(3, 9), 1);
        bench.engine.admit().expect("the simulated device does not fail");
        assert_eq!(plan(&bench), "r0 0..29, r1 0..26, r2 0..9 draws", "a short one is not held up");
        bench.finish();
        bench
    });
}

#[test]
fn the_same_requests_have_the_same_answers_at_any_depth_whatever_they_preempt() {
    for kind in Kind::ALL {
        let [one, two] = [1, 2].map(|depth| answers(kind, depth));
        assert!(one.1 > 0 && two.1 > 0, "{kind:?}: memory is short enough that requests preempt each other");
        assert!(one.0 == two.0, "{kind:?}");
    }
}

/// The answers to sixty requests of several priorities on little memory, and how often one made room.
fn answers(kind: Kind, depth: usize) -> (Vec<Vec<TokenId>>, u64) {
    let wish = Wish { context: 1024, step_rows: 256, depth, sequences: 4, snapshots: 6, drafts: 0 };
    let mut budget = for_wish(&simulated::layout(kind), &wish);
    budget.pages[0] = 18;
    let mut bench = Bench::new(kind, budget, options(4, depth));
    let mut random = Random(17);
    let mut submitted = Vec::new();
    for _ in 0..60 {
        let text = prompt(random.below(5), 1 + random.below(300));
        let priority = random.below(3) as i32;
        let id = bench.submit_with(&text, 1 + random.below(120), |request| request.priority = priority);
        submitted.push((id, text));
        for _ in 0..random.below(30) {
            bench.turn();
        }
    }
    bench.finish();
    submitted.iter().for_each(|(id, text)| bench.check_answer(*id, text));
    let preemptions = bench.engine.stats.read().preemptions;
    (submitted.into_iter().map(|(id, _)| bench.tokens(id)).collect(), preemptions)
}

#[test]
fn a_cancel_frees_everything_within_the_steps_in_flight_and_one_more() {
    for (kind, depth) in Kind::ALL.into_iter().flat_map(|kind| [1, 2].map(|depth| (kind, depth))) {
        // Waiting, in the middle of its prompt, at its first tokens, and after a while.
        for turns in [0, 2, 5, 40] {
            let mut bench = Bench::roomy(kind, options(1, depth));
            let id = bench.submit(&prompt(1, 200), 500);
            for _ in 0..turns {
                bench.turn();
            }
            bench.engine.obey(Command::Cancel(id));
            for _ in 0..=depth {
                bench.turn();
            }
            let counts = bench.engine.stats.read().pages;
            assert_eq!((reason(&bench, id), counts.in_use), (FinishReason::Cancelled, 0), "{kind:?} {turns}");
            assert_eq!((bench.engine.running.len(), bench.engine.free_slots.len()), (0, 1));
        }
    }
}

#[test]
fn a_truncated_answer_is_resumed_where_it_was_cut_or_at_the_state_kept_before() {
    for (kind, depth) in Kind::ALL.into_iter().flat_map(|kind| [1, 2].map(|depth| (kind, depth))) {
        let mut bench = Bench::roomy(kind, options(1, depth));
        let text = prompt(1, 100);
        let id = bench.submit(&text, 100);
        for _ in 0..20 {
            bench.turn();
        }
        bench.engine.obey(Command::Truncate(id, 105));
        bench.finish();
        assert_eq!(reason(&bench, id), FinishReason::Truncated);
        let spoken: Vec<u32> = bench.tokens(id).iter().map(|token| token.0).collect();
        let longer = [&text[..], &spoken[..5], &prompt(40, 20)].concat();
        let next = bench.submit(&longer, 4);
        bench.finish();
        bench.check_answer(next, &longer);
        let reused = bench.ending(next).expect("it has ended").1.reused_tokens as usize;
        // Recurrent state was kept at the end of the prompt.
        let expected = if kind.is_recurrent() { text.len() } else { 105 };
        assert_eq!(reused, expected, "{kind:?}");
    }
}

#[test]
fn a_sink_that_takes_too_little_ends_its_own_request_alone() {
    for depth in [1, 2] {
        let mut bench = Bench::roomy(Kind::Dense, options(2, depth));
        let (sink, events) = bounded(4);
        let slow = bench.submit_with(&prompt(1, 10), 400, |request| request.sink = Arc::new(sink));
        let other = bench.submit(&prompt(2, 10), 30);
        bench.finish();
        assert_eq!(events.try_iter().count(), 4, "what it took is there, and nothing waited for the rest");
        assert!(bench.ending(slow).is_none() && bench.engine.running.is_empty());
        assert_eq!(bench.tokens(other).len(), 30);
        assert!(bench.engine.stats.read().steps < 60, "its 400 tokens were not made");
    }
}

/// A device that is never done with its first steps, unless it is interrupted.
struct Endless {
    plan: Box<dyn Plan>,
    interrupter: Interrupter,
    endless_steps: usize,
    has_begun: Arc<AtomicBool>,
}

impl Plan for Endless {
    fn submit(&mut self, batch: &Batch, state: &mut dyn State) -> Result<StepId, DeviceError> {
        if self.endless_steps > 0 {
            self.endless_steps -= 1;
            self.has_begun.store(true, Ordering::Relaxed);
            while !self.interrupter.take() {
                std::thread::yield_now();
            }
            return Err(DeviceError::Interrupted);
        }
        self.plan.submit(batch, state)
    }

    fn sample(&mut self, step: StepId, rows: &SampleRows, state: &mut dyn State) -> Result<(), DeviceError> {
        self.plan.sample(step, rows, state)
    }

    fn wait(&mut self, step: StepId) -> Result<StepOutput, DeviceError> {
        self.plan.wait(step)
    }

    fn interrupter(&self) -> Interrupter {
        self.interrupter.clone()
    }

    fn bytes(&self) -> PlanBytes {
        self.plan.bytes()
    }
}

/// What two requests come to whose first step never ends, once something is done about the first.
fn endless(
    depth: usize,
    deadline: Option<Duration>,
    act: impl FnOnce(&EngineHandle, RequestId),
) -> [Event; 2] {
    let wish = Wish { context: 1024, step_rows: 256, depth, sequences: 2, snapshots: 0, drafts: 0 };
    let budget = for_wish(&simulated::layout(Kind::Dense), &wish);
    let runner = simulated::runner(Kind::Dense, budget, 1024);
    let has_begun = Arc::new(AtomicBool::new(false));
    let interrupter = Interrupter::default();
    let plan = Endless { plan: runner.plan, interrupter, endless_steps: 1, has_begun: has_begun.clone() };
    let (engine, handle) = Engine::new(Runner { plan: Box::new(plan), ..runner }, options(2, depth));
    let submit = |deadline: Option<Duration>| {
        let (sink, events) = unbounded();
        let mut request = Request::greedy(vec![TokenId(1); 5], 3, Arc::new(sink));
        request.deadline = deadline.map(|time| Instant::now() + time);
        (handle.submit(request).expect("the request is valid"), events)
    };
    let ((first, events), (_, others)) = (submit(deadline), submit(None));
    let thread = std::thread::spawn(move || engine.run());
    while !has_begun.load(Ordering::Relaxed) {
        std::thread::yield_now();
    }
    act(&handle, first);
    let last = |events: Receiver<Event>| events.iter().last().expect("every request hears its last word");
    let ends = [last(events), last(others)];
    drop(handle);
    thread.join().expect("the engine ends when its handle is dropped");
    ends
}

#[test]
fn a_deadline_or_a_client_that_leaves_ends_the_step_that_its_request_is_in() {
    for depth in [1, 2] {
        let nothing = |_: &EngineHandle, _: RequestId| ();
        let ends = [
            endless(depth, Some(Duration::from_millis(20)), nothing),
            endless(depth, None, |handle, id| handle.abandon(id).expect("the engine runs")),
            endless(depth, None, |handle, id| handle.cancel(id).expect("the engine runs")),
        ];
        let reasons = [FinishReason::TimedOut, FinishReason::Cancelled, FinishReason::Cancelled];
        for ([first, other], expected) in ends.into_iter().zip(reasons) {
            assert!(matches!(&first, Event::Finished { reason, .. } if *reason == expected), "{first:?}");
            let is_whole = |reason: &FinishReason| *reason == FinishReason::MaxTokens;
            assert!(matches!(&other, Event::Finished { reason, .. } if is_whole(reason)), "{other:?}");
        }
    }
}

#[test]
fn what_a_request_needs_before_it_starts_is_what_the_cache_does_not_have() {
    for depth in [1, 2] {
        let budget = Budget { pages: vec![8], sampler_slots: 2, ..Budget::default() };
        let mut bench = Bench::new(Kind::Dense, budget, options(2, depth));
        let text = prompt(1, 5 * PAGE_TOKENS as u32);
        let first = bench.submit(&text, 40);
        for _ in 0..10 {
            bench.turn();
        }
        // Six of eight pages are held: one that shares five of them has room, one that shares none waits.
        let longer = [text.clone(), prompt(30, 60)].concat();
        let (sharing, apart) = (bench.submit(&longer, 3), bench.submit(&prompt(9, 200), 3));
        bench.turn();
        let started =
            |id: RequestId| bench.events(id).iter().any(|event| matches!(event, Event::Started { .. }));
        assert!(started(sharing) && !started(apart));
        bench.finish();
        bench.check_answer(first, &text);
        bench.check_answer(sharing, &longer);
        bench.check_answer(apart, &prompt(9, 200));
    }
}
