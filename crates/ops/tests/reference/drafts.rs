//! Speculation leaves no trace: verified drafts give the tokens and the state that plain decoding gives.

use crate::goldens::PROMPT;
use crate::support::batch::{Part, batch};
use crate::support::device::{Device, logits, token};
use crate::support::models::*;
use gannet_ops::sampling::{SampleRow, Sampling};
use gannet_ops::*;
use std::sync::Arc;

fn device(rollback: Rollback) -> Device {
    let layout = layout(&hybrid(), &[], rollback, KvFormat::F32);
    Device::new(&[&target(&hybrid(), &layout)])
}

/// The tokens that the hybrid gives after the prompt.
const GREEDY: [u32; 8] = [53, 36, 29, 52, 43, 29, 2, 20];

/// Drafts of which the first `right` are what the model says.
fn drafts(right: usize) -> [u32; 4] {
    let mut tokens = [GREEDY[0], GREEDY[1], GREEDY[2], GREEDY[3]];
    for wrong in &mut tokens[1 + right..] {
        *wrong = (*wrong + 1) % 64;
    }
    tokens
}

#[test]
fn accepted_drafts_leave_the_state_of_plain_decoding() {
    for rollback in [Rollback::Candidates, Rollback::Replay] {
        for right in 0..=3 {
            let mut plain = device(rollback);
            plain.step(&[Part::new(0, 0, &PROMPT)]);
            for place in 0..=right {
                plain.step(&[Part::new(0, 12 + place as u32, &GREEDY[place..=place])]);
            }
            let next = 13 + right as u32;
            let expected = plain.step(&[Part::new(0, next, &GREEDY[right + 1..right + 3])]).1;

            let mut speculative = device(rollback);
            speculative.step(&[Part::new(0, 0, &PROMPT)]);
            let (step, verified) = speculative.step(&[Part::new(0, 12, &drafts(right)).drafts(3)]);
            assert_eq!(verified.accepted, [1 + right as u32], "{rollback:?}, {right} right");
            assert_eq!(token(&verified, right), GREEDY[right + 1], "{rollback:?}, {right} right");
            speculative.state.accept(step, &verified.accepted).expect("the step is remembered");
            let part = Part::new(0, next, &GREEDY[right + 1..right + 3]).banks(Some(1), 0);
            assert_eq!(speculative.step(&[part]).1, expected, "{rollback:?}, {right} right");
        }
    }
}

#[test]
fn both_rollbacks_give_the_same_bits() {
    let run = |rollback| {
        let mut device = device(rollback);
        device.step(&[Part::new(0, 0, &PROMPT)]);
        let (step, _) = device.step(&[Part::new(0, 12, &drafts(3)).drafts(3)]);
        // Fewer than were confirmed, as where a stop string cuts the answer.
        device.state.accept(step, &[2]).expect("the step is remembered");
        device.step(&[Part::new(0, 14, &[29]).banks(Some(1), 0)]).1
    };
    assert_eq!(run(Rollback::Candidates), run(Rollback::Replay));
}

#[test]
fn what_drafted_rows_leave_is_kept_until_it_is_known_which_stand() {
    for rollback in [Rollback::Candidates, Rollback::Replay] {
        let mut device = device(rollback);
        device.step(&[Part::new(0, 0, &PROMPT)]);
        let candidates = |device: &Device| device.state.bytes().candidates;
        assert_eq!(candidates(&device), 0);
        let (step, _) = device.step(&[Part::new(0, 12, &drafts(2)).drafts(3)]);
        assert!(candidates(&device) > 0, "{rollback:?}");
        device.state.accept(step, &[1]).expect("the step is remembered");
        assert_eq!(candidates(&device), 0, "{rollback:?}");
    }
}

#[test]
fn no_accepted_row_leaves_the_state_before_the_step() {
    for rollback in [Rollback::Candidates, Rollback::Replay] {
        let mut device = device(rollback);
        device.step(&[Part::new(0, 0, &PROMPT)]);
        let expected = device.step(&[Part::new(0, 12, &[53]).banks(Some(0), 1)]).1;
        let (step, _) = device.step(&[Part::new(0, 12, &drafts(2)).drafts(3)]);
        device.state.accept(step, &[0]).expect("the step is remembered");
        assert_eq!(device.step(&[Part::new(0, 12, &[53]).banks(Some(1), 0)]).1, expected, "{rollback:?}");
    }
}

