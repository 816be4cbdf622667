//! The committed tiny checkpoints against what the reference implementation computes from them: on the simulated device,
//! or on a card where `GANNET_TEST_DEVICE` is `card`.

use gannet_backend_cpu::{ActivationFormat, CpuBackend, CpuOptions};
use gannet_ops::PAGE_TOKENS;
use gannet_testing::device::{Precision, device};
use gannet_testing::goldens::{self, Golden};

/// The goldens whose operations all have kernels, and whose matrices have, in this precision.
fn taken(precision: Precision) -> Vec<Golden> {
    let backend = device(precision);
    goldens::all().into_iter().filter(|golden| goldens::refusal(&backend, golden).is_none()).collect()
}

#[test]
fn what_has_no_kernel_is_refused_by_name() {
    let backend = device(Precision::Stored);
    let refused = |case: &str| {
        let golden = goldens::all().into_iter().find(|golden| golden.case == case);
        goldens::refusal(&backend, &golden.unwrap_or_else(|| panic!("`{case}` is a golden")))
    };
    let refusal = refused("embedding-mean").expect("it is refused");
    assert!(refusal.starts_with("backend `cuda` can't run `attention`: "), "{refusal}");
    for case in
        ["qwen3", "qwen3_5", "mixtral", "qwen2-moe", "qwen3-moe", "qwen3-next", "qwen3_5-moe", "gpt-oss"]
    {
        assert_eq!(refused(case), None, "{case}");
    }
}

#[test]
fn logits_of_single_precision_are_the_references_within_tolerance() {
    let goldens = taken(Precision::Single);
    assert!(goldens.len() >= 70, "{} goldens have kernels", goldens.len());
    goldens::check_logits_of(&device(Precision::Single), &goldens);
}

/// A golden that half precision itself takes further from its logits: transformers in float32, with the rows of each product
/// rounded to bf16, has a cosine of 0.99705 with them at one position, which is that of the kernels too. All else holds for it.
const BEYOND_HALF_PRECISION: &str = "qwen3_5-nested";

#[test]
fn distributions_of_half_precision_are_the_references_within_tolerance() {
    let mut goldens = taken(Precision::Stored);
    goldens.retain(|golden| golden.case != BEYOND_HALF_PRECISION);
    assert!(goldens.len() >= 70, "{} goldens have kernels", goldens.len());
    goldens::check_distributions_of(&device(Precision::Stored), &goldens);
}

#[test]
fn greedy_continuations_are_the_references() {
    goldens::check_greedy_of(&device(Precision::Single), &taken(Precision::Single));
}

#[test]
fn chunks_and_single_tokens_give_the_bits_of_one_step() {
    for precision in [Precision::Single, Precision::Stored] {
        goldens::check_chunked_equals_whole_of(&device(precision), &taken(precision));
    }
}

#[test]
fn recurrent_state_goes_on_from_a_snapshot_as_if_it_had_not_stopped() {
    goldens::check_resumed_equals_uninterrupted_of(&device(Precision::Stored), &taken(Precision::Stored));
}

/// In float32 on both sides, so that only the formats of keys and values lose anything; the kernels' products of them are in half
/// precision, the other backend's in float32.
#[test]
fn keys_and_values_in_int8_are_those_of_the_cpu() {
    let cpu = CpuBackend::new(CpuOptions { activations: ActivationFormat::Float32, ..CpuOptions::default() });
    let cpu = cpu.expect("the machine has threads");
    let mut goldens = taken(Precision::Single);
    goldens.retain(|golden| golden.pooled.is_none());
    assert!(goldens.iter().any(|golden| golden.ids.len() > PAGE_TOKENS), "a golden has more than a page");
    goldens::check_int8_equals_that_of(&device(Precision::Single), &cpu, &goldens, 1e-4);
}
