//! The life of a request, on a toy model.

mod support;

use crossbeam_channel::unbounded;
use gannet_engine::{EngineOptions, Event, FinishReason, OptionsError, Runner, SubmitError, evaluate};
use gannet_ops::sampling::{Adaptive, Mirostat, Sampling, logprobs};
use gannet_ops::{Budget, TokenId};
use std::sync::Arc;
use support::{Answer, collect, request, runner, runner_with, start};

const PROMPT: [u32; 7] = [3, 1, 4, 1, 5, 9, 2];

fn answer(context: usize, step_rows: usize, prompt: &[u32], max_tokens: u32) -> Answer {
    let (handle, thread) = start(runner(context, step_rows));
    let (sink, events) = unbounded();
    handle.submit(request(prompt, max_tokens, sink)).expect("the request is valid");
    let answer = collect(&events);
    drop(handle);
    thread.join().expect("the engine's thread ends when its handle is dropped");
    answer
}

#[test]
fn chunks_change_no_bit_of_the_answer() {
    let prompt: Vec<u32> = (0..150).map(|n| n * 7 % 50).collect();
    let whole = answer(256, 256, &prompt, 20);
    assert_eq!(whole.tokens.len(), 20);
    for step_rows in [1, 7, 64, 65] {
        assert_eq!(answer(256, step_rows, &prompt, 20), whole, "chunks of {step_rows}");
    }
}

#[test]
fn the_limit_of_tokens_ends_an_answer() {
    let found = answer(256, 64, &PROMPT, 5);
    assert_eq!(found.reason, FinishReason::MaxTokens);
    assert_eq!((found.prompt_tokens, found.generated_tokens), (7, 5));
}

#[test]
fn a_full_context_ends_an_answer() {
    let found = answer(20, 64, &PROMPT, 1000);
    assert_eq!(found.reason, FinishReason::ContextFull);
    assert_eq!(found.prompt_tokens + found.generated_tokens, 20);
}

#[test]
fn an_end_token_ends_an_answer_and_is_not_part_of_it() {
    let free = answer(256, 64, &PROMPT, 10);
    let end = free.tokens[4].0;
    let first = free.tokens.iter().position(|(token, _)| *token == end).expect("the token was just made");
    let (handle, _thread) = start(runner(256, 64));
    let (sink, events) = unbounded();
    let mut asked = request(&PROMPT, 10, sink);
    asked.end_tokens = vec![TokenId(end)];
    handle.submit(asked).expect("the request is valid");
    let found = collect(&events);
    assert_eq!(found.reason, FinishReason::EndToken(TokenId(end)));
    assert_eq!(found.tokens, free.tokens[..first]);
}

#[test]
fn no_end_token_is_drawn_before_the_least_number_of_tokens() {
    let free = answer(256, 64, &PROMPT, 10);
    let ends: Vec<TokenId> = free.tokens.iter().map(|(token, _)| TokenId(*token)).collect();
    let (handle, _thread) = start(runner(256, 64));
    let (sink, events) = unbounded();
    let mut asked = request(&PROMPT, 10, sink);
    (asked.end_tokens, asked.min_tokens) = (ends.clone(), 3);
    handle.submit(asked).expect("the request is valid");
    let found = collect(&events);
    assert!(found.generated_tokens >= 3, "{found:?}");
    assert!(found.tokens[..3].iter().all(|(token, _)| !ends.contains(&TokenId(*token))), "{found:?}");
}

#[test]
fn pages_that_leave_a_window_are_used_again() {
    // 600 tokens pass through a window of 20, which holds two pages.
    let budget = Budget { pages: vec![10, 2], sampler_slots: 1, ..Budget::default() };
    let (handle, _thread) = start(runner_with(budget, 640, 32));
    let (sink, events) = unbounded();
    handle.submit(request(&PROMPT, 593, sink)).expect("the request is valid");
    let found = collect(&events);
    assert_eq!(found.reason, FinishReason::MaxTokens);
    assert_eq!(found.tokens, answer(640, 64, &PROMPT, 593).tokens);
}

