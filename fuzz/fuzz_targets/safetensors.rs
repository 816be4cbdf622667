//! Safetensors: a file as it is, a header that is given the data it asks for, an index of shards; and weights that
//! a quantised checkpoint holds in parts.
//!
//! An input is a letter for the case, config.json, a zero byte, and what is read: for `f` the file, for `i` the index,
//! else the header, a zero byte, and the first of the data.

#![no_main]

use gannet_formats::Checkpoint;
use libfuzzer_sys::fuzz_target;
use serde_json::Value;

/// Most data that a header is given.
const DATA_BYTES_MAX: u64 = 1 << 16;

const SHARD_HEADER: &str = r#"{"a.weight":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}"#;

fuzz_target!(|input: &[u8]| {
    let Some((case, rest)) = input.split_first() else { return };
    let [config, file] = gannet_fuzz::sections::<2>(rest);
    let shard = with_data(SHARD_HEADER.as_bytes(), &[]);
    let whole;
    let mut files = vec![("config.json", config)];
    match case {
        b'i' => files.extend([
            ("model.safetensors.index.json", file),
            ("a.safetensors", shard.as_slice()),
            ("b.safetensors", shard.as_slice()),
        ]),
        b'f' => files.push(("model.safetensors", file)),
        _ => {
            let [header, data] = gannet_fuzz::sections::<2>(file);
            whole = with_data(header, data);
            files.push(("model.safetensors", &whole));
        }
    }
    let folder = gannet_fuzz::folder(&files);
    if let Ok(checkpoint) = Checkpoint::open(folder.path()) {
        gannet_fuzz::check_tensors(&checkpoint);
    }
});

/// The header with its length before it, and behind it as much data as its tensors name: what is given, then zeros.
fn with_data(header: &[u8], data: &[u8]) -> Vec<u8> {
    let json: Value = serde_json::from_slice(header).unwrap_or_default();
    let tensors = json.as_object().into_iter().flat_map(|tensors| tensors.values());
    let end = tensors.filter_map(|tensor| tensor.pointer("/data_offsets/1")?.as_u64()).max().unwrap_or(0);
    let mut data = data.to_vec();
    data.resize(end.min(DATA_BYTES_MAX) as usize, 0);
    [&(header.len() as u64).to_le_bytes(), header, &data].concat()
}
