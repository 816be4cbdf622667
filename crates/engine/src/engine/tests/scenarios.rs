//! Each scheduling rule as a short trace: a line a step, the rows of each request in it.

use super::simulated::Kind;
use super::*;
use crate::handle::SubmitError;
use crate::scheduler;
use gannet_ops::PAGE_TOKENS;

fn options(sequences: usize, step_rows: usize, depth: usize) -> EngineOptions {
    EngineOptions { sequences, waiting: 16, depth: Some(depth), step_rows: Some(step_rows) }
}

/// Runs to the end and writes down the rows of each step.
fn trace(bench: &mut Bench, steps: usize) -> Vec<String> {
    let mut lines = Vec::new();
    for _ in 0..steps {
        bench.engine.admit().expect("the simulated device does not fail");
        let decoding = bench.engine.running.iter().filter(|running| running.sequence.is_decoding()).count();
        let rows = bench.engine.budget.rows(decoding);
        lines.push(scheduler::Planner::default().plan(&bench.engine.running, rows, 4096).to_string());
        bench.turn();
    }
    lines
}

#[test]
fn a_prompt_is_computed_in_chunks_and_then_decodes() {
    at_each_depth(|depth| {
        let mut bench = Bench::roomy(Kind::Dense, options(2, 64, depth));
        bench.submit(&prompt(1, 150), 3);
        assert_eq!(
            trace(&mut bench, 6),
            ["r0 0..64", "r0 64..128", "r0 128..150 draws", "r0 150..151 draws", "r0 151..152 draws", ""]
        );
        bench.finish();
        bench
    });
}

#[test]
fn decoding_rows_come_before_a_long_prompt() {
    at_each_depth(|depth| {
        let mut bench = Bench::roomy(Kind::Dense, options(3, 32, depth));
        bench.submit(&prompt(1, 10), 5);
        bench.submit(&prompt(2, 12), 5);
        bench.turn();
        bench.submit(&prompt(3, 100), 2);
        assert_eq!(
            trace(&mut bench, 4),
            [
                "r0 10..11 draws, r1 12..13 draws, r2 0..30",
                "r0 11..12 draws, r1 13..14 draws, r2 30..60",
                "r0 12..13 draws, r1 14..15 draws, r2 60..90",
                "r0 13..14 draws, r1 15..16 draws, r2 90..100 draws",
            ]
        );
        bench.finish();
        bench
    });
}

#[test]
fn the_shortest_prompt_is_served_first_and_no_prompt_stands_still() {
    at_each_depth(|depth| {
        let mut bench = Bench::roomy(Kind::Dense, options(3, 64, depth));
        bench.submit(&prompt(1, 400), 1);
        bench.submit(&prompt(2, 40), 1);
        assert_eq!(trace(&mut bench, 2), ["r0 0..24, r1 0..40 draws", "r0 24..88"]);
        bench.finish();
        bench
    });
}

#[test]
fn what_does_not_fit_waits_in_order_of_priority() {
    at_each_depth(|depth| {
        let mut bench = Bench::roomy(Kind::Dense, options(1, 64, depth));
        let first = bench.submit(&prompt(1, 5), 2);
        bench.turn();
        let low = bench.submit_with(&prompt(2, 5), 2, |request| request.priority = -1);
        let same = bench.submit(&prompt(3, 5), 2);
        bench.finish();
        let ended = |id: RequestId| bench.ending(id).expect("it has ended").1.timings.queued;
        assert!(ended(first) < ended(same) && ended(same) < ended(low));
        bench
    });
}

