//! The programs of every family's toy config, printed.

use gannet_formats::Checkpoint;
use gannet_model::{Model, ProgramOptions, family_names, recognise};
use gannet_ops::{KvFormat, Rollback, print};
use gannet_testing::goldens;
use std::collections::BTreeSet;

/// One of each family, and those whose programs differ: biases, windows, an untied head, a soft cap, dense layers.
const MODELS: [&str; 30] = [
    "llama",
    "llama-bias",
    "mistral",
    "ministral",
    "ministral3",
    "mixtral",
    "qwen2",
    "qwen2-sliding",
    "qwen2-moe",
    "qwen2-moe-sliding",
    "qwen3",
    "qwen3-moe",
    "qwen3-moe-sliding",
    "qwen3-moe-dense-layers",
    "qwen3-next",
    "qwen3_5",
    "qwen3_5-moe",
    "qwen3_5-bf16.gguf",
    "gemma2",
    "gemma3",
    "gemma3-soft-cap",
    "phi3",
    "phi3-longrope",
    "granite",
    "smollm3",
    "olmo2",
    "glm4",
    "gpt-oss",
    "embedding-last",
    "embedding-mean",
];

fn open(name: &str) -> Model {
    recognise(&Checkpoint::open(&goldens::folder().join(name)).unwrap()).unwrap()
}

#[test]
fn every_family_has_a_reviewed_program_and_a_golden() {
    let known: BTreeSet<&str> = family_names().collect();
    let reviewed: BTreeSet<&str> = MODELS.iter().map(|name| open(name).family).collect();
    assert_eq!(reviewed, known);
    let golden = goldens::all();
    let golden: BTreeSet<&str> =
        golden.iter().map(|golden| open(golden.model.to_str().unwrap()).family).collect();
    assert_eq!(golden, known);
}

#[test]
fn programs_of_toy_configs_are_as_reviewed() {
    for name in MODELS {
        let options = ProgramOptions { context: 512, kv_format: KvFormat::F16, rollback: Rollback::Replay };
        let program = open(name).program(&options).unwrap();
        insta::assert_snapshot!(name, print(&program));
    }
}
