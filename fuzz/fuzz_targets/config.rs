//! config.json and generation_config.json to a model and its program, without weights.
//!
//! An input is config.json, a zero byte, and generation_config.json.

#![no_main]

use gannet_formats::Checkpoint;
use libfuzzer_sys::fuzz_target;

/// A safetensors file of no tensor.
const NO_WEIGHTS: &[u8] = b"\x02\0\0\0\0\0\0\0{}";

fuzz_target!(|input: &[u8]| {
    let [config, generation_config] = gannet_fuzz::sections::<2>(input);
    let mut files = vec![("config.json", config), ("model.safetensors", NO_WEIGHTS)];
    if !generation_config.is_empty() {
        files.push(("generation_config.json", generation_config));
    }
    let folder = gannet_fuzz::folder(&files);
    if let Ok(checkpoint) = Checkpoint::open(folder.path()) {
        gannet_fuzz::check_model(&checkpoint);
    }
});
