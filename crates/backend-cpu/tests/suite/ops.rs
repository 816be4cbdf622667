//! Every op against the reference interpreter, and against itself: each level of instructions, number of
//! threads, row count, cut into chunks and order of pages gives the same bits.

use crate::support::everything::{
    ALL_BYTES, BYTES, CAPTURE, Formats, HALVES, HIDDEN, VOCABULARY, drafter, layout, target,
};
use crate::support::stepper::{Part, Stepper};
use crate::support::weights::{Generated, RECIPES, numbers};
use crate::support::{assert_close, variants, with};
use gannet_backend_cpu::ActivationFormat::{self, Float32, Int8};
use gannet_backend_cpu::CpuBackend;
use gannet_ops::reference::ReferenceBackend;
use gannet_ops::*;
use gannet_tensor::Format;
use std::collections::HashMap;
use std::sync::Arc;

/// Of the largest number of a value; keys and values in half precision round their own way.
const TOLERANCE: f32 = 1e-3;
/// Where keys or values lose bits, a number on the border between two codes may fall to either side.
const CODE: f32 = 1.0 / 64.0;
/// Few do, so the mean error stays far below.
const MEAN_TOLERANCE: f32 = 1e-3;

fn ids(seed: u32, count: u32) -> Vec<u32> {
    (0..count).map(|place| (seed * 37 + place * place * 11 + place * 5) % VOCABULARY as u32).collect()
}

fn stepper(backend: &dyn Backend, formats: Formats, rollback: Rollback, mask: Mask) -> Stepper {
    let layout = layout(rollback, formats);
    Stepper::new(backend, &[target(&layout, mask), drafter(&layout)], &Generated::of)
}

/// A prompt, a second one beside it, decoding, drafts of which some stand, a step that doesn't know yet how
/// many, and a drafter's step over what was captured.
fn play(stepper: &mut Stepper, observe: &mut dyn FnMut(usize, ValueId, &[f32])) -> Vec<StepOutput> {
    let mut outputs = Vec::new();
    let mut step = |stepper: &mut Stepper, plan: usize, batch: &Batch| {
        let number = outputs.len();
        let mut show = |_: usize, node: &Node, values: &[&[f32]]| {
            node.outputs.iter().zip(values).for_each(|(id, values)| observe(number, *id, values));
        };
        let (id, output) = stepper.run_traced(plan, batch, &mut show);
        outputs.push(output);
        id
    };
    let mut batch = stepper.batch(&[Part::new(0, 0, &ids(1, 75))]);
    batch.embeddings = numbers("embeddings", 2 * HIDDEN).collect();
    batch.rows[3].token = TokenSource::Embedding(1);
    step(stepper, 0, &batch);
    let beside =
        stepper.batch(&[Part::new(0, 75, &ids(2, 1)), Part::new(1, 0, &ids(3, 29)), Part::new(2, 0, &[9])]);
    let last = step(stepper, 0, &beside);
    let mut drafted = Part::new(1, 29, &ids(4, 4));
    drafted.tokens[0] = TokenSource::Sampled { step: last, output: 29 };
    drafted.drafts = 3;
    drafted.banks = (Some(0), 1);
    let batch = stepper.batch(&[drafted, Part { released: 0, ..Part::new(0, 76, &ids(5, 1)) }]);
    let verified = step(stepper, 0, &batch);
    stepper.state.accept(verified, &[2, 1]).expect("two rows stand");
    let length = Length::AtMost { length: 33, after: verified, sequence: 0 };
    let tokens = vec![TokenSource::Sampled { step: verified, output: 3 }];
    let next = stepper.batch(&[Part { length, tokens, banks: (Some(1), 0), ..Part::new(1, 33, &[]) }]);
    step(stepper, 0, &next);
    let mut batch = stepper.batch(&[Part::new(1, 0, &ids(6, 3))]);
    batch.handed = vec![Handed { step: verified, capture: CAPTURE, row_map: vec![4, 0, 2] }];
    for output in &mut batch.outputs {
        (output.want.hidden, output.want.pooled) = (false, false);
    }
    step(stepper, 1, &batch);
    outputs
}

