//! What a step can't do, it says, and the device goes on.

use crate::goldens::PROMPT;
use crate::support::batch::{POOLED, Part, TOKEN, batch};
use crate::support::device::{Device, LIMITS, budget, token};
use crate::support::models::*;
use crate::support::weights::Generated;
use gannet_ops::reference::ReferenceBackend;
use gannet_ops::*;
use std::sync::Arc;

fn dense_layout() -> Arc<StateLayout> {
    layout(&dense(), &[], Rollback::Candidates, KvFormat::F32)
}

fn device() -> Device {
    Device::new(&[&target(&dense(), &dense_layout())])
}

/// The message of the error that the batch gives; the device can then still run the prompt.
fn refused(change: impl Fn(&mut Batch)) -> String {
    let mut device = device();
    let mut wrong = batch(&device.layout.clone(), &[Part::new(0, 0, &PROMPT)]);
    change(&mut wrong);
    let error = device.submit(0, &wrong).expect_err("the batch is wrong").to_string();
    assert_eq!(device.generate(0, &PROMPT, 2), [39, 45], "after {error}");
    error
}

#[test]
fn malformed_batches_are_refused() {
    type Change = fn(&mut Batch);
    let cases: [(Change, &str); 13] = [
        (
            |b| b.rows[3].token = TokenSource::Known(TokenId(64)),
            "token id 64 is outside of the vocabulary of 64",
        ),
        (|b| b.rows[3].token = TokenSource::Embedding(0), "id of row 3 does not exist"),
        (
            |b| b.rows[0].token = TokenSource::Sampled { step: StepId(9), output: 0 },
            "step 9 does not exist: it did not run",
        ),
        (|b| b.pages[0] = PageId(1000), "page 1000 does not exist: its group has 16 pages"),
        (|b| b.sequences[0].tables[0].pages.end = 0, "page with the token at index 0 does not exist"),
        (|b| b.sequences[0].tables[0].released = 1, "the table lists pages 1..5 of the sequence"),
        (|b| b.sequences[0].tables.clear(), "sequence 0 has 0 page tables, the layout has 1 groups"),
        (|b| b.sequences[0].tables[0].pages.end = 99, "page range 0..99 lies outside of the 4 listed pages"),
        (|b| b.rows[2].index = 7, "row 2 has index 7, expected 2"),
        (|b| b.rows[2].sequence = 1, "row 2 belongs to sequence 1"),
        (|b| b.outputs[0].row = 12, "output 0 names row 12 of 12"),
        (|b| b.sequences[0].sampler = Some(SamplerSlot(77)), "sampler slot 77 does not exist"),
        (
            |b| {
                let length = Length::AtMost { length: 0, after: StepId(3), sequence: 0 };
                b.sequences[0].length = length;
            },
            "step 3 does not exist",
        ),
    ];
    for (change, expected) in cases {
        let error = refused(change);
        assert!(error.contains(expected), "`{error}` doesn't say `{expected}`");
    }
}

#[test]
fn wants_that_the_program_cannot_answer_are_refused() {
    let error = refused(|batch| batch.outputs[0].want = POOLED);
    assert!(
        error.contains("output 0 does not exist: program `target` doesn't return what is asked of it"),
        "{error}"
    );
}

#[test]
fn missing_handed_values_are_refused() {
    let mut b = ProgramBuilder::new("draft", dense_layout());
    let x = b.handed(0, HIDDEN);
    let x = b.gather_rows(x, 0);
    let x = b.select_outputs(x);
    b.output(OutputKind::Hidden, x);
    let model = Model { captures_hidden: true, ..dense() };
    let mut device = Device::new(&[&target(&model, &dense_layout()), &b.finish()]);
    let step = device.step(&[Part::new(0, 0, &PROMPT)]).0;
    let want = Want { hidden: true, ..Want::default() };
    let part = Part::new(0, 12, &[0]).forgetful().asks(&[(0, want)]);
    let plain = batch(&device.layout.clone(), &[part]);
    let mut refuse = |handed: Option<Handed>, expected: &str| {
        let batch = Batch { handed: handed.into_iter().collect(), ..plain.clone() };
        let error = device.submit(1, &batch).expect_err("nothing is handed in").to_string();
        assert!(error.contains(expected), "`{error}` doesn't say `{expected}`");
    };
    let handed = |capture, row| Handed { step, capture, row_map: vec![row] };
    refuse(None, "handed value 0 does not exist");
    refuse(Some(handed(CaptureId(5), 0)), "capture 5 does not exist");
    refuse(Some(handed(HIDDEN_CAPTURE, 12)), "handed row 12 does not exist: the captured value has 12 rows");
    refuse(Some(Handed { row_map: vec![0, 1], ..handed(HIDDEN_CAPTURE, 0) }), "maps 2 rows, the batch has 1");

    // The capture is there as long as its step is remembered, and no longer.
    let hand = Batch { handed: vec![handed(HIDDEN_CAPTURE, 11)], ..plain };
    for _ in 1..STEPS_REMEMBERED {
        device.run(1, &hand);
    }
    device.run(1, &hand);
    let error = device.submit(1, &hand).expect_err("the step is forgotten").to_string();
    assert!(error.contains("not among the last 16"), "{error}");
}

