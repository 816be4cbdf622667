//! Faults that other engines are known for, played on the simulated device; docs/faults.md lists them.

use super::random::Random;
use super::simulated::Kind;
use super::*;
use gannet_ops::PAGE_TOKENS;

fn options(sequences: usize, depth: usize) -> EngineOptions {
    EngineOptions { sequences, waiting: 16, depth: Some(depth), step_rows: Some(256) }
}

fn reused(bench: &Bench, id: RequestId) -> usize {
    bench.ending(id).expect("it has ended").1.reused_tokens as usize
}

fn spoken(bench: &Bench, id: RequestId) -> Vec<u32> {
    bench.tokens(id).iter().map(|token| token.0).collect()
}

#[test]
fn a_request_that_can_not_use_a_snapshot_leaves_it_to_others() {
    for kind in Kind::ALL {
        at_each_depth(|depth| {
            let mut bench = Bench::roomy(kind, options(1, depth));
            let text = prompt(1, 700);
            let first = bench.submit(&text, 20);
            bench.finish();
            // It has the first page and a half in common: all that is kept lies behind that, but for what is kept early.
            let short = bench.submit(&[&text[..100], &prompt(9, 30)].concat(), 20);
            bench.finish();
            assert!(reused(&bench, short) <= 100);
            let longer = [&text[..], &spoken(&bench, first), &prompt(5, 10)].concat();
            let next = bench.submit(&longer, 5);
            bench.finish();
            bench.check_answer(next, &longer);
            assert_eq!(reused(&bench, next), text.len() + 19, "{kind:?}");
            bench
        });
    }
}

#[test]
fn histories_that_only_grow_recompute_a_page_at_most() {
    for (seed, kind) in Kind::ALL.into_iter().enumerate() {
        at_each_depth(|depth| {
            let mut random = Random(seed as u64 + 40);
            let mut bench = Bench::roomy(kind, options(1, depth));
            for _ in 0..12 {
                let mut text = prompt(random.below(900), 1 + random.below(200));
                let mut known = 0;
                for turn in 0..5 {
                    let id = bench.submit(&text, 1 + random.below(90));
                    bench.finish();
                    if bench.ending(id).expect("it has ended").0 != FinishReason::MaxTokens {
                        // Its scores were not finite, so nothing of it is kept.
                        break;
                    }
                    let new = text.len() - known;
                    let computed = text.len() - reused(&bench, id);
                    assert!(
                        turn == 0 || computed <= new + PAGE_TOKENS,
                        "{kind:?}: {computed} for {new} new ones"
                    );
                    text.extend(spoken(&bench, id));
                    known = text.len();
                    text.extend(prompt(random.below(900), 1 + random.below(100)));
                }
            }
            bench
        });
    }
}

#[test]
fn what_is_reused_and_the_first_token_that_differs_are_told() {
    at_each_depth(|depth| {
        let mut bench = Bench::roomy(Kind::Hybrid, options(1, depth));
        let text = prompt(1, 300);
        bench.submit_with(&text, 1, |request| request.boundaries = vec![200]);
        bench.finish();
        let other = bench.submit(&[&text[..230], &prompt(9, 30)].concat(), 1);
        bench.finish();
        let started = Event::Started { reused_tokens: 200, common_tokens: 230 };
        assert_eq!(
            bench.events(other).first(),
            Some(&started),
            "the model can't resume between its snapshots"
        );
        bench
    });
}

#[test]
fn what_arrives_late_for_a_request_that_has_ended_is_ignored() {
    for (kind, depth) in Kind::ALL.into_iter().flat_map(|kind| [1, 2, 3].map(|depth| (kind, depth))) {
        for turns in 0..8 {
            let mut bench = Bench::roomy(kind, options(1, depth));
            let gone = bench.submit(&prompt(1, 300), 40);
            for _ in 0..turns {
                bench.turn();
            }
            bench.engine.obey(Command::Cancel(gone));
            // The steps in flight still find something, and clients say what they said before.
            let next = bench.submit(&prompt(3, 150), 10);
            for _ in 0..3 {
                bench.engine.obey(Command::Truncate(gone, 301));
                bench.engine.obey(Command::Cancel(gone));
                bench.engine.obey(Command::Cancel(RequestId(12345)));
                bench.turn();
            }
            bench.finish();
            let is_end = |event: &Event| matches!(event, Event::Finished { .. });
            let events = bench.events(gone);
            let ends: Vec<usize> = (0..events.len()).filter(|place| is_end(&events[*place])).collect();
            assert_eq!(ends, [events.len() - 1], "{kind:?}: one last word, and nothing after it");
            assert_eq!(bench.tokens(next).len(), 10);
            bench.check_answer(next, &prompt(3, 150));
            bench.check_nothing_is_held();
        }
    }
}

#[test]
fn prompts_and_answers_of_every_length_cross_pages_and_steps() {
    for kind in Kind::ALL {
        at_each_depth(|depth| {
            let mut bench = Bench::roomy(kind, EngineOptions { step_rows: Some(63), ..options(4, depth) });
            for length in (1..=2 * PAGE_TOKENS as u32 + 2).chain([191, 192, 193, 511, 512, 513]) {
                let answer = PAGE_TOKENS as u32 + length % 3;
                let id = bench.submit(&prompt(length, length), answer);
                bench.finish();
                // Where a token's scores are not finite the request ends early, and says so.
                if bench.ending(id).expect("it has ended").0 == FinishReason::MaxTokens {
                    assert_eq!(bench.tokens(id).len(), answer as usize);
                }
                bench.check_answer(id, &prompt(length, length));
            }
            bench.check_nothing_is_held();
            bench
        });
    }
}