#[test]
fn a_sequence_that_outgrows_the_pages_fails_and_the_next_is_served() {
    let budget = Budget { pages: vec![1, 1], sampler_slots: 1, ..Budget::default() };
    let (handle, _thread) = start(runner_with(budget, 640, 64));
    let (sink, events) = unbounded();
    handle.submit(request(&PROMPT, 100, sink)).expect("the request is valid");
    let found = collect(&events);
    assert_eq!(found.tokens.len(), 64 - PROMPT.len() + 1);
    let FinishReason::Failed(why) = found.reason else {
        panic!("expected a failure, found {:?}", found.reason)
    };
    assert!(why.contains("1 more pages") && why.contains("0 of 1"), "{why}");
    let (sink, events) = unbounded();
    handle.submit(request(&PROMPT, 3, sink)).expect("the request is valid");
    assert_eq!(collect(&events).reason, FinishReason::MaxTokens);
}

#[test]
fn a_seed_decides_a_sampled_answer() {
    let sampled = |seed: u64| {
        let (handle, _thread) = start(runner(256, 64));
        let (sink, events) = unbounded();
        let mut asked = request(&PROMPT, 30, sink);
        asked.sampling = Arc::new(Sampling { temperature: 1.5, ..Sampling::greedy() });
        asked.seed = seed;
        handle.submit(asked).expect("the request is valid");
        collect(&events).tokens
    };
    assert_eq!(sampled(1), sampled(1));
    assert_ne!(sampled(1), sampled(2));
}

#[test]
fn a_repetition_penalty_sees_prompt_and_answer() {
    let (handle, _thread) = start(runner(256, 64));
    let (sink, events) = unbounded();
    let mut asked = request(&PROMPT, 40, sink);
    asked.sampling = Arc::new(Sampling { repetition_penalty: 1e9, ..Sampling::greedy() });
    handle.submit(asked).expect("the request is valid");
    let found = collect(&events);
    let mut seen: Vec<u32> =
        PROMPT.iter().copied().chain(found.tokens.iter().map(|(token, _)| *token)).collect();
    let all = seen.len() - 1;
    seen.sort_unstable();
    seen.dedup();
    assert_eq!(seen.len(), all, "only the prompt repeats a token");
}

#[test]
fn a_cancelled_request_ends_and_the_waiting_one_runs() {
    let (handle, _thread) = start(runner(100_000, 64));
    let (first_sink, first) = unbounded();
    let (second_sink, second) = unbounded();
    let id = handle.submit(request(&PROMPT, 90_000, first_sink)).expect("the request is valid");
    handle.submit(request(&PROMPT, 2, second_sink)).expect("the request is valid");
    let is_token = |event: &Event| matches!(event, Event::Token { .. });
    assert!(first.iter().any(|event| is_token(&event)));
    handle.cancel(id).expect("the engine runs");
    assert_eq!(collect(&first).reason, FinishReason::Cancelled);
    assert_eq!(collect(&second).reason, FinishReason::MaxTokens);
}

#[test]
fn a_sink_that_is_gone_cancels_its_request() {
    let (handle, _thread) = start(runner(100_000, 64));
    let (sink, events) = unbounded();
    drop(events);
    handle.submit(request(&PROMPT, 90_000, sink)).expect("the request is valid");
    let (sink, events) = unbounded();
    handle.submit(request(&PROMPT, 2, sink)).expect("the request is valid");
    assert_eq!(collect(&events).reason, FinishReason::MaxTokens);
}

#[test]
fn bad_requests_are_refused_at_the_door() {
    let (handle, _thread) = start(runner(20, 64));
    let refused = |prompt: &[u32], max_tokens: u32| {
        let (sink, _events) = unbounded();
        handle.submit(request(prompt, max_tokens, sink)).expect_err("the request is bad")
    };
    assert_eq!(refused(&[], 1), SubmitError::EmptyPrompt);
    assert_eq!(refused(&[1; 20], 1), SubmitError::PromptTooLong { prompt: 20, context: 20 });
    assert_eq!(refused(&[1, 50], 1), SubmitError::UnknownToken { id: 50, vocabulary: 50 });
    assert_eq!(refused(&[1], 0), SubmitError::NoTokens);
}

