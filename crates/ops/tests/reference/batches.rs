//! A row's result is a function of its own sequence: batch companions, chunks, slots and steps in flight leave no bit.

use crate::goldens::{PROMPT, windowed};
use crate::support::batch::{ALL, HOME_PAGES, Part, batch};
use crate::support::device::{Device, logits, token};
use crate::support::models::*;
use gannet_ops::sampling::{History, Sampling};
use gannet_ops::*;
use std::sync::Arc;

fn device(model: &Model, format: KvFormat) -> Device {
    let layout = layout(model, &[], Rollback::Candidates, format);
    Device::new(&[&target(model, &layout)])
}

/// Every family of ops: dense with pages of each format, windows, delta rule with experts.
fn every_model() -> [(&'static str, Model, KvFormat); 7] {
    [
        ("dense", dense(), KvFormat::F32),
        ("dense in f16", dense(), KvFormat::F16),
        ("dense in bf16", dense(), KvFormat::Bf16),
        ("dense in int8", dense(), KvFormat::Int8),
        ("windows", windowed(), KvFormat::F32),
        ("windows in int8", windowed(), KvFormat::Int8),
        ("hybrid", Model { inner: Inner::Experts { shared: true }, ..hybrid() }, KvFormat::F32),
    ]
}

#[test]
fn mixed_batch_equals_each_sequence_alone() {
    for (name, model, format) in every_model() {
        // A chunk of a prompt, a decoding row, and a row with two drafts, after prompts of their own.
        let warm = [Part::new(0, 0, &PROMPT[..3]), Part::new(1, 0, &PROMPT), Part::new(2, 0, &PROMPT[4..9])];
        let steps = [
            Part::new(0, 3, &PROMPT[3..9]).asks(&[(2, ALL), (5, ALL)]),
            Part::new(1, 12, &[39]).asks(&[(0, ALL)]),
            Part::new(2, 5, &[8, 45, 39]).drafts(2),
        ];
        let mut together = device(&model, format);
        together.step(&warm);
        let (_, all) = together.step(&steps);
        let mut alone = Vec::new();
        for (warm, step) in warm.iter().zip(&steps) {
            let mut device = device(&model, format);
            device.step(std::slice::from_ref(warm));
            let (_, output) = device.step(std::slice::from_ref(step));
            alone.push(output);
        }
        let outputs: Vec<OutputResult> = alone.iter().flat_map(|output| output.outputs.clone()).collect();
        let accepted: Vec<u32> = alone.iter().flat_map(|output| output.accepted.clone()).collect();
        assert_eq!(all.outputs, outputs, "{name}");
        assert_eq!(all.accepted, accepted, "{name}");
    }
}

#[test]
fn chunks_equal_the_whole_prompt() {
    for (name, model, format) in every_model() {
        let long: Vec<u32> = (0..150).map(|n| n * 7 % 64).collect();
        let (_, whole) = device(&model, format).step(&[Part::new(0, 0, &long).asks(&[(149, ALL)])]);
        for chunks in [vec![1, 149], vec![64, 64, 22], vec![3, 60, 2, 85]] {
            let mut device = device(&model, format);
            let (mut done, mut last) = (0, StepOutput::default());
            for chunk in &chunks {
                let part = Part::new(0, done as u32, &long[done..done + chunk]);
                last = device.step(&[part.asks(&[(chunk - 1, ALL)])]).1;
                done += chunk;
            }
            assert_eq!(last.outputs, whole.outputs, "{name} in {chunks:?}");
        }
    }
}

#[test]
fn released_pages_of_a_window_are_not_read() {
    // Windows alone, so that every group can let go of its first two pages.
    let model = Model { layers: windowed().layers[..5].to_vec(), ..windowed() };
    let long: Vec<u32> = (0..140).map(|n| n * 5 % 64).collect();
    let mut kept = device(&model, KvFormat::F32);
    let mut released = device(&model, KvFormat::F32);
    kept.step(&[Part::new(0, 0, &long)]);
    released.step(&[Part::new(0, 0, &long)]);
    // The pages now belong to somebody else.
    let group = GroupId(0);
    let first = [HOME_PAGES - 1, HOME_PAGES - 2].map(|page| (PageId(HOME_PAGES), PageId(page)));
    released.state.copy_pages(group, &first).expect("the pages exist");
    let expected = kept.step(&[Part::new(0, 140, &[9])]).1;
    assert_eq!(released.step(&[Part::new(0, 140, &[9]).released(2)]).1, expected);
}

#[test]
fn copied_pages_continue_the_sequence() {
    let mut device = device(&dense(), KvFormat::F16);
    device.step(&[Part::new(0, 0, &PROMPT)]);
    let copies: Vec<_> = (0..HOME_PAGES).map(|page| (PageId(page), PageId(2 * HOME_PAGES + page))).collect();
    device.state.copy_pages(GroupId(0), &copies).expect("the pages exist");
    let (_, output) = device.step(&[Part::new(0, 12, &[39]), Part::new(2, 12, &[39])]);
    assert_eq!(output.outputs[0], output.outputs[1]);
}

#[test]
fn f16_pages_round_what_they_hold() {
    let run = |format| device(&dense(), format).step(&[Part::new(0, 0, &PROMPT)]).1;
    let (exact, rounded) = (run(KvFormat::F32), run(KvFormat::F16));
    let difference = |(a, b): (&f32, &f32)| (a - b).abs();
    let largest = logits(&exact, 0).iter().zip(logits(&rounded, 0)).map(difference).fold(0.0, f32::max);
    assert!(largest > 0.0 && largest < 1e-2, "{largest}");
}

#[test]
fn int8_keys_are_read_as_codes_from_the_next_page_on() {
    let long: Vec<u32> = (0..70).map(|n| n * 7 % 64).collect();
    let run = |format: KvFormat, tokens: usize| {
        device(&dense(), format).step(&[Part::new(0, 0, &long[..tokens])]).1
    };
    let difference = |tokens: usize, formats: [KvFormat; 2]| {
        let [a, b] = formats.map(|format| run(format, tokens));
        let differences = logits(&a, 0).iter().zip(logits(&b, 0)).map(|(a, b)| (a - b).abs());
        differences.fold(0.0, f32::max)
    };
    // Values are rounded from the first token on, keys in their own page as in half precision.
    let keys_alone = |model: &Model, tokens: usize| {
        let mut layout = (*layout(model, &[], Rollback::Candidates, KvFormat::Int8)).clone();
        for entry in &mut layout.entries {
            if let StateEntry::Paged(paged) = entry {
                paged.value_format = KvFormat::F16;
            }
        }
        Device::new(&[&target(model, &Arc::new(layout))]).step(&[Part::new(0, 0, &long[..tokens])]).1
    };
    assert_eq!(keys_alone(&dense(), 64).outputs, run(KvFormat::F16, 64).outputs);
    assert_ne!(keys_alone(&dense(), 65).outputs, run(KvFormat::F16, 65).outputs);
    for tokens in [64, 70] {
        let largest = difference(tokens, [KvFormat::F32, KvFormat::Int8]);
        assert!(largest > 0.0 && largest < 5e-2, "{largest} after {tokens} tokens");
    }
}

#[test]
fn restored_snapshot_continues_the_sequence() {
    let mut device = device(&hybrid(), KvFormat::F32);
    device.step(&[Part::new(0, 0, &PROMPT)]);
    let home = RecurrentBank { slot: 0, bank: 0 };
    let snapshot = device.state.snapshot(home).expect("the budget has one");
    assert!(matches!(device.state.snapshot(home), Err(DeviceError::OutOfMemory { .. })));
    let expected = device.step(&[Part::new(0, 12, &[53, 36])]).1;
    // The same state in another slot, whose pages hold the same prompt by then.
    let copies: Vec<_> = (0..HOME_PAGES).map(|page| (PageId(page), PageId(HOME_PAGES + page))).collect();
    device.state.copy_pages(GroupId(0), &copies).expect("the pages exist");
    device.state.restore(snapshot, RecurrentBank { slot: 1, bank: 0 }).expect("it was taken");
    assert_eq!(device.step(&[Part::new(1, 12, &[53, 36])]).1, expected);
    device.state.forget(snapshot).expect("it was taken");
    assert!(device.state.restore(snapshot, home).is_err());
}

#[test]
fn step_that_reads_one_bank_leaves_it_whole() {
    let mut device = device(&hybrid(), KvFormat::F32);
    device.step(&[Part::new(0, 0, &PROMPT)]);
    let step = || Part::new(0, 12, &[53]).banks(Some(0), 1);
    let first = device.step(&[step()]).1;
    assert_eq!(device.step(&[step()]).1, first);
}

#[test]
fn two_steps_in_flight_equal_one_after_the_other() {
    let expected = device(&dense(), KvFormat::F32).generate(0, &PROMPT, 4);
    let mut device = device(&dense(), KvFormat::F32);
    let mut steps = vec![device.submit(0, &batch(&device.layout.clone(), &[Part::new(0, 0, &PROMPT)]))];
    for length in 12..15 {
        let step = *steps.last().expect("there is one").as_ref().expect("it ran");
        let sampled = TokenSource::Sampled { step, output: 0 };
        let part = Part::of(0, Length::Exact(length), vec![sampled]);
        steps.push(device.submit(0, &batch(&device.layout.clone(), &[part])));
    }
    let steps: Vec<StepId> = steps.into_iter().map(|step| step.expect("it ran")).collect();
    let tokens: Vec<u32> = steps.iter().map(|step| token(&device.wait(0, *step), 0)).collect();
    assert_eq!(tokens, expected);
}

#[test]
fn history_holds_the_prompt_and_what_was_drawn() {
    let penalised = Arc::new(Sampling { presence_penalty: 100.0, ..Sampling::greedy() });
    let mut device = device(&dense(), KvFormat::F32);
    device.sampling = penalised;
    device.state.start_history(SamplerSlot(0), History::new(&[], &[TokenId(39)])).expect("the slot exists");
    let tokens = device.generate(0, &PROMPT, 8);
    let mut distinct = tokens.clone();
    distinct.push(39);
    distinct.sort_unstable();
    distinct.dedup();
    assert_eq!(distinct.len(), tokens.len() + 1, "{tokens:?} repeats a token of the history");
}

#[test]
fn each_output_brings_what_it_wants() {
    let mut device = device(&dense(), KvFormat::F32);
    let wants =
        [Want { hidden: true, ..Want::default() }, Want { logprobs: Some(2), ..Want::default() }, ALL];
    let asked: Vec<(usize, Want)> =
        wants.iter().enumerate().map(|(place, want)| (place + 4, *want)).collect();
    let (_, output) = device.step(&[Part::new(0, 0, &PROMPT).asks(&asked)]);
    let brought = |result: &OutputResult| {
        let sampled = result.logprobs.as_ref().map(|found| (found.top.len(), found.sampled.is_some()));
        (result.token.is_some(), sampled, result.logits.is_some(), result.hidden.as_ref().map(Vec::len))
    };
    let found: Vec<_> = output.outputs.iter().map(brought).collect();
    let expected = [
        (false, None, false, Some(HIDDEN)),
        (false, Some((2, false)), false, None),
        (true, Some((3, true)), true, Some(HIDDEN)),
    ];
    assert_eq!(found, expected);
}