#[test]
fn steps_are_sampled_and_waited_for_in_order() {
    let mut device = device();
    let prompt = batch(&device.layout.clone(), &[Part::new(0, 0, &PROMPT)]);
    let step = device.plans[0].submit(&prompt, device.state.as_mut()).expect("it runs");
    let sampled = vec![TokenSource::Sampled { step, output: 0 }];
    let next = batch(&device.layout.clone(), &[Part::of(0, Length::Exact(12), sampled)]);
    let error = device.submit(0, &next).expect_err("nothing was sampled").to_string();
    assert!(error.contains("it was not sampled yet"), "{error}");
    let error = device.plans[0].wait(step).expect_err("nothing was sampled").to_string();
    assert!(error.contains("an output wants a token"), "{error}");
    let none = SampleRows::default();
    let error =
        device.plans[0].sample(step, &none, device.state.as_mut()).expect_err("no row says how").to_string();
    assert!(error.contains("1 outputs want a token, 0 rows say how"), "{error}");
    let rows = device.sample_rows(&prompt);
    device.plans[0].sample(step, &rows, device.state.as_mut()).expect("it draws");
    assert_eq!(token(&device.wait(0, step), 0), 39);
    assert!(device.plans[0].wait(step).is_err());
}

#[test]
fn acceptance_is_checked_against_the_step() {
    let layout = layout(&hybrid(), &[], Rollback::Replay, KvFormat::F32);
    let mut device = Device::new(&[&target(&hybrid(), &layout)]);
    device.step(&[Part::new(0, 0, &PROMPT)]);
    let (step, _) = device.step(&[Part::new(0, 12, &[53, 36]).drafts(1)]);
    for (rows, expected) in [(&[3][..], "it has 2 rows"), (&[1, 1], "it has 1 sequences, 2 were accepted")] {
        let error = device.state.accept(step, rows).expect_err("the rows are wrong").to_string();
        assert!(error.contains(expected), "`{error}` doesn't say `{expected}`");
    }
    device.state.accept(step, &[2]).expect("both rows were confirmed");
    let mut wrong = batch(&layout, &[Part::new(0, 14, &[29])]);
    wrong.sequences[0].recurrent = None;
    let error = device.submit(0, &wrong).expect_err("no state is named").to_string();
    assert!(error.contains("names no recurrent state"), "{error}");
    let bank = RecurrentBank { slot: 4, bank: 0 };
    let error = device.state.snapshot(bank).expect_err("the budget has 4 slots").to_string();
    assert!(error.contains("recurrent slot 4 does not exist"), "{error}");
}

#[test]
fn interrupted_step_gives_up_between_two_ops() {
    let mut device = device();
    let interrupter = device.plans[0].interrupter();
    let prompt = batch(&device.layout.clone(), &[Part::new(0, 0, &PROMPT)]);
    let mut shown = 0;
    let mut observe = |place: usize, _: &Node, _: &[&[f32]]| {
        shown += 1;
        if place == 20 {
            interrupter.interrupt();
        }
    };
    let result = device.plans[0].submit_traced(&prompt, device.state.as_mut(), &mut observe);
    assert!(matches!(result, Err(DeviceError::Interrupted)));
    assert_eq!(shown, 21);
    assert_eq!(device.generate(0, &PROMPT, 2), [39, 45]);
}

#[test]
fn scores_that_are_no_numbers_are_marked() {
    let mut b = ProgramBuilder::new("target", dense_layout());
    let (ids, table) = (b.ids(), embedding(&mut b));
    let x = b.embed(table, &[ids]);
    let x = b.scale(x, f32::INFINITY);
    let x = b.select_outputs(x);
    draws(&mut b, x);
    let mut device = Device::new(&[&b.finish()]);
    let output = device.step(&[Part::new(0, 0, &[1]).asks(&[(0, TOKEN)])]).1;
    assert!(output.outputs[0].not_finite);
    assert_eq!(output.outputs[0].token, None);
}

#[test]
fn weights_of_another_shape_are_refused() {
    let program = target(&dense(), &dense_layout());
    let wrong = Generated::of(&program.weights).reshaped("model.norm.weight", &[31]);
    let error = ReferenceBackend::new().upload(&wrong, &program.weights).err().expect("the shape is wrong");
    let expected =
        "tensor `model.norm.weight` of the uploaded weights: the config implies shape [32], found [31]";
    assert_eq!(error.to_string(), expected);
}

#[test]
fn plans_need_their_weights_and_their_state() {
    let backend = ReferenceBackend::new();
    let program = target(&dense(), &dense_layout());
    let some = &program.weights[1..];
    let weights = backend.upload(&Generated::of(some), some).expect("the shapes are right");
    let error = backend.compile(&program, &weights, &LIMITS).err().expect("one is missing").to_string();
    assert!(error.contains("tensor `model.embed_tokens.weight` is missing"), "{error}");

    let mut device = device();
    let other = layout(&dense(), &[], Rollback::Candidates, KvFormat::F16);
    let mut state = backend.allocate(&other, &budget(&other)).expect("the state is small");
    let prompt = batch(&other, &[Part::new(0, 0, &PROMPT)]);
    let error = device.plans[0].submit(&prompt, state.as_mut()).expect_err("the layouts differ").to_string();
    assert!(error.contains("another layout than program `target`"), "{error}");
    let error = backend.allocate(&other, &Budget::default()).err().expect("there are no pages").to_string();
    assert!(error.contains("page group 0 does not exist"), "{error}");
}