#[test]
fn a_higher_priority_takes_the_place_of_a_lower_one() {
    at_each_depth(|depth| {
        let mut bench = Bench::roomy(Kind::Dense, options(1, 64, depth));
        let low = bench.submit(&prompt(1, 100), 50);
        for _ in 0..10 {
            bench.turn();
        }
        let high = bench.submit_with(&prompt(2, 5), 3, |request| request.priority = 1);
        (0..depth).for_each(|_| _ = bench.turn());
        assert_eq!(bench.tokens(high).len(), 1, "it runs at once");
        bench.finish();
        assert_eq!(bench.ending(low).expect("it has ended").1.preemptions, 1);
        assert_eq!(bench.tokens(low).len(), 50);
        bench.check_answer(low, &prompt(1, 100));
        bench.check_answer(high, &prompt(2, 5));
        bench
    });
}

#[test]
fn a_sequence_that_needs_a_page_preempts_the_newest() {
    at_each_depth(|depth| {
        let budget = Budget { pages: vec![4], sampler_slots: 2, ..Budget::default() };
        let mut bench = Bench::new(Kind::Dense, budget, options(2, 256, depth));
        let old = bench.submit(&prompt(1, 100), 60);
        let new = bench.submit(&prompt(2, 100), 60);
        bench.finish();
        for (id, text) in [(old, prompt(1, 100)), (new, prompt(2, 100))] {
            assert_eq!(bench.tokens(id).len(), 60);
            bench.check_answer(id, &text);
        }
        assert_eq!(bench.ending(old).expect("it has ended").1.preemptions, 0);
        assert!(bench.ending(new).expect("it has ended").1.preemptions > 0);
        bench
    });
}

#[test]
fn a_full_queue_refuses_with_its_length_and_when_a_place_is_expected() {
    DEPTHS.into_iter().for_each(a_full_queue);
}

fn a_full_queue(depth: usize) {
    let wish = Wish { context: 1024, step_rows: 256, depth, sequences: 1, snapshots: 0, drafts: 0 };
    let runner = simulated::runner(Kind::Dense, for_wish(&simulated::layout(Kind::Dense), &wish), 1024);
    let (mut engine, handle) = Engine::new(runner, EngineOptions { waiting: 3, ..options(1, 64, depth) });
    let recorder = Arc::new(Recorder::default());
    let submit = |tokens| handle.submit(Request::greedy(vec![TokenId(1)], tokens, recorder.clone()));
    let all: Vec<RequestId> = (0..3).map(|_| submit(2).expect("three may wait")).collect();
    assert_eq!(submit(2), Err(SubmitError::QueueFull { waiting: 3, wait: None }));
    let mut turn = || {
        engine.inbox.try_iter().collect::<Vec<_>>().into_iter().for_each(|command| engine.obey(command));
        engine.turn()
    };
    turn();
    let before = |id: &RequestId| handle.queue_place(*id).map(|place| place.before);
    assert_eq!(all.iter().map(before).collect::<Vec<_>>(), [None, Some(0), Some(1)], "one runs, two wait");
    let more = submit(2).expect("one has left the queue");
    while turn() == Turn::Worked && handle.queue_place(more).is_none_or(|place| place.before > 0) {}
    let place = handle.queue_place(more).expect("it still waits");
    assert!(place.wait.is_some(), "two that left the queue show how fast it moves");
    for _ in 0..2 {
        submit(2).expect("two have left the queue");
    }
    let refused = submit(2).expect_err("three wait");
    assert!(matches!(refused, SubmitError::QueueFull { waiting: 3, wait: Some(_) }), "{refused:?}");
    assert!(refused.to_string().contains("would wait for about"), "{refused}");
    // A request that is cancelled while it waits leaves its place to another.
    handle.cancel(more).expect("the inbox has room");
    turn();
    submit(2).expect("one was cancelled");
}

#[test]
fn events_of_one_step_leave_as_one_message() {
    at_each_depth(|depth| {
        let mut bench = Bench::roomy(Kind::Dense, options(8, 256, depth));
        for n in 0..8 {
            bench.submit(&prompt(n, 5), 4);
        }
        bench.finish();
        // Four tokens each, of which the first comes with the prompts, one step after they have left the queue where
        // another step is submitted before the first is collected.
        assert_eq!(*bench.recorder.messages.lock().expect("no test panics here"), 3 + depth);
        bench
    });
}

