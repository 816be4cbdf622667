//! Every family and rope against the committed goldens, on the reference interpreter.

use gannet_ops::reference::ReferenceBackend;
use gannet_testing::goldens;

#[test]
fn logits_are_those_of_the_reference_implementation() {
    goldens::check_logits(&ReferenceBackend::new());
}

#[test]
fn greedy_continuations_are_those_of_the_reference_implementation() {
    goldens::check_greedy(&ReferenceBackend::new());
}

#[test]
fn a_prompt_in_chunks_gives_the_bits_of_a_whole_one() {
    goldens::check_chunked_equals_whole(&ReferenceBackend::new());
}

#[test]
fn recurrent_state_resumes_from_any_token() {
    goldens::check_resumed_equals_uninterrupted(&ReferenceBackend::new());
}
