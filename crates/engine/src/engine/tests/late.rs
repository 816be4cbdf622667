//! Masks that take long: they hold up their own request alone, whatever becomes of it meanwhile.

use super::rule::{Gate, Key};
use super::simulated::Kind;
use super::*;
use std::time::Instant;

fn options(sequences: usize, depth: usize) -> EngineOptions {
    EngineOptions { sequences, waiting: 16, depth: Some(depth), step_rows: Some(64) }
}

/// A request whose mask is not made after so many tokens, before the key is dropped.
fn submit_held(bench: &mut Bench, text: &[u32], after: usize, rule: &Rule) -> (RequestId, Key) {
    let (gate, key) = Gate::closed();
    let held = Box::new(Rule { gate: Some((after, gate)), ..rule.clone() });
    (bench.submit_with(text, 20, |request| request.constraint = Some(held)), key)
}

/// Turns until a request has ended.
fn until_ended(bench: &mut Bench, id: RequestId) {
    for _ in 0..10_000 {
        if bench.ending(id).is_some() {
            return;
        }
        if bench.turn() == Turn::Waits {
            bench.engine.await_mask(Duration::from_millis(1));
        }
    }
    panic!("request {} does not end", id.0);
}

#[test]
fn a_slow_mask_holds_up_its_own_request_alone() {
    for kind in Kind::ALL {
        for (depth, after) in [(1, 0), (1, 3), (2, 0), (2, 3), (2, 12)] {
            let mut bench = Bench::roomy(kind, options(3, depth));
            let rules = [Rule::of(1), Rule::of(2)];
            // The held row is the last of a page, the first, or in between.
            let texts = [prompt(1, 61), prompt(2, 100), prompt(3, 9)];
            let (slow, key) = submit_held(&mut bench, &texts[0], after, &rules[0]);
            let free = bench.submit(&texts[1], 30);
            let quick = Box::new(rules[1].clone());
            let quick = bench.submit_with(&texts[2], 30, |request| request.constraint = Some(quick));
            [free, quick].into_iter().for_each(|id| until_ended(&mut bench, id));
            let so_far = bench.tokens(slow).len();
            assert!(so_far == after, "{kind:?} at depth {depth}: {so_far} tokens with {after} masks");
            assert!(bench.engine.stats.read().late_masks > 0);
            drop(key);
            bench.finish();
            bench.check_answer(free, &texts[1]);
            bench.check_ruled(quick, &texts[2], Some(&rules[1]));
            bench.check_ruled(slow, &texts[0], Some(&rules[0]));
            assert_eq!([slow, free, quick].map(|id| bench.tokens(id).len()), [20, 30, 30]);
            bench.check_nothing_is_held();
        }
    }
}

#[test]
fn a_request_is_cancelled_while_its_mask_is_being_made() {
    for (kind, depth) in Kind::ALL.into_iter().flat_map(|kind| DEPTHS.map(|depth| (kind, depth))) {
        let mut bench = Bench::roomy(kind, options(1, depth));
        let (gone, key) = submit_held(&mut bench, &prompt(1, 70), 2, &Rule::of(4));
        while bench.engine.stats.read().late_masks == 0 {
            bench.turn();
        }
        let next = bench.submit(&prompt(2, 70), 10);
        bench.engine.obey(Command::Cancel(gone));
        until_ended(&mut bench, next);
        assert_eq!(bench.ending(gone).map(|ending| ending.0), Some(FinishReason::Cancelled));
        bench.check_answer(next, &prompt(2, 70));
        bench.check_nothing_is_held();
        drop(key);
        let after = bench.submit(&prompt(3, 70), 10);
        bench.finish();
        bench.check_answer(after, &prompt(3, 70));
    }
}

#[test]
fn a_deadline_passes_while_all_that_runs_waits_for_a_mask() {
    for depth in DEPTHS {
        let mut bench = Bench::roomy(Kind::Dense, options(2, depth));
        let (gate, _key) = Gate::closed();
        let held = Box::new(Rule { gate: Some((1, gate)), ..Rule::of(4) });
        let late = bench.submit_with(&prompt(1, 9), 20, |request| {
            request.constraint = Some(held);
            request.deadline = Some(Instant::now() + Duration::from_millis(20));
        });
        until_ended(&mut bench, late);
        assert_eq!(bench.ending(late).map(|ending| ending.0), Some(FinishReason::TimedOut));
        bench.check_nothing_is_held();
    }
}

#[test]
fn an_engine_ends_while_masks_are_being_made() {
    let mut bench = Bench::roomy(Kind::Hybrid, options(2, 2));
    let (held, _key) = submit_held(&mut bench, &prompt(1, 70), 2, &Rule::of(4));
    while bench.engine.stats.read().late_masks == 0 {
        bench.turn();
    }
    bench.engine.give_up("it was told to");
    assert!(matches!(bench.ending(held), Some((FinishReason::Failed(_), _))));
}

#[test]
fn a_preempted_request_takes_its_mask_in_the_queue() {
    for depth in DEPTHS {
        let budget = Budget { pages: vec![4], sampler_slots: 2, ..Budget::default() };
        let mut bench = Bench::new(Kind::Dense, budget, options(2, depth));
        let first = bench.submit(&prompt(1, 100), 60);
        let (slow, key) = submit_held(&mut bench, &prompt(3, 100), 20 - 5, &Rule::of(5));
        until_ended(&mut bench, first);
        drop(key);
        bench.finish();
        bench.check_answer(first, &prompt(1, 100));
        bench.check_ruled(slow, &prompt(3, 100), Some(&Rule::of(5)));
        assert_eq!(bench.tokens(slow).len(), 20);
        assert!(bench.ending(slow).expect("it has ended").1.preemptions > 0);
    }
}
