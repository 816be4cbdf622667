//! Memory of idle pages goes back to the process and is taken again: no answer changes by it.

use super::simulated::Kind;
use super::*;
use crate::engine::Lender;
use gannet_ops::{GroupId, PAGE_TOKENS};
use std::sync::atomic::{AtomicU64, Ordering};

const CONTEXT: usize = 1024;
const SEQUENCES: usize = 4;

/// An engine with memory for four sequences of the whole context, and what others have left for it.
fn lending(kind: Kind, depth: usize) -> (Bench, Lender, Arc<AtomicU64>) {
    let options =
        EngineOptions { sequences: SEQUENCES, waiting: 64, depth: Some(depth), step_rows: Some(256) };
    let wish = Wish {
        context: CONTEXT,
        step_rows: 256,
        depth,
        sequences: SEQUENCES as u32,
        snapshots: 16,
        drafts: 0,
    };
    let budget = for_wish(&simulated::layout(kind), &wish);
    let (mut engine, _handle) = Engine::new(simulated::runner(kind, budget, CONTEXT), options);
    let left = Arc::new(AtomicU64::new(0));
    let account = left.clone();
    let lender = engine.lend(move |bytes| {
        account.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(bytes)).is_ok()
    });
    (Bench { kind, engine, _handle, recorder: Arc::default(), next_id: 0 }, lender, left)
}

/// Asks for bytes; the engine hears it in its next turn.
fn ask(bench: &mut Bench, lender: &Lender, bytes: u64) -> u64 {
    let lender = lender.clone();
    let asking = std::thread::spawn(move || lender.give_back(bytes));
    while bench.engine.lending.asked.is_empty() {
        std::thread::yield_now();
    }
    bench.turn();
    asking.join().expect("asking does not fail")
}

fn total(bench: &Bench) -> u64 {
    bench.engine.stats.read().pages.total as u64
}

/// A prompt after which the model's scores are numbers.
fn sound(first: u32, length: u32) -> Vec<u32> {
    prompt(first, length).into_iter().map(|token| token.min(simulated::POISON.0 - 1)).collect()
}

/// Four requests at once; how often one made room.
fn run(bench: &mut Bench, first: u32) -> u64 {
    let before = bench.engine.stats.read().preemptions;
    let texts: Vec<Vec<u32>> = (first..first + 4).map(|n| sound(n, 500)).collect();
    let ids: Vec<RequestId> = texts.iter().map(|text| bench.submit(text, 100)).collect();
    bench.finish();
    ids.iter().zip(&texts).for_each(|(id, text)| bench.check_answer(*id, text));
    bench.engine.stats.read().preemptions - before
}

#[test]
fn idle_memory_is_given_to_others_and_taken_again_when_they_leave_some() {
    for (kind, depth) in Kind::ALL.into_iter().flat_map(|kind| DEPTHS.map(|depth| (kind, depth))) {
        let (mut bench, lender, left) = lending(kind, depth);
        let page_bytes = simulated::layout(kind).page_bytes(GroupId(0)) as u64;
        assert_eq!(run(&mut bench, 1), 0, "there is room for four");
        let all = total(&bench);
        let given = ask(&mut bench, &lender, 3 * page_bytes - 1);
        assert_eq!((given, total(&bench)), (3 * page_bytes, all - 3), "{kind:?}: whole pages");
        let more = ask(&mut bench, &lender, u64::MAX);
        let kept = (CONTEXT / PAGE_TOKENS) as u64;
        let lent = (SEQUENCES as u64 - 1) * kept;
        assert_eq!(given + more, lent * page_bytes, "{kind:?}: one sequence of the whole context stays");
        assert_eq!(ask(&mut bench, &lender, 1), 0);
        assert!(run(&mut bench, 5) > 0, "{kind:?}: four need more than there is");
        left.store(5 * page_bytes, Ordering::Relaxed);
        run(&mut bench, 9);
        assert_eq!((total(&bench), left.load(Ordering::Relaxed)), (all - lent + 5, 0), "{kind:?}");
        left.store(u64::MAX, Ordering::Relaxed);
        assert_eq!(run(&mut bench, 13), 0, "{kind:?}: there is room for four again");
    }
}

#[test]
fn pages_that_sequences_run_on_are_not_given() {
    for (kind, depth) in Kind::ALL.into_iter().flat_map(|kind| DEPTHS.map(|depth| (kind, depth))) {
        let (mut bench, lender, _) = lending(kind, depth);
        let texts: Vec<Vec<u32>> = (1..5).map(|n| sound(n, 600)).collect();
        let ids: Vec<RequestId> = texts.iter().map(|text| bench.submit(text, 40)).collect();
        for _ in 0..12 {
            bench.turn();
        }
        let page_bytes = simulated::layout(kind).page_bytes(GroupId(0)) as u64;
        let given = ask(&mut bench, &lender, u64::MAX) / page_bytes;
        assert!(given > 0 && given <= 64 - 4 * 10, "{kind:?}: {given} pages");
        bench.finish();
        ids.iter().zip(&texts).for_each(|(id, text)| bench.check_answer(*id, text));
    }
}

#[test]
fn an_engine_that_has_ended_gives_nothing() {
    let (bench, lender, _) = lending(Kind::Dense, 1);
    drop(bench);
    assert_eq!(lender.give_back(1), 0);
}

#[test]
fn an_idle_engine_gives_what_it_is_asked_for() {
    let (bench, lender, _) = lending(Kind::Dense, 1);
    let (sender, inbox) = crossbeam_channel::bounded(1);
    let engine = Engine { inbox, ..bench.engine };
    let thread = std::thread::spawn(move || engine.run());
    assert!(lender.give_back(1) > 0);
    drop(lender);
    drop(sender);
    thread.join().expect("it ends when nobody can ask any more");
}
