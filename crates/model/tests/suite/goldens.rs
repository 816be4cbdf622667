//! Every family and rope against the committed goldens, on the reference interpreter.

use gannet_ops::reference::ReferenceBackend;
use gannet_testing::goldens;
use std::collections::BTreeSet;

/// What GGUF has no key for, or not in this architecture, where a golden has it; `goldens/twins.py` refuses to write
/// these, and where a file tries to say it nevertheless, a test of refusals shows the error.
const WITHOUT_GGUF: [(&str, &str); 9] = [
    ("llama-rope-dynamic", "no kind of scaling follows the running length"),
    ("llama-rope-yarn-mscale", "ramps end at whole pairs, which this one doesn't"),
    ("qwen2-sliding", "no key says which layers slide"),
    ("qwen2-moe-sliding", "no key says which layers slide"),
    ("qwen3-moe-sliding", "no key says which layers slide"),
    ("qwen3-moe-dense-layers", "every layer has experts"),
    ("ministral", "no architecture has windows in some layers only"),
    ("gemma3-score-width", "scores are scaled by the width of a head"),
    ("gpt-oss-limit", "the bound of the gate is 7"),
];

#[test]
fn every_golden_has_a_gguf_twin_or_a_reason() {
    let goldens: Vec<_> = goldens::all().into_iter().chain(goldens::long()).collect();
    let is_gguf = |golden: &&goldens::Golden| golden.model.extension().is_some_and(|end| end == "gguf");
    let twins: BTreeSet<&str> = goldens.iter().filter(is_gguf).map(|golden| golden.case.as_str()).collect();
    let cases: BTreeSet<&str> = goldens.iter().map(|golden| golden.case.as_str()).collect();
    let reasons: BTreeSet<&str> = WITHOUT_GGUF.iter().map(|(case, _)| *case).collect();
    assert_eq!(cases.difference(&twins).copied().collect::<BTreeSet<_>>(), reasons);
}

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
