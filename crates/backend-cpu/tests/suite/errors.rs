//! What can't be done is said, with numbers, and leaves the backend usable.

use crate::support::everything::{HALVES, VOCABULARY, layout, target};
use crate::support::stepper::{Part, Stepper};
use crate::support::weights::Generated;
use gannet_backend_cpu::{CpuBackend, CpuOptions, IsaLevel};
use gannet_ops::sampling::History;
use gannet_ops::*;

fn start(options: CpuOptions) -> Result<CpuBackend, String> {
    CpuBackend::new(options).map_err(|error| error.to_string())
}

fn stepper() -> Stepper {
    let backend =
        start(CpuOptions { threads: Some(2), ..CpuOptions::default() }).expect("two threads can be started");
    Stepper::new(&backend, &[target(&layout(Rollback::Replay, HALVES), Mask::Causal)], &Generated::of)
}

fn refusal(stepper: &mut Stepper, batch: &Batch) -> String {
    let refused = stepper.plans[0].submit(batch, stepper.state.as_mut());
    refused.expect_err("the batch can't be run").to_string()
}

#[test]
fn thread_counts_that_make_no_sense_are_refused() {
    let refused = |threads| {
        start(CpuOptions { threads: Some(threads), ..CpuOptions::default() }).err().expect("it is refused")
    };
    assert!(refused(0).starts_with("0 threads were asked for"), "{}", refused(0));
    assert!(
        refused(10_000).starts_with("10000 threads were asked for; this process may use"),
        "{}",
        refused(10_000)
    );
}

#[test]
fn an_instruction_set_that_the_processor_lacks_is_refused() {
    let lacking = IsaLevel::ALL.into_iter().filter(|level| !level.is_available());
    for isa in lacking {
        let options = CpuOptions { threads: Some(1), isa: Some(isa), ..CpuOptions::default() };
        let refused = start(options).err().expect("it is refused");
        assert!(
            refused.starts_with(&format!("this processor has no `{isa}` instructions; it has `scalar`")),
            "{refused}"
        );
    }
}

#[test]
fn ids_pages_and_steps_that_dont_exist_are_refused_and_the_next_step_runs() {
    let mut stepper = stepper();
    let good = stepper.batch(&[Part::new(0, 0, &[1, 2, 3])]);
    let unchanged = stepper.run(0, &good).1;

    let unknown_id = stepper.batch(&[Part::new(1, 0, &[VOCABULARY as u32])]);
    assert_eq!(refusal(&mut stepper, &unknown_id), "token id 131 is outside of the vocabulary of 131");

    let mut unknown_page = good.clone();
    unknown_page.pages[0] = PageId(40);
    assert_eq!(refusal(&mut stepper, &unknown_page), "page 40 does not exist: its group has 40 pages");

    let long = stepper.batch(&[Part::new(1, 640, &[1])]);
    let expected =
        "page with the token at index 640 does not exist: the table lists pages 0..10 of the sequence";
    assert_eq!(refusal(&mut stepper, &long), expected);

    let mut later = good.clone();
    later.rows[1].token = TokenSource::Sampled { step: StepId(99), output: 0 };
    assert!(refusal(&mut stepper, &later).starts_with("step 99 does not exist"));

    let mut unknown_slot = good.clone();
    let bank = RecurrentBank { slot: 4, bank: 0 };
    unknown_slot.sequences[0].recurrent =
        Some(RecurrentUse { read: Some(bank), write: RecurrentWrite::Bank(bank) });
    assert!(refusal(&mut stepper, &unknown_slot).starts_with("recurrent slot 4 does not exist"));

    let many = stepper.batch(&[Part::new(1, 0, &[1; 201])]);
    assert_eq!(
        refusal(&mut stepper, &many),
        "row 200 does not exist: the plan was compiled for at most 200 a batch"
    );

    stepper.state.start_history(SamplerSlot(0), History::default()).expect("the slot exists");
    assert!(stepper.run(0, &good).1 == unchanged, "refused batches leave no trace");
}

#[test]
fn an_interrupted_step_fails_and_the_next_one_runs() {
    let mut stepper = stepper();
    let batch = stepper.batch(&[Part::new(0, 0, &[1, 2, 3])]);
    stepper.plans[0].interrupter().interrupt();
    assert_eq!(refusal(&mut stepper, &batch), "the step was interrupted");
    stepper.run(0, &batch);
}

#[test]
fn a_restored_snapshot_continues_with_the_same_bits() {
    let mut stepper = stepper();
    let prompt = stepper.batch(&[Part::new(0, 0, &[1, 2, 3, 4, 5])]);
    stepper.run(0, &prompt);
    let bank = RecurrentBank { slot: 0, bank: 0 };
    let snapshot = stepper.state.snapshot(bank).expect("the budget has two");
    let next = stepper.batch(&[Part::new(0, 5, &[6])]);
    let first = stepper.run(0, &next).1;
    stepper.state.restore(snapshot, bank).expect("it was taken");
    stepper.state.start_history(SamplerSlot(0), History::default()).expect("the slot exists");
    let again = stepper.run(0, &next).1;
    assert_eq!(again.outputs[0].logits, first.outputs[0].logits);
    stepper.state.forget(snapshot).expect("it was taken");
    let forgotten = stepper.state.restore(snapshot, bank).expect_err("it was forgotten").to_string();
    assert_eq!(forgotten, "snapshot 0 does not exist: it was not taken, or was forgotten");
}