/// A dense model: overlap needs a state that the host doesn't have to settle.
fn dense_device() -> Device {
    let layout = layout(&dense(), &[], Rollback::Candidates, KvFormat::F32);
    Device::new(&[&target(&dense(), &layout)])
}

/// Warm draws with a penalty: they depend on the index, the noise and the history.
fn warm() -> Arc<Sampling> {
    Arc::new(Sampling {
        temperature: 0.9,
        presence_penalty: 0.4,
        frequency_penalty: 0.2,
        ..Sampling::greedy()
    })
}

#[test]
fn next_step_moves_down_by_the_rejected_drafts() {
    let mut plain = dense_device();
    plain.sampling = warm();
    let truth = plain.generate(0, &PROMPT, 8);
    for right in 0..=3 {
        let mut device = dense_device();
        device.sampling = warm();
        device.step(&[Part::new(0, 0, &PROMPT)]);
        let mut drafted = truth[..4].to_vec();
        for wrong in &mut drafted[1 + right..] {
            *wrong = (*wrong + 1) % 64;
        }
        let verify = batch(&device.layout.clone(), &[Part::new(0, 12, &drafted).drafts(3)]);
        let step = device.submit(0, &verify).expect("it runs");
        // Submitted and sampled as if all drafts stood, before anybody has read whether they do.
        let length = Length::AtMost { length: 16, after: step, sequence: 0 };
        let part = Part::of(0, length, vec![TokenSource::Sampled { step, output: 3 }]);
        let next = batch(&device.layout.clone(), &[part]);
        let next = device.submit(0, &next).expect("it runs");
        assert_eq!(device.wait(0, step).accepted, [1 + right as u32]);
        let found = device.wait(0, next);
        assert_eq!(token(&found, 0), truth[right + 2], "{right} right");

        let mut exact = dense_device();
        exact.sampling = warm();
        exact.generate(0, &PROMPT, right + 2);
        let expected = exact.step(&[Part::new(0, 13 + right as u32, &[truth[right + 1]])]).1;
        assert_eq!(logits(&found, 0), logits(&expected, 0), "{right} right");
    }
}

#[test]
fn only_standing_tokens_enter_the_history() {
    // The draft 1 falls: neither it nor what its row draws may be remembered, and the tokens that stand must be.
    for fallen_row in [false, true] {
        let mut device = dense_device();
        device.step(&[Part::new(0, 0, &PROMPT)]);
        let (_, verified) = device.step(&[Part::new(0, 12, &[39, 45, 1]).drafts(2)]);
        assert_eq!(verified.accepted, [2]);
        assert_eq!([0, 1].map(|row| token(&verified, row)), [45, 39]);
        let candidate = if fallen_row { token(&verified, 2) } else { 1 };
        assert!(![39, 45].contains(&candidate));
        // The bias leaves three candidates, the penalty those that were not drawn before.
        let sampling = Sampling {
            presence_penalty: 1000.0,
            logit_bias: [candidate, 39, 45].map(|id| (TokenId(id), 500.0)).to_vec(),
            ..Sampling::greedy()
        };
        device.sampling = Arc::new(sampling);
        assert_eq!(token(&device.step(&[Part::new(0, 14, &[39])]).1, 0), candidate);
    }
}

#[test]
fn draft_after_a_row_that_draws_nothing_falls() {
    let mut device = dense_device();
    device.step(&[Part::new(0, 0, &PROMPT)]);
    let mut verify = batch(&device.layout.clone(), &[Part::new(0, 12, &[39, 45, 39]).drafts(2)]);
    verify.outputs.remove(0);
    let (_, output) = device.run(0, &verify);
    assert_eq!(output.accepted, [1]);
}

#[test]
fn masked_draws_come_from_the_mask() {
    let mut device = dense_device();
    let prompt = batch(&device.layout.clone(), &[Part::new(0, 0, &PROMPT)]);
    let step = device.plans[0].submit(&prompt, device.state.as_mut()).expect("it runs");
    let allowed: Option<Arc<[u32]>> = Some([1 << 20, 0].into());
    let row = SampleRow { allowed, ..device.sample_rows(&prompt).rows[0].clone() };
    let rows = SampleRows { rows: vec![row] };
    device.plans[0].sample(step, &rows, device.state.as_mut()).expect("it draws");
    assert_eq!(token(&device.wait(0, step), 0), 20);
}