#[test]
fn every_node_is_the_references_within_tolerance() {
    let cases = [(HALVES, Rollback::Candidates), (HALVES, Rollback::Replay), (ALL_BYTES, Rollback::Replay)];
    for (formats, rollback) in cases {
        let mask = Mask::BlockWindow(60);
        let mut expected: HashMap<(usize, ValueId), Vec<f32>> = HashMap::new();
        let mut reference = stepper(&ReferenceBackend::new(), formats, rollback, mask);
        let outputs = play(&mut reference, &mut |step, id, values| {
            expected.insert((step, id), values.to_vec());
        });
        let backend = with(Float32);
        let mut seen = 0;
        let found = play(&mut stepper(&backend, formats, rollback, mask), &mut |step, id, values| {
            let (what, expected) = (format!("step {step}, value {}", id.0), &expected[&(step, id)]);
            assert_close(&what, values, expected, if formats == HALVES { TOLERANCE } else { CODE });
            assert!(mean_error(values, expected) <= MEAN_TOLERANCE, "{what}: not only some codes differ");
            seen += 1;
        });
        assert_eq!(seen, expected.len(), "every value is compared");
        for (step, (found, expected)) in found.iter().zip(&outputs).enumerate() {
            assert_eq!(found.accepted, expected.accepted, "step {step}");
            for (found, expected) in found.outputs.iter().zip(&expected.outputs) {
                assert_eq!(
                    (found.token, found.not_finite),
                    (expected.token, expected.not_finite),
                    "step {step}"
                );
                let numbers = |result: &OutputResult| {
                    [result.logits.clone(), result.hidden.clone(), result.pooled.clone()]
                };
                for (found, expected) in
                    numbers(found).into_iter().flatten().zip(numbers(expected).into_iter().flatten())
                {
                    let tolerance = if formats == HALVES { TOLERANCE } else { CODE };
                    assert_close(&format!("step {step}"), &found, &expected, tolerance);
                }
            }
        }
    }
}

/// The mean difference, as a part of the largest number.
fn mean_error(found: &[f32], expected: &[f32]) -> f32 {
    let largest = expected.iter().fold(f32::MIN_POSITIVE, |most, x| most.max(x.abs()));
    let errors = found.iter().zip(expected).map(|(found, expected)| (found - expected).abs());
    errors.filter(|error| error.is_finite()).sum::<f32>() / (largest * found.len().max(1) as f32)
}

#[test]
fn levels_and_threads_give_the_same_bits() {
    let cases = [(HALVES, Float32), (HALVES, Int8), (ALL_BYTES, Float32)];
    for (formats, activations) in cases {
        let mut first: Option<Vec<StepOutput>> = None;
        for (name, backend) in variants(activations) {
            let mut stepper = stepper(&backend, formats, Rollback::Replay, Mask::Block);
            let found = play(&mut stepper, &mut |_, _, _| {});
            assert!(found.iter().flat_map(|step| &step.outputs).all(|output| !output.not_finite));
            let expected = first.get_or_insert_with(|| found.clone());
            assert!(*expected == found, "{name} gives other bits than the scalar level");
        }
    }
}

#[test]
fn chunks_companions_and_pages_dont_change_a_row() {
    check_chunks(HALVES, Float32);
    check_chunks(HALVES, Int8);
    check_chunks(BYTES, Float32);
}

