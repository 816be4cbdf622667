//! Requests with constraints: masks reach their own rows, and each token advances its constraint once.

use super::rule::Rule;
use super::simulated::Kind;
use super::*;

fn options(sequences: usize, depth: usize) -> EngineOptions {
    EngineOptions { sequences, waiting: 16, depth: Some(depth), step_rows: Some(64) }
}

fn submit(bench: &mut Bench, text: &[u32], max_tokens: u32, rule: &Rule) -> RequestId {
    let rule = Box::new(rule.clone());
    bench.submit_with(text, max_tokens, |request| request.constraint = Some(rule))
}

/// Who makes masks.
#[derive(Clone, Copy, Debug)]
enum Makes {
    Workers,
    /// Workers whom nobody waits for.
    Hasty,
    Team,
}

impl Makes {
    fn set(self, bench: &mut Bench) {
        match self {
            Makes::Workers => {}
            Makes::Hasty => bench.be_hasty(),
            Makes::Team => simulated::lend_team(&mut bench.engine.runner),
        }
    }
}

fn reason(bench: &Bench, id: RequestId) -> FinishReason {
    bench.ending(id).expect("it has ended").0
}

#[test]
fn constrained_and_free_requests_share_steps_at_any_depth() {
    for (kind, depths) in [(Kind::Dense, 1..4), (Kind::Windowed, 1..4), (Kind::Hybrid, 1..3)] {
        for depth in depths {
            for makes in [Makes::Workers, Makes::Hasty, Makes::Team] {
                let mut bench = Bench::roomy(kind, options(4, depth));
                makes.set(&mut bench);
                let texts: Vec<Vec<u32>> = (0..6).map(|n| prompt(n + 20, 5 + 40 * n)).collect();
                let rules = [Some(1), None, Some(2), Some(3), None, Some(4)].map(|salt| salt.map(Rule::of));
                let ids: Vec<RequestId> = texts
                    .iter()
                    .zip(&rules)
                    .map(|(text, rule)| match rule {
                        Some(rule) => submit(&mut bench, text, 30, rule),
                        None => bench.submit(text, 30),
                    })
                    .collect();
                bench.finish();
                for ((id, text), rule) in ids.iter().zip(&texts).zip(&rules) {
                    assert_eq!(bench.tokens(*id).len(), 30, "{kind:?} at depth {depth}");
                    bench.check_ruled(*id, text, rule.as_ref());
                }
            }
        }
    }
}

#[test]
fn a_preempted_constraint_goes_on_where_it_was() {
    for depth in [1, 2] {
        let budget = Budget { pages: vec![4], sampler_slots: 2, ..Budget::default() };
        let mut bench = Bench::new(Kind::Dense, budget, options(2, depth));
        let rule = Rule::of(5);
        let ids = [1, 3].map(|n| (submit(&mut bench, &prompt(n, 100), 60, &rule), prompt(n, 100)));
        bench.finish();
        let preemptions = |id| bench.ending(id).expect("it has ended").1.preemptions;
        assert!(preemptions(ids[1].0) > 0);
        for (id, text) in &ids {
            assert_eq!(bench.tokens(*id).len(), 60);
            bench.check_ruled(*id, text, Some(&rule));
        }
    }
}

#[test]
fn a_constraint_that_fails_ends_its_own_request() {
    for depth in [1, 2] {
        let mut bench = Bench::roomy(Kind::Hybrid, options(2, depth));
        let rule = Rule { fails_after: Some(4), ..Rule::of(6) };
        let failing = submit(&mut bench, &prompt(1, 70), 20, &rule);
        let other = bench.submit(&prompt(3, 70), 20);
        bench.finish();
        let FinishReason::Failed(why) = reason(&bench, failing) else { panic!("it fails") };
        assert_eq!(why, "the grammar of the answer failed: the rule says so");
        assert_eq!((bench.tokens(failing).len(), bench.tokens(other).len()), (4, 20));
        bench.check_answer(other, &prompt(3, 70));
        bench.check_ruled(failing, &prompt(1, 70), Some(&rule));
    }
}

#[test]
fn an_answer_that_must_go_on_where_no_token_fits_ends_alone_and_says_so() {
    for depth in [1, 2, 3] {
        let mut bench = Bench::roomy(Kind::Hybrid, options(2, depth));
        let rule = Rule { stuck_after: Some(4), ..Rule::of(6) };
        let stuck = submit(&mut bench, &prompt(1, 70), 20, &rule);
        let other = bench.submit(&prompt(3, 70), 20);
        bench.finish();
        assert_eq!(reason(&bench, stuck), FinishReason::NothingFits);
        assert_eq!((bench.tokens(stuck).len(), bench.tokens(other).len()), (4, 20));
        bench.check_answer(other, &prompt(3, 70));
    }
}

