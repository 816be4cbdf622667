//! Weights of both kinds of file have the same names, shapes and values once they are canonical.

use crate::configs::EXACT_TWINS;
use crate::toy::{Toy, entries, gguf};
use gannet_formats::gguf::GgufWriter;
use gannet_formats::{Checkpoint, Source};
use gannet_model::{ProgramOptions, recognise};
use gannet_ops::{KvFormat, Rollback, WeightSource};
use gannet_tensor::Format;
use gannet_testing::goldens;
use serde_json::json;
use std::collections::BTreeMap;
use std::fs::File;

/// All weights of a checkpoint's program, decoded.
fn decoded(checkpoint: &Checkpoint) -> BTreeMap<String, Vec<f32>> {
    let model = recognise(checkpoint).unwrap();
    let options = ProgramOptions { context: 64, kv_format: KvFormat::F16, rollback: Rollback::Replay };
    let (program, weights) = (model.program(&options).unwrap(), model.weights(checkpoint).unwrap());
    let values = program.weights.iter().map(|wanted| {
        let weight = weights.weight(&wanted.name).unwrap();
        assert_eq!(weight.shape, wanted.shape, "{}", wanted.name);
        let mut values = vec![0.0; wanted.shape.iter().product()];
        weight.format.decode(&weight.bytes, &mut values);
        (wanted.name.clone(), values)
    });
    values.collect()
}

/// The tensors of the one-layer toy, with those of `edits` in place of or beside them.
fn toy(edits: &[(&'static str, &'static [usize])]) -> Toy {
    let mut tensors: Vec<(&str, &[usize])> = vec![
        ("token_embd.weight", &[10, 8]),
        ("output_norm.weight", &[8]),
        ("blk.0.attn_norm.weight", &[8]),
        ("blk.0.attn_q.weight", &[8, 8]),
        ("blk.0.attn_k.weight", &[4, 8]),
        ("blk.0.attn_v.weight", &[4, 8]),
        ("blk.0.attn_output.weight", &[8, 8]),
        ("blk.0.ffn_norm.weight", &[8]),
        ("blk.0.ffn_gate.weight", &[16, 8]),
        ("blk.0.ffn_up.weight", &[16, 8]),
        ("blk.0.ffn_down.weight", &[8, 16]),
    ];
    tensors.retain(|(name, _)| !edits.iter().any(|(edited, _)| edited == name));
    tensors.extend(edits.iter().filter(|(_, shape)| !shape.is_empty()));
    gguf(&entries("llama"), &tensors)
}

#[test]
fn twins_without_loss_hold_the_same_weights() {
    for (folder, twin) in EXACT_TWINS {
        let open = |name| Checkpoint::open(&goldens::folder().join(name)).unwrap();
        let (folder, twin_weights) = (decoded(&open(folder)), decoded(&open(twin)));
        for (name, values) in &folder {
            let twin_values = &twin_weights[name];
            // One file holds the logarithm, the other an exponential that was computed elsewhere.
            let tolerance = if name.ends_with("decay.weight") { 1e-6 } else { 0.0 };
            let is_same = |(a, b): (&f32, &f32)| (a - b).abs() <= tolerance * a.abs();
            assert!(values.iter().zip(twin_values).all(is_same), "{twin}: `{name}` differs");
        }
        assert_eq!(folder.len(), twin_weights.len());
    }
}

#[test]
fn rows_of_rotated_projections_are_put_back_by_halves() {
    let toy = toy(&[("blk.0.attn_q.bias", &[8]), ("blk.0.attn_k.bias", &[4]), ("blk.0.attn_v.bias", &[4])]);
    let weights = decoded(&toy.checkpoint);
    // Heads of 4: stored rows 0 2 of each are its first half, 1 3 its second.
    assert_eq!(weights["layers.0.attention.q.bias"], [0.0, 2.0, 1.0, 3.0, 4.0, 6.0, 5.0, 7.0]);
    assert_eq!(weights["layers.0.attention.k.bias"], [0.0, 2.0, 1.0, 3.0]);
    assert_eq!(weights["layers.0.attention.v.bias"], [0.0, 1.0, 2.0, 3.0]);
    let firsts: Vec<f32> =
        weights["layers.0.attention.q.weight"].iter().step_by(8).map(|x| x / 8.0).collect();
    assert_eq!(firsts, weights["layers.0.attention.q.bias"]);
}

#[test]
fn a_missing_or_misshapen_tensor_is_an_error_that_names_it() {
    let cases: [(&'static str, &'static [usize], &str); 4] = [
        ("blk.0.ffn_up.weight", &[], "tensor `blk.0.ffn_up.weight` is missing"),
        ("output_norm.weight", &[7], "tensor `output_norm.weight`"),
        ("blk.0.attn_k.weight", &[8, 4], "the config implies shape [4, 8], found [8, 4]"),
        ("blk.0.attn_norm.weight", &[8, 1], "the config implies shape [8], found [8, 1]"),
    ];
    for (name, shape, expected) in cases {
        let toy = toy(&[(name, shape)]);
        let model = recognise(&toy.checkpoint).unwrap();
        let error = model.weights(&toy.checkpoint).err().unwrap().to_string();
        assert!(error.contains(expected) && error.contains("model.gguf"), "{error}\nexpected: {expected}");
    }
}