#[test]
fn evaluation_gives_the_scores_that_an_answer_was_drawn_from() {
    let greedy = answer(256, 64, &PROMPT, 12);
    let made = greedy.tokens.iter().map(|(token, _)| *token);
    let tokens: Vec<TokenId> = PROMPT.iter().copied().chain(made).map(TokenId).collect();
    let mut argmax = Vec::new();
    evaluate(&mut runner(256, 5), &tokens, 6, |index, logits| {
        let best = (0..logits.len()).max_by(|a, b| logits[*a].total_cmp(&logits[*b])).expect("a vocabulary");
        argmax.push((index, best as u32));
    })
    .expect("the tokens fit");
    let expected: Vec<(usize, u32)> =
        greedy.tokens.iter().enumerate().map(|(n, (token, _))| (6 + n, *token)).collect();
    assert_eq!(argmax[..12], expected);
    assert_eq!(argmax.len(), 13);
}

#[test]
fn a_steering_sampler_goes_on_after_preemption_as_if_nothing_had_been() {
    let steered = |sampling: &Sampling, is_disturbed: bool| {
        let (handle, _thread) = start(runner(400, 64));
        let (sink, events) = unbounded();
        let mut asked = request(&PROMPT, 200, sink);
        (asked.sampling, asked.seed) = (Arc::new(sampling.clone()), 3);
        handle.submit(asked).expect("the request is valid");
        let mut first = Vec::new();
        if is_disturbed {
            first = events.iter().take(40).collect();
            let (sink, other) = unbounded();
            let mut urgent = request(&PROMPT[..3], 3, sink);
            urgent.priority = 1;
            handle.submit(urgent).expect("the request is valid");
            assert_eq!(collect(&other).reason, FinishReason::MaxTokens);
        }
        let (replay, all) = unbounded();
        first.into_iter().chain(events.iter()).for_each(|event| replay.send(event).expect("it is heard"));
        drop(replay);
        let preemptions = handle.stats().preemptions;
        (collect(&all), preemptions)
    };
    for sampling in [
        Sampling {
            temperature: 1.0,
            mirostat: Some(Mirostat { target: 3.0, rate: 0.1 }),
            ..Sampling::greedy()
        },
        Sampling {
            temperature: 1.0,
            adaptive: Some(Adaptive { target: 0.2, decay: 0.9 }),
            ..Sampling::greedy()
        },
    ] {
        let (expected, _) = steered(&sampling, false);
        let (found, preemptions) = steered(&sampling, true);
        assert_eq!(preemptions, 1, "it was in the middle of its answer");
        assert_eq!(found, expected, "{sampling:?}");
    }
}

/// The log-probabilities of a prompt's tokens, as bits.
fn prompt_logprobs(events: &crossbeam_channel::Receiver<Event>) -> Vec<Vec<u32>> {
    let mut found = Vec::new();
    for event in events {
        if let Event::Prefilled { logprobs, .. } = event {
            let bits = |one: gannet_ops::TokenLogprobs| {
                let all = one.sampled.into_iter().chain(one.top.iter().map(|(_, p)| *p));
                all.map(f32::to_bits).collect()
            };
            found.extend(logprobs.into_iter().map(bits));
        }
    }
    found
}

#[test]
fn prompt_logprobs_are_those_of_each_token_whatever_the_chunks_and_the_cache() {
    let prompt: Vec<u32> = (0..150).map(|n| n * 7 % 50).collect();
    let mut expected = Vec::new();
    let tokens: Vec<TokenId> = prompt.iter().copied().map(TokenId).collect();
    evaluate(&mut runner(256, 64), &tokens, 0, |index, logits| {
        if let Some(next) = tokens.get(index + 1) {
            let one = logprobs(logits, Some(*next), 3);
            let all = one.sampled.into_iter().chain(one.top.iter().map(|(_, p)| *p));
            expected.push(all.map(f32::to_bits).collect::<Vec<_>>());
        }
    })
    .expect("the tokens fit");
    assert_eq!(expected.len(), 149);
    for step_rows in [1, 7, 64, 256] {
        let (handle, _thread) = start(runner(256, step_rows));
        for time in ["cold", "with the prompt in the cache"] {
            let (sink, events) = unbounded();
            let mut asked = request(&prompt, 4, sink);
            asked.prompt_logprobs = Some(3);
            handle.submit(asked).expect("the request is valid");
            assert!(prompt_logprobs(&events) == expected, "steps of {step_rows} rows, {time}");
        }
    }
}

