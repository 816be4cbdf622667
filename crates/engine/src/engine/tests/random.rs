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

/// What became of a request.
struct Outcome {
    prompt: Vec<u32>,
    tokens: Vec<TokenId>,
    /// Whether it ended by itself, whatever its clients and the clock did.
    is_whole: bool,
}

/// Does the same to an engine with one step in flight, to one with two, and to one that waits for no mask: no request is
/// answered otherwise.
fn drive(kind: Kind, seed: u64) {
    let [one, two] = DEPTHS.map(|depth| outcomes(kind, depth, seed, Masks::Awaited));
    assert_eq!(one.len(), two.len());
    let mut whole = 0;
    for (id, (one, two)) in one.iter().zip(&two).enumerate() {
        assert_eq!(one.prompt, two.prompt, "what clients say depends on the seed alone");
        let common = one.tokens.len().min(two.tokens.len());
        assert_eq!(one.tokens[..common], two.tokens[..common], "{kind:?}: request {id}");
        if one.is_whole && two.is_whole {
            assert_eq!(one.tokens.len(), two.tokens.len(), "{kind:?}: request {id}");
            whole += 1;
        }
    }
    let hasty = outcomes(kind, 2, seed, Masks::Hasty);
    for (id, (one, hasty)) in one.iter().zip(&hasty).enumerate() {
        let common = one.tokens.len().min(hasty.tokens.len());
        assert_eq!(one.tokens[..common], hasty.tokens[..common], "{kind:?}: request {id}");
        assert!(!one.is_whole || !hasty.is_whole || one.tokens.len() == hasty.tokens.len(), "request {id}");
    }
    // The others were left, cut, late, or refused by a queue that was full at one of the depths.
    assert!(whole > one.len() / 6, "{kind:?}: {whole} of {} ended by themselves", one.len());
}

/// How long steps wait for masks.
#[derive(PartialEq)]
enum Masks {
    Awaited,
    /// Not at all, so that most draws are put off.
    Hasty,
}

fn outcomes(kind: Kind, depth: usize, seed: u64, masks: Masks) -> Vec<Outcome> {
    let options = EngineOptions { sequences: 4, waiting: 12, depth: Some(depth), step_rows: None };
    let windowed = Wish { context: 1024, step_rows: 256, depth, sequences: 4, snapshots: 6, drafts: 0 };
    let mut budget = for_wish(&simulated::layout(kind), &windowed);
    budget.pages[0] = 18;
    let mut bench = Bench::new(kind, budget, options);
    if masks == Masks::Hasty {
        bench.be_hasty();
    }
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
    let outcome = |(id, prompt): (RequestId, Vec<u32>)| {
        let reason = bench.ending(id).expect("every request hears its last word").0;
        Outcome {
            prompt,
            tokens: bench.tokens(id),
            is_whole: matches!(reason.name(), "stop" | "length") && reason != FinishReason::Truncated,
        }
    };
    submitted.into_iter().map(outcome).collect()
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
            // As the model answers, however far it came by now.
            1 => answer(bench.kind, *id, &mut text, random.below(60)),
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

/// Adds the first tokens of the answer to a request.
fn answer(kind: Kind, id: RequestId, text: &mut Vec<u32>, count: u32) {
    let (prompt, rule) = (text.len(), rule_of(id));
    let mut tokens: Vec<TokenId> = text.iter().copied().map(TokenId).collect();
    for _ in 0..count {
        let wanted = simulated::next_token(kind, &tokens);
        tokens.push(rule.as_ref().map_or(wanted, |rule| rule.expected(&tokens[prompt..], wanted)));
    }
    *text = tokens.iter().map(|token| token.0).collect();
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
    drive(Kind::Dense, 1);
}

#[test]
fn windowed_requests_survive_each_other() {
    drive(Kind::Windowed, 3);
}

#[test]
fn hybrid_requests_survive_each_other() {
    drive(Kind::Hybrid, 5);
}

#[test]
fn keys_in_int8_survive_everything_that_clients_do() {
    drive(Kind::Quantised, 7);
    drive(Kind::QuantisedHybrid, 9);
}