#[test]
fn integers_are_no_weight() {
    let toy = toy(&[]);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.gguf");
    let mut writer = GgufWriter::new(&path);
    for (key, value) in entries("llama") {
        writer.push_entry(&key, value).unwrap();
    }
    let codes = [1; 16 * 8];
    let tensors: Vec<_> = toy.checkpoint.tensors().map(|tensor| (tensor, tensor.bytes().unwrap())).collect();
    for (tensor, bytes) in &tensors {
        let is_up = tensor.name == "blk.0.ffn_up.weight";
        let (format, bytes) = if is_up { (Format::I8, &codes[..]) } else { (tensor.format, &bytes[..]) };
        writer.push_tensor(tensor.name, format, tensor.shape, bytes).unwrap();
    }
    writer.write(File::create(&path).unwrap()).unwrap();
    let checkpoint = Checkpoint::open(&path).unwrap();
    let error = recognise(&checkpoint).unwrap().weights(&checkpoint).err().unwrap().to_string();
    assert!(error.contains("tensor `blk.0.ffn_up.weight`") && error.contains("integers in `i8`"), "{error}");
}

/// A safetensors file of these tensors.
fn safetensors(tensors: &[(String, &str, Vec<usize>, Vec<u8>)]) -> Vec<u8> {
    let (mut header, mut data) = (serde_json::Map::new(), Vec::new());
    for (name, dtype, shape, bytes) in tensors {
        let offsets = [data.len(), data.len() + bytes.len()];
        header.insert(name.clone(), json!({ "dtype": dtype, "shape": shape, "data_offsets": offsets }));
        data.extend_from_slice(bytes);
    }
    let header = serde_json::Value::Object(header).to_string();
    [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), &data].concat()
}

#[test]
fn a_checkpoint_of_codes_and_scales_holds_the_weights_that_they_make() {
    let golden = Checkpoint::open(&goldens::folder().join("llama")).unwrap();
    let Source::HuggingFace(files) = &golden.source else { panic!("a folder was opened") };
    let (mut packed, mut plain) = (Vec::new(), Vec::new());
    for tensor in golden.tensors() {
        let name = tensor.name.to_owned();
        let mut values = tensor.decode().unwrap();
        if tensor.name.ends_with("proj.weight") {
            let codes: Vec<u8> = (0..values.len()).map(|index| (index * 37 % 127) as u8).collect();
            let scales: Vec<f32> = (0..tensor.shape[0]).map(|row| 0.01 + row as f32 / 1000.0).collect();
            Format::F8E4M3.decode(&codes, &mut values);
            for (row, scale) in values.chunks_mut(tensor.shape[1]).zip(&scales) {
                row.iter_mut().for_each(|value| *value *= scale);
            }
            packed.push((name.clone(), "F8_E4M3", tensor.shape.to_vec(), codes));
            let bytes = scales.iter().flat_map(|scale| scale.to_le_bytes()).collect();
            packed.push((format!("{name}_scale"), "F32", vec![tensor.shape[0], 1], bytes));
        } else {
            packed.push((
                name.clone(),
                "F32",
                tensor.shape.to_vec(),
                values.iter().flat_map(|x| x.to_le_bytes()).collect(),
            ));
        }
        plain.push((
            name,
            "F32",
            tensor.shape.to_vec(),
            values.iter().flat_map(|x| x.to_le_bytes()).collect(),
        ));
    }
    let open = |tensors: &[_], quantization: serde_json::Value| {
        let folder = tempfile::tempdir().unwrap();
        let mut config = files.config.clone();
        config.insert("quantization_config".to_owned(), quantization);
        std::fs::write(folder.path().join("config.json"), serde_json::Value::Object(config).to_string())
            .unwrap();
        std::fs::write(folder.path().join("model.safetensors"), safetensors(tensors)).unwrap();
        let checkpoint = Checkpoint::open(folder.path()).unwrap();
        let unused = recognise(&checkpoint).unwrap().weights(&checkpoint).unwrap().unused().join(", ");
        (decoded(&checkpoint), unused)
    };
    let expected = open(&plain, serde_json::Value::Null);
    assert!(open(&packed, json!({ "quant_method": "fbgemm_fp8" })) == expected, "the weights differ");
    assert_eq!(expected.1, "");
}

#[test]
fn tensors_that_nothing_reads_are_listed() {
    let toy = toy(&[("blk.0.attn_sinks.weight", &[2]), ("blk.0.attn_rotary_emb.inv_freq", &[2])]);
    let model = recognise(&toy.checkpoint).unwrap();
    assert_eq!(model.weights(&toy.checkpoint).unwrap().unused(), ["blk.0.attn_sinks.weight"]);
}

#[test]
fn goldens_hold_no_tensor_that_nothing_reads() {
    for golden in goldens::all() {
        let checkpoint = Checkpoint::open(&golden.model).unwrap();
        let unused = recognise(&checkpoint).unwrap().weights(&checkpoint).unwrap().unused().join(", ");
        assert_eq!(unused, "", "{}", golden.name);
    }
}

#[test]
fn parameters_count_a_tied_head_once() {
    let toy = toy(&[]);
    let expected = 10 * 8 + 8 + 2 * 8 + 2 * (8 * 8) + 2 * (4 * 8) + 3 * (16 * 8);
    assert_eq!(recognise(&toy.checkpoint).unwrap().parameters(), expected);
}
