//! Small checkpoints made by the tests: a folder with a config.json, or a GGUF file.

use gannet_formats::gguf::{GgufWriter, Value};
use gannet_formats::{Checkpoint, Source};
use gannet_tensor::Format;
use serde_json::json;
use std::fs;
use tempfile::TempDir;

/// A checkpoint and the folder that it lives in.
pub(crate) struct Toy {
    pub(crate) checkpoint: Checkpoint,
    _folder: TempDir,
}

/// A folder with this config.json, any other files, and one tensor that no model has.
pub(crate) fn hugging_face(config: &serde_json::Value, others: &[(&str, &str)]) -> Toy {
    let folder = tempfile::tempdir().unwrap();
    let header = json!({ "unrelated": { "dtype": "F32", "shape": [1], "data_offsets": [0, 4] } }).to_string();
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend_from_slice(header.as_bytes());
    bytes.extend_from_slice(&[0; 4]);
    fs::write(folder.path().join("model.safetensors"), bytes).unwrap();
    fs::write(folder.path().join("config.json"), config.to_string()).unwrap();
    for (name, text) in others {
        fs::write(folder.path().join(name), text).unwrap();
    }
    Toy { checkpoint: Checkpoint::open(folder.path()).unwrap(), _folder: folder }
}

/// A GGUF file of these entries and float32 tensors, whose elements count up from 0.
pub(crate) fn gguf(entries: &[(String, Value)], tensors: &[(&str, &[usize])]) -> Toy {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.gguf");
    let longest = tensors.iter().map(|(_, shape)| shape.iter().product::<usize>()).max().unwrap_or(0);
    let bytes: Vec<u8> = (0..longest).flat_map(|element| (element as f32).to_le_bytes()).collect();
    let mut writer = GgufWriter::new(&path);
    for (key, value) in entries {
        writer.push_entry(key, value.clone()).unwrap();
    }
    for (name, shape) in tensors {
        let length = shape.iter().product::<usize>() * 4;
        writer.push_tensor(name, Format::F32, shape, &bytes[..length]).unwrap();
    }
    writer.write(fs::File::create(&path).unwrap()).unwrap();
    Toy { checkpoint: Checkpoint::open(&path).unwrap(), _folder: folder }
}

/// A GGUF file with some entries changed, only some of its tensors, and copies of tensors under other names.
pub(crate) fn rewritten(
    whole: &Checkpoint,
    edits: &[(&str, Option<Value>)],
    is_kept: impl Fn(&str) -> bool,
    copies: &[(&str, &str)],
) -> Toy {
    let Source::Gguf(metadata) = &whole.source else { panic!("it is a GGUF file") };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("rewritten.gguf");
    let mut writer = GgufWriter::new(&path);
    let entries = metadata.entries().map(|(key, value)| (key.to_owned(), value.clone())).collect();
    for (key, value) in edited(entries, edits) {
        writer.push_entry(&key, value).unwrap();
    }
    let kept = whole.tensors().filter(|tensor| is_kept(tensor.name)).map(|tensor| (tensor.name, tensor));
    let copies = copies.iter().map(|(name, of)| (*name, whole.tensor(of).unwrap().unwrap()));
    let tensors: Vec<_> = kept.chain(copies).collect();
    let bytes: Vec<_> = tensors.iter().map(|(_, tensor)| tensor.bytes().unwrap()).collect();
    for ((name, tensor), bytes) in tensors.iter().zip(&bytes) {
        writer.push_tensor(name, tensor.format, tensor.shape, bytes).unwrap();
    }
    writer.write(fs::File::create(&path).unwrap()).unwrap();
    Toy { checkpoint: Checkpoint::open(&path).unwrap(), _folder: folder }
}

/// The entries of a one-layer model of this architecture: width 8, two heads, one key head.
pub(crate) fn entries(architecture: &str) -> Vec<(String, Value)> {
    let of = |key: &str, value: Value| (format!("{architecture}.{key}"), value);
    vec![
        ("general.architecture".to_owned(), Value::String(architecture.to_owned())),
        of("block_count", Value::U32(1)),
        of("embedding_length", Value::U32(8)),
        of("feed_forward_length", Value::U32(16)),
        of("attention.head_count", Value::U32(2)),
        of("attention.head_count_kv", Value::U32(1)),
        of("attention.layer_norm_rms_epsilon", Value::F32(1e-5)),
        of("context_length", Value::U32(128)),
    ]
}

/// The entries with some replaced or added, and those without a value left out.
pub(crate) fn edited(entries: Vec<(String, Value)>, edits: &[(&str, Option<Value>)]) -> Vec<(String, Value)> {
    let touched = |key: &String| edits.iter().any(|(edited, _)| edited == key);
    let kept = entries.into_iter().filter(|(key, _)| !touched(key));
    let added = edits.iter().filter_map(|(key, value)| Some(((*key).to_owned(), value.clone()?)));
    kept.chain(added).collect()
}