#[test]
fn an_answer_ends_where_nothing_may_follow() {
    let complete = |rule: Rule| (Rule { complete_after: Some(5), ..rule }, 5);
    let only_end = |rule: Rule| (Rule { only_end_after: Some(5), ..rule }, 5);
    let nothing = |rule: Rule| (Rule { only_end_after: Some(0), ..rule }, 0);
    for depth in [1, 2, 3] {
        for (rule, tokens) in [complete(Rule::of(7)), only_end(Rule::of(8)), nothing(Rule::of(9))] {
            for (min_tokens, end_tokens) in [(0, vec![]), (9, vec![TokenId(3)])] {
                let mut bench = Bench::roomy(Kind::Dense, options(1, depth));
                let id = bench.submit_with(&prompt(1, 9), 20, |request| {
                    request.constraint = Some(Box::new(rule.clone()));
                    (request.min_tokens, request.end_tokens) = (min_tokens, end_tokens);
                });
                bench.finish();
                assert_eq!(reason(&bench, id), FinishReason::Complete, "{rule:?}");
                assert_eq!(bench.tokens(id).len(), tokens, "{rule:?}");
            }
        }
    }
}

#[test]
fn a_text_that_can_only_end_ends_with_the_end_token_of_its_request() {
    for depth in [1, 2, 3] {
        let mut bench = Bench::roomy(Kind::Dense, options(1, depth));
        let id = bench.submit_with(&prompt(1, 9), 20, |request| {
            request.constraint = Some(Box::new(Rule { only_end_after: Some(5), ..Rule::of(7) }));
            request.end_tokens = vec![TokenId(3)];
        });
        bench.finish();
        assert_eq!(reason(&bench, id), FinishReason::EndToken(TokenId(3)));
        assert_eq!(bench.tokens(id).len(), 5);
    }
}

#[test]
fn each_choice_has_a_constraint_of_its_own() {
    at_each_depth(|depth| {
        let mut bench = Bench::roomy(Kind::Dense, options(3, depth));
        let text = prompt(1, 150);
        let rule = Rule::of(11);
        let first = submit(&mut bench, &text, 25, &rule);
        let copies: Vec<Request> = (1..3)
            .map(|choice| {
                let tokens = text.iter().copied().map(TokenId).collect();
                let constraint = Some(crate::constraint::Constraint::copy(&rule));
                Request { choice, constraint, ..Request::greedy(tokens, 25, bench.recorder.clone()) }
            })
            .collect();
        let others: Vec<RequestId> =
            copies.into_iter().map(|request| bench.enqueue(request, Some(first))).collect();
        bench.finish();
        for id in others.into_iter().chain([first]) {
            assert_eq!(bench.tokens(id).len(), 25);
            bench.check_ruled(id, &text, Some(&rule));
        }
        bench
    });
}

#[test]
fn a_constrained_request_is_truncated_and_cancelled_while_its_draw_waits() {
    for (turns, depth) in (1..6).flat_map(|turns| [1, 2, 3].map(|depth| (turns, depth))) {
        let mut bench = Bench::roomy(Kind::Dense, options(2, depth));
        let cut = submit(&mut bench, &prompt(1, 20), 40, &Rule::of(12));
        let gone = submit(&mut bench, &prompt(2, 20), 40, &Rule::of(13));
        for _ in 0..turns {
            bench.turn();
        }
        bench.engine.obey(Command::Truncate(cut, 21));
        bench.engine.obey(Command::Cancel(gone));
        let later = submit(&mut bench, &prompt(1, 20), 40, &Rule::of(12));
        bench.finish();
        let reasons = (reason(&bench, cut), reason(&bench, gone));
        assert!(matches!(reasons, (FinishReason::Truncated, FinishReason::Cancelled)), "{reasons:?}");
        assert_eq!(bench.tokens(later).len(), 40);
        bench.check_ruled(later, &prompt(1, 20), Some(&Rule::of(12)));
    }
}

#[test]
fn a_constraint_that_panics_ends_its_request_alone() {
    for (depth, makes) in [(1, Makes::Workers), (2, Makes::Hasty), (3, Makes::Workers), (1, Makes::Team)] {
        let mut bench = Bench::roomy(Kind::Dense, options(2, depth));
        makes.set(&mut bench);
        let broken = Rule { panics_after: Some(4), ..Rule::of(7) };
        let ids = [submit(&mut bench, &prompt(1, 9), 20, &broken), bench.submit(&prompt(2, 9), 20)];
        bench.finish();
        let why = reason(&bench, ids[0]).to_string();
        assert!(why.contains("at odds with itself"), "{why}");
        assert_eq!(ids.map(|id| bench.tokens(id).len()), [4, 20]);
        bench.check_answer(ids[1], &prompt(2, 9));
    }
}
