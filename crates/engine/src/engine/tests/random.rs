//! A seeded driver that does to the engine what clients do: submit, cancel, truncate, stop listening, let deadlines
//! pass, on so little memory that requests preempt each other and the cache evicts. In debug builds all invariants are
//! checked after each turn; here, that every answer is what the model says after its prompt, and that nothing is held
//! in the end.

use super::simulated::Kind;
use super::*;
use std::time::{Duration, Instant};

/// Turns of one run in the test suite; the long run has [`LONG_TURNS`].
const TURNS: usize = 4_000;
/// Turns of the long run, which `GANNET_LONG_RUN` asks for.
const LONG_TURNS: usize = 100_000;

pub(super) struct Random(pub(super) u64);

impl Random {
    pub(super) fn below(&mut self, limit: u32) -> u32 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as u32 % limit
    }

    pub(super) fn one_in(&mut self, n: u32) -> bool {
        self.below(n) == 0
    }
}

pub(super) fn turns() -> usize {
    if std::env::var_os("GANNET_LONG_RUN").is_some() { LONG_TURNS } else { TURNS }
}

fn drive(kind: Kind, depth: usize, seed: u64) {
    let options = EngineOptions { sequences: 4, waiting: 12, depth, step_rows: None };
    let windowed = Wish { context: 1024, step_rows: 256, depth, sequences: 4, snapshots: 6 };
    let mut budget = for_wish(&simulated::layout(kind), &windowed);
    budget.pages[0] = 18;
    let mut bench = Bench::new(kind, budget, options);
    let mut random = Random(seed);
    let mut submitted: Vec<(RequestId, Vec<u32>)> = Vec::new();
    for _ in 0..turns() {
        if random.one_in(6) {
            submitted.push(submit(&mut bench, &mut random, &submitted));
        }
        if let Some((id, prompt)) = submitted.last().filter(|_| random.one_in(25)).cloned() {
            let id = RequestId(id.0 - u64::from(random.below(3)).min(id.0));
            match random.below(3) {
                0 => bench.engine.obey(Command::Cancel(id)),
                1 => bench.engine.obey(Command::Truncate(id, prompt.len() + random.below(10) as usize)),
                _ => bench.recorder.deaf.lock().expect("no test panics here").push(id),
            }
        }
        bench.turn();
    }
    bench.finish();
    check_end(&mut bench, &submitted);
}

/// A new prompt, the beginning of an earlier one with another end, or an earlier conversation that goes on.
fn submit(
    bench: &mut Bench,
    random: &mut Random,
    earlier: &[(RequestId, Vec<u32>)],
) -> (RequestId, Vec<u32>) {
    let mut text = prompt(random.below(5), 1 + random.below(300));
    if let Some((id, known)) = earlier.get(random.below(earlier.len().max(1) as u32) as usize) {
        text = known.clone();
        match random.below(3) {
            0 => text.truncate(1 + random.below(known.len() as u32) as usize),
            1 => text.extend(bench.tokens(*id).iter().map(|token| token.0)),
            _ => {}
        }
        text.extend(prompt(random.below(900), random.below(80)));
        text.truncate(700);
    }
    let priority = random.below(3) as i32;
    let late =
        random.one_in(30).then(|| Instant::now() + Duration::from_micros(u64::from(random.below(300))));
    let boundary = random.below(text.len() as u32);
    let rule = rule_of(RequestId(bench.next_id));
    let salt = u64::from(random.below(2));
    let id = bench.submit_with(&text, 1 + random.below(120), |request| {
        (request.priority, request.deadline, request.cache_salt) = (priority, late, salt);
        request.boundaries = vec![boundary];
        request.constraint = rule.map(|rule| Box::new(rule) as _);
        request.end_tokens = (0..8).map(TokenId).collect();
    });
    (id, text)
}

/// Every third request has a constraint.
fn rule_of(id: RequestId) -> Option<Rule> {
    id.0.is_multiple_of(3).then(|| Rule::of(id.0))
}

fn check_end(bench: &mut Bench, submitted: &[(RequestId, Vec<u32>)]) {
    let mut reasons: HashMap<&str, usize> = HashMap::new();
    for (id, prompt) in submitted {
        let (reason, _) = bench.ending(*id).expect("every request hears its last word");
        *reasons.entry(reason.name()).or_default() += 1;
        bench.check_ruled(*id, prompt, rule_of(*id).as_ref());
        assert!(
            !matches!(reason, FinishReason::Failed(ref why) if why.contains("does not exist")),
            "{reason:?}"
        );
    }
    let stats = bench.engine.stats.read();
    assert!(
        stats.preemptions > 0 && stats.prefix.hit_tokens > 0 && stats.prefix.evicted_pages > 0,
        "{stats:?}"
    );
    assert!(["stop", "length", "cancelled"].iter().all(|reason| reasons.contains_key(reason)), "{reasons:?}");
    bench.check_nothing_is_held();
}

#[test]
fn dense_requests_survive_each_other() {
    drive(Kind::Dense, 1, 1);
    drive(Kind::Dense, 2, 2);
}

#[test]
fn windowed_requests_survive_each_other() {
    drive(Kind::Windowed, 1, 3);
    drive(Kind::Windowed, 2, 4);
}

#[test]
fn hybrid_requests_survive_each_other() {
    drive(Kind::Hybrid, 1, 5);
    drive(Kind::Hybrid, 2, 6);
}

#[test]
fn keys_in_int8_survive_everything_that_clients_do() {
    drive(Kind::Quantised, 1, 7);
    drive(Kind::Quantised, 2, 8);
    drive(Kind::QuantisedHybrid, 1, 9);
    drive(Kind::QuantisedHybrid, 2, 10);
}