fn check_chunks(formats: Formats, activations: ActivationFormat) {
    let backend = with(activations);
    let tokens = ids(1, 150);
    let whole = whole(&backend, formats, &tokens);
    for cuts in [vec![1, 64, 65, 149], (1..150).collect(), vec![37, 128]] {
        let mut stepper = stepper(&backend, formats, Rollback::Replay, Mask::Causal);
        let mut found = Vec::new();
        let ends: Vec<u32> = cuts.iter().copied().chain([150]).collect();
        let mut start = 0;
        for (number, end) in ends.into_iter().enumerate() {
            let chunk = Part::new(2, start, &tokens[start as usize..end as usize]);
            let chunk = Part { released: start.saturating_sub(70) / 64, ..chunk };
            let beside = Part::new(0, 0, &ids(number as u32, 3));
            let parts = if number % 2 == 0 { vec![chunk] } else { vec![beside, chunk] };
            let batch = stepper.batch(&parts);
            let outputs = stepper.run(0, &batch).1.outputs;
            found.extend_from_slice(&outputs[outputs.len() - (end - start) as usize..]);
            start = end;
        }
        check_rows(&found, &whole, &format!("{formats:?}, chunks ending at {cuts:?}"));
    }
}

#[test]
fn a_long_sequence_beside_short_ones_has_the_bits_that_it_has_alone() {
    for (formats, activations) in [(HALVES, Int8), (BYTES, Float32)] {
        let tokens = ids(1, 600);
        let alone = beside(&with(activations), formats, &tokens, (600, 150));
        for (name, backend) in variants(activations) {
            // Rows that few others share their step with: their attention is cut into splits of the keys.
            let found = beside(&backend, formats, &tokens, (520, 8));
            check_rows(&found, &alone, &format!("{formats:?} at {name}"));
        }
    }
}

/// What the rows of a sequence give: `first` of them in chunks of 130, the others in chunks of `rows` beside three short
/// sequences.
fn beside(
    backend: &CpuBackend,
    formats: Formats,
    tokens: &[u32],
    (first, rows): (usize, usize),
) -> Vec<OutputResult> {
    let mut stepper = stepper(backend, formats, Rollback::Replay, Mask::Causal);
    let ends = (0..first).step_by(130).skip(1).chain((first..tokens.len()).step_by(rows));
    let mut found = Vec::new();
    let mut start: usize = 0;
    for (number, end) in ends.chain([tokens.len()]).enumerate() {
        let released = start.saturating_sub(70) as u32 / 64;
        let chunk = Part { released, ..Part::new(2, start as u32, &tokens[start..end]) };
        let others = [0, 1, 3].map(|home| Part::new(home, 0, &ids(number as u32 + home, 1)));
        let parts = if start >= first { [&others[..], &[chunk]].concat() } else { vec![chunk] };
        let batch = stepper.batch(&parts);
        let outputs = stepper.run(0, &batch).1.outputs;
        found.extend_from_slice(&outputs[outputs.len() - (end - start)..]);
        start = end;
    }
    found
}

fn whole(backend: &CpuBackend, formats: Formats, tokens: &[u32]) -> Vec<OutputResult> {
    let mut stepper = stepper(backend, formats, Rollback::Replay, Mask::Causal);
    let batch = stepper.batch(&[Part::new(0, 0, tokens)]);
    stepper.run(0, &batch).1.outputs
}

fn check_rows(found: &[OutputResult], whole: &[OutputResult], what: &str) {
    assert_eq!(found.len(), whole.len(), "{what}");
    for (row, (found, whole)) in found.iter().zip(whole).enumerate() {
        let same = (&found.logits, &found.hidden) == (&whole.logits, &whole.hidden);
        assert!(same, "row {row} of {what} has other bits");
    }
}

