//! The committed tiny checkpoints against what the reference implementation computes from them.

use gannet_backend_cpu::{ActivationFormat, CpuBackend, CpuOptions};
use gannet_testing::goldens;

/// With exact products, as the tolerance is that of float32; codes are judged on real text instead.
fn backend() -> CpuBackend {
    with(ActivationFormat::Float32)
}

fn with(activations: ActivationFormat) -> CpuBackend {
    CpuBackend::new(CpuOptions { threads: Some(2), isa: None, activations })
        .expect("two threads can be started")
}

#[test]
fn logits_are_the_references_within_tolerance() {
    goldens::check_logits(&backend());
}

#[test]
fn greedy_continuations_are_the_references() {
    goldens::check_greedy(&backend());
}

#[test]
fn chunks_and_single_tokens_give_the_bits_of_one_step() {
    goldens::check_chunked_equals_whole(&backend());
    goldens::check_chunked_equals_whole(&with(ActivationFormat::Int8));
}

#[test]
fn recurrent_state_resumes_from_any_token() {
    goldens::check_resumed_equals_uninterrupted(&backend());
    goldens::check_resumed_equals_uninterrupted(&with(ActivationFormat::Int8));
}

/// Thousands of tokens, with the last positions' logits: slow for the reference, and what the op suite holds is short.
#[test]
fn logits_at_the_end_of_long_prompts_are_the_references_within_tolerance() {
    goldens::check_long_logits(&backend());
}