#[test]
fn a_conversation_that_goes_on_computes_what_is_new() {
    for (kind, most) in Kind::ALL.map(|kind| (kind, 20)) {
        at_each_depth(|depth| {
            let mut bench = Bench::roomy(kind, options(2, 256, depth));
            let mut text = prompt(1, 300);
            for turn in 0..5 {
                let id = bench.submit(&text, 20);
                bench.finish();
                bench.check_answer(id, &text);
                let (_, usage) = bench.ending(id).expect("it has ended");
                let computed = usage.prompt_tokens - usage.reused_tokens;
                assert!(turn == 0 || computed <= most, "{kind:?}: turn {turn} computes {computed} tokens");
                text.extend(bench.tokens(id).iter().map(|token| token.0));
                text.extend(prompt(50 + turn, 18));
            }
            bench
        });
    }
}

#[test]
fn a_shared_system_prompt_is_found_by_the_second_that_has_it() {
    for kind in Kind::ALL {
        at_each_depth(|depth| {
            let mut bench = Bench::roomy(kind, options(2, 256, depth));
            let system = prompt(1, 500);
            // A page that filled up has its keys in int8 alone, so a hit ends where it begins, unless a snapshot in it kept them.
            let known = if kind == Kind::Quantised { 500 / PAGE_TOKENS * PAGE_TOKENS } else { 500 };
            for (user, expected) in [(10, 0), (20, known)] {
                let text = [system.clone(), prompt(user, 30)].concat();
                let id = bench.submit_with(&text, 5, |request| request.boundaries = vec![500]);
                bench.finish();
                bench.check_answer(id, &text);
                let reused = bench.ending(id).expect("it has ended").1.reused_tokens;
                assert_eq!(reused as usize, expected, "{kind:?}");
            }
            bench
        });
    }
}

#[test]
fn a_branch_that_was_seen_is_found_the_third_time() {
    at_each_depth(|depth| {
        let mut bench = Bench::roomy(Kind::Hybrid, options(2, 256, depth));
        let shared = prompt(1, 500);
        let mut reused = Vec::new();
        for user in [10, 20, 30] {
            let text = [shared.clone(), prompt(user, 300)].concat();
            let id = bench.submit(&text, 5);
            bench.finish();
            bench.check_answer(id, &text);
            reused.push(bench.ending(id).expect("it has ended").1.reused_tokens);
        }
        assert_eq!(reused, [0, 384, 448], "a log-spaced checkpoint, then the page before the branch");
        bench
    });
}

#[test]
fn neither_steps_in_flight_nor_a_late_device_change_an_answer() {
    let answers = |kind, depth, latency| {
        let options = options(3, 64, depth);
        let wish = Wish { context: 1024, step_rows: 256, depth, sequences: 3, snapshots: 64, drafts: 0 };
        let mut bench = Bench::late(kind, for_wish(&simulated::layout(kind), &wish), options, latency);
        let ids: Vec<RequestId> = (0..5).map(|n| bench.submit(&prompt(n, 70 + 13 * n), 30)).collect();
        bench.finish();
        ids.iter().for_each(|id| bench.check_answer(*id, &prompt(id.0 as u32, 70 + 13 * id.0 as u32)));
        bench.all_tokens()
    };
    for kind in Kind::ALL {
        let expected = answers(kind, 1, 0);
        for (depth, latency) in
            [1, 2, 3].into_iter().flat_map(|depth| [0, 1, 2, 5, usize::MAX].map(|late| (depth, late)))
        {
            assert!(answers(kind, depth, latency) == expected, "{kind:?} at {depth}, {latency} calls late");
        }
    }
}

