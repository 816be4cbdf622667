//! GGUF files of one part: header, tensors in every type, and the model that the metadata describes.

#![no_main]

use gannet_formats::Checkpoint;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let folder = gannet_fuzz::folder(&[("model.gguf", input)]);
    let Ok(checkpoint) = Checkpoint::open(&folder.path().join("model.gguf")) else { return };
    gannet_fuzz::check_tensors(&checkpoint);
    gannet_fuzz::check_model(&checkpoint);
});
