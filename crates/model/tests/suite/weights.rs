//! Weights of both kinds of file have the same names, shapes and values once they are canonical.

use crate::toy::{Toy, entries, gguf};
use gannet_formats::Checkpoint;
use gannet_model::{ProgramOptions, recognise};
use gannet_ops::{KvFormat, WeightSource};
use gannet_testing::goldens;
use std::collections::BTreeMap;

/// All weights of a checkpoint's program, decoded.
fn decoded(checkpoint: &Checkpoint) -> BTreeMap<String, Vec<f32>> {
    let model = recognise(checkpoint).unwrap();
    let options = ProgramOptions { context: 64, kv_format: KvFormat::F16 };
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
    let pairs = [
        ("llama", "llama-f32.gguf"),
        ("llama-rope-yarn", "llama-rope-yarn-bf16.gguf"),
        ("qwen2", "qwen2-f16.gguf"),
        ("qwen3", "qwen3-bf16.gguf"),
        ("gemma3", "gemma3-f16.gguf"),
    ];
    for (folder, twin) in pairs {
        let open = |name| Checkpoint::open(&goldens::folder().join(name)).unwrap();
        let (folder, twin_weights) = (decoded(&open(folder)), decoded(&open(twin)));
        for (name, values) in &folder {
            assert!(values == &twin_weights[name], "{twin}: `{name}` differs");
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