#[test]
fn filters_and_log_probabilities_that_make_no_sense_are_refused() {
    let (handle, _thread) = start(runner(20, 64));
    let refused = |change: &dyn Fn(&mut gannet_engine::Request)| {
        let (sink, _events) = unbounded();
        let mut asked = request(&PROMPT, 1, sink);
        change(&mut asked);
        handle.submit(asked).expect_err("the request is bad").to_string()
    };
    let found = refused(&|asked| asked.sampling = Arc::new(Sampling { top_p: 0.0, ..Sampling::greedy() }));
    assert!(found.contains("`top_p` is 0; expected a number above 0"), "{found}");
    let found = refused(&|asked| asked.prompt_logprobs = Some(129));
    assert!(found.contains("129") && found.contains("128"), "{found}");
    let found = refused(&|asked| asked.end_tokens = vec![TokenId(50)]);
    assert!(found.contains("token id 50"), "{found}");
}

#[test]
fn a_prompt_that_all_memory_could_not_hold_is_refused_with_both_numbers() {
    // Two pages for the layer that sees everything.
    let budget = Budget { pages: vec![2, 4], sampler_slots: 1, ..Budget::default() };
    let (handle, _thread) = start(runner_with(budget, 1000, 64));
    let submit = |length: u32| {
        let (sink, events) = unbounded();
        let prompt: Vec<u32> = (0..length).map(|n| n % 50).collect();
        handle.submit(request(&prompt, 500, sink)).map(|_| collect(&events))
    };
    let refused = submit(128).expect_err("128 tokens leave no room for an answer");
    assert_eq!(refused, SubmitError::PromptTooLarge { prompt: 128, memory: 128 });
    assert!(refused.to_string().contains("128 tokens"), "{refused}");
    // One that begins within memory and outgrows it is told so, with the numbers, and keeps what it said.
    let outgrown = submit(127).expect("a token fits");
    let FinishReason::Failed(why) = &outgrown.reason else { panic!("{:?}", outgrown.reason) };
    assert!(why.contains("1 more pages") && why.contains("of 2"), "{why}");
    assert_eq!(outgrown.tokens.len(), 2);
}

#[test]
fn limits_of_nothing_and_beyond_memory_are_errors_before_the_start() {
    let usual = EngineOptions::default();
    let nothing = [
        (EngineOptions { sequences: 0, ..usual }, "sequences at once"),
        (EngineOptions { waiting: 0, ..usual }, "requests that wait"),
        (EngineOptions { depth: Some(0), ..usual }, "steps in flight"),
        (EngineOptions { step_rows: Some(0), ..usual }, "rows a step"),
    ];
    let runner = runner(100, 64);
    for (options, what) in nothing {
        assert_eq!(options.check(&runner), Err(OptionsError::Nothing { what }));
    }
    assert_eq!(usual.check(&runner), Ok(()));
    let refused = EngineOptions { sequences: 2, ..usual }.check(&runner).expect_err("there is one slot");
    assert_eq!(refused, OptionsError::TooManySequences { asked: 2, slots: 1 });
    assert!(
        refused.to_string().contains("2 sequences") && refused.to_string().contains("for 1"),
        "{refused}"
    );
    let narrow = Runner { step_rows: 3, ..runner };
    let refused = EngineOptions { sequences: 4, ..usual }.check(&narrow).expect_err("four rows are needed");
    assert_eq!(refused, OptionsError::StepTooSmall { rows: 3, sequences: 4 });
}
