//! The programs of every family's toy config, printed.

use gannet_formats::Checkpoint;
use gannet_model::{ProgramOptions, recognise};
use gannet_ops::{KvFormat, print};
use gannet_testing::goldens;

/// One of each family, and those whose programs differ: biases, windows, an untied head, a soft cap.
const MODELS: [&str; 8] =
    ["llama", "llama-bias", "mistral", "qwen2", "qwen2-sliding", "qwen3", "gemma3", "gemma3-soft-cap"];

#[test]
fn programs_of_toy_configs_are_as_reviewed() {
    for name in MODELS {
        let checkpoint = Checkpoint::open(&goldens::folder().join(name)).unwrap();
        let options = ProgramOptions { context: 512, kv_format: KvFormat::F16 };
        let program = recognise(&checkpoint).unwrap().program(&options).unwrap();
        insta::assert_snapshot!(name, print(&program));
    }
}