#[test]
fn a_truncated_answer_is_cached_up_to_where_it_was_cut() {
    at_each_depth(|depth| {
        let mut bench = Bench::roomy(Kind::Dense, options(1, 256, depth));
        let text = prompt(1, 100);
        let id = bench.submit(&text, 100);
        for _ in 0..19 + depth {
            bench.turn();
        }
        bench.engine.obey(Command::Truncate(id, 105));
        bench.finish();
        assert_eq!(bench.ending(id).expect("it has ended").0, FinishReason::Truncated);
        let spoken: Vec<u32> = bench.tokens(id).iter().map(|token| token.0).collect();
        let longer = [text, spoken[..10].to_vec()].concat();
        let next = bench.submit(&longer, 1);
        bench.finish();
        assert_eq!(bench.ending(next).expect("it has ended").1.reused_tokens, 105);
        bench
    });
}

#[test]
fn scores_that_are_not_finite_end_their_request_alone_and_leave_no_cache() {
    for kind in Kind::ALL {
        at_each_depth(|depth| {
            let mut bench = Bench::roomy(kind, options(2, 256, depth));
            let bad = [prompt(1, 200), vec![simulated::POISON.0]].concat();
            let ids = [bench.submit(&bad, 5), bench.submit(&prompt(2, 100), 5)];
            bench.finish();
            let (reason, _) = bench.ending(ids[0]).expect("it has ended");
            assert!(
                matches!(reason, FinishReason::Failed(ref why) if why.contains("not finite")),
                "{reason:?}"
            );
            assert_eq!(bench.tokens(ids[1]).len(), 5);
            let again = bench.submit(&bad, 5);
            bench.finish();
            assert_eq!(bench.ending(again).expect("it has ended").1.reused_tokens, 0, "{kind:?}");
            bench
        });
    }
}

#[test]
fn a_deadline_ends_a_request_wherever_it_is() {
    at_each_depth(|depth| {
        let mut bench = Bench::roomy(Kind::Dense, options(1, 64, depth));
        let past = |request: &mut Request| request.deadline = Some(std::time::Instant::now());
        let running = bench.submit(&prompt(1, 500), 50);
        bench.turn();
        let waiting = bench.submit_with(&prompt(2, 5), 5, past);
        bench.turn();
        assert_eq!(bench.ending(waiting).expect("it has ended").0, FinishReason::TimedOut);
        assert!(bench.ending(running).is_none());
        bench
    });
}

#[test]
fn choices_compute_their_prompt_once() {
    for kind in Kind::ALL {
        at_each_depth(|depth| {
            let mut bench = Bench::roomy(kind, options(4, 256, depth));
            let text = prompt(1, 200);
            let leader = bench.submit(&text, 5);
            let others: Vec<RequestId> =
                (0..3).map(|choice| bench.submit_choice(&text, 5, choice + 1, leader)).collect();
            bench.finish();
            assert_eq!(bench.ending(leader).expect("it has ended").1.reused_tokens, 0);
            for id in others {
                assert_eq!(bench.ending(id).expect("it has ended").1.reused_tokens, 199, "{kind:?}");
                bench.check_answer(id, &text);
            }
            bench
        });
    }
}

#[test]
fn a_thousand_aborts_at_any_moment_leave_nothing_held() {
    for (kind, depth) in Kind::ALL.into_iter().flat_map(|kind| DEPTHS.map(|depth| (kind, depth))) {
        let mut bench = Bench::roomy(kind, options(4, 64, depth));
        let mut moment = 1u32;
        for n in 0..1000u32 {
            let id = bench.submit(&prompt(n % 7, 20 + n % 150), 40);
            moment = moment.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            for _ in 0..(moment >> 16) % 8 {
                bench.turn();
            }
            bench.engine.obey(Command::Cancel(id));
            // What runs on is what is in flight: a cancelled request is gone within a step after that.
            if n % 100 == 99 {
                (0..depth).for_each(|_| _ = bench.turn());
                assert_eq!((bench.engine.running.len(), bench.engine.free_slots.len()), (0, 4), "{kind:?}");
            }
        }
        bench.finish();
        bench.check_nothing_is_held();
    }
}