#[test]
fn drafts_across_the_edge_of_a_page_leave_nothing_wherever_they_fall() {
    let backend = with(Float32);
    let tokens = ids(1, 72);
    let whole = whole(&backend, BYTES, &tokens);
    // The last certain token, then drafts for the indices up to 68.
    let (start, drafts) = (59, 9);
    for standing in 1..=drafts + 1 {
        let mut stepper = stepper(&backend, BYTES, Rollback::Replay, Mask::Causal);
        let batch = stepper.batch(&[Part::new(0, 0, &tokens[..start])]);
        let mut found = stepper.run(0, &batch).1.outputs;
        let mut drafted = tokens[start..start + 1 + drafts].to_vec();
        drafted[standing..].iter_mut().for_each(|id| *id = (*id + 1) % VOCABULARY as u32);
        let part = Part { drafts, banks: (Some(0), 1), ..Part::new(0, start as u32, &drafted) };
        let batch = stepper.batch(&[part]);
        let (step, output) = stepper.run(0, &batch);
        found.extend_from_slice(&output.outputs[..standing]);
        let waiting = stepper.state.bytes().candidates;
        let priced = stepper.layout.candidate_bytes(1 + drafts) as u64;
        assert!(waiting > priced / 2 && waiting <= priced, "{waiting} bytes wait, {priced} were priced");
        stepper.state.accept(step, &[standing as u32]).expect("so many rows stand");
        assert_eq!(stepper.state.bytes().candidates, 0);
        for (place, index) in (start + standing..tokens.len()).enumerate() {
            let banks = if place % 2 == 0 { (Some(1), 0) } else { (Some(0), 1) };
            let part = Part { banks, ..Part::new(0, index as u32, &tokens[index..=index]) };
            let batch = stepper.batch(&[part]);
            found.extend(stepper.run(0, &batch).1.outputs);
        }
        check_rows(&found, &whole, &format!("a draft of which {standing} rows stand"));
    }
}

/// x through one matrix, rows of which are given as embeddings.
fn product(shape: [usize; 2]) -> Program {
    let mut b = ProgramBuilder::new("product", Arc::new(StateLayout::default()));
    let x = b.embeddings(shape[1]);
    let weight = b.weight("weight", &shape, WeightRole::Matrix);
    let y = b.linear(x, weight, None);
    let y = b.select_outputs(y);
    b.output(OutputKind::Hidden, y);
    b.finish()
}

fn products(backend: &dyn Backend, shape: [usize; 2], format: Format, rows: usize) -> Vec<Vec<f32>> {
    let mut stepper = Stepper::new(backend, &[product(shape)], &|uses| Generated::in_format(uses, format));
    let mut part = Part::new(0, 0, &[]);
    part.tokens = (0..rows as u32).map(TokenSource::Embedding).collect();
    let mut batch = stepper.batch(&[part]);
    batch.embeddings = numbers("x", rows * shape[1]).collect();
    for output in &mut batch.outputs {
        output.want = Want { hidden: true, ..Want::default() };
    }
    let step = stepper.plans[0].submit(&batch, stepper.state.as_mut()).expect("the step runs");
    let output = stepper.plans[0].wait(step).expect("the step ends");
    output.outputs.into_iter().map(|result| result.hidden.expect("it was asked for")).collect()
}

#[test]
fn products_of_every_format_and_row_count_agree() {
    for format in RECIPES.iter().map(|recipe| recipe.format) {
        let shapes: &[[usize; 2]] = match format.block_elements() {
            1 => &[[37, 33], [5, 7], [130, 64]],
            32 => &[[37, 96], [1, 32], [70, 288]],
            _ => &[[37, 256], [6, 512]],
        };
        for shape in shapes {
            let expected = products(&ReferenceBackend::new(), *shape, format, 130);
            // A code is off by at most half of a 127th of its block's largest number.
            let exact = variants(Float32).into_iter().map(|variant| (variant, 1e-5));
            let codes = variants(Int8).into_iter().map(|variant| (variant, 1e-2));
            for ((name, backend), tolerance) in exact.chain(codes) {
                let all = products(&backend, *shape, format, 130);
                let what = format!("{format} {shape:?} at {name}");
                assert_close(&what, &all.concat(), &expected.concat(), tolerance);
                for rows in [1, 2, 3, 5, 8, 13, 33] {
                    let some = products(&backend, *shape, format, rows);
                    assert!(some[..] == all[..rows], "{what}: {rows} rows have other bits than 130");
                }
            }
        }
    }
}
