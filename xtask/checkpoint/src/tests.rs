//! Whole checkpoints of small shapes, opened by our reader; and the table of shapes against what is published.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use gannet_formats::Checkpoint;
use gannet_tensor::Format;
use tempfile::TempDir;

use super::mixture::Mixture;
use super::shapes::{Experts, SHAPES, Shape};
use super::weights::{self, Dialect, Weight};
use super::{gguf, hugging_face, shapes};

/// The named shape with two to four layers, narrow, with few experts.
fn small(name: &str) -> Shape {
    let shape = shapes::find(name).unwrap();
    let experts = shape.experts.map(|experts| Experts {
        count: 6,
        width: 256,
        shared: experts.shared.map(|_| 256),
        ..experts
    });
    let layers = if shape.delta.is_some() { 4 } else { 2 };
    Shape { layers, width: 256, feed_forward: shape.feed_forward.min(512), experts, ..shape }
}

#[test]
fn the_shapes_have_as_many_parameters_as_their_models() {
    let check = |name: &str, expected: usize| {
        let shape = shapes::find(name).unwrap();
        let count = |dialect| {
            let weights = weights::list(&shape, dialect);
            weights.iter().map(Weight::elements).sum::<usize>()
        };
        assert_eq!(count(Dialect::HuggingFace), expected, "{name}");
        let divisors = if name == "llama-3.1-8b" { 64 } else { 0 };
        assert_eq!(count(Dialect::Gguf), expected + divisors, "{name} in GGUF");
    };
    // As transformers counts them; the hybrids without vision and without the head that predicts further tokens.
    let published = [
        ("qwen3-0.6b", 596_049_920),
        ("qwen3-1.7b", 1_720_574_976),
        ("qwen3-4b", 4_022_468_096),
        ("qwen3-8b", 8_190_735_360),
        ("qwen3-30b-a3b", 30_532_122_624),
        ("qwen1.5-moe-a2.7b", 14_315_784_192),
        ("qwen2.5-0.5b", 494_032_768),
        ("qwen2.5-1.5b", 1_543_714_304),
        ("deepseek-r1-distill-qwen-1.5b", 1_777_088_000),
        ("llama-3.1-8b", 8_030_261_248),
        ("qwen3.5-0.8b", 752_393_024),
        ("qwen3.5-4b", 4_205_751_296),
        ("qwen3.5-9b", 8_953_803_264),
        ("qwen3.5-27b", 26_895_998_464),
        ("qwen3.5-35b-a3b", 34_660_610_688),
    ];
    assert_eq!(published.map(|(name, _)| name), SHAPES.map(|shape| shape.name));
    published.into_iter().for_each(|(name, expected)| check(name, expected));
}

/// Names, formats and shapes of the tensors that our reader finds.
fn found(path: &Path) -> BTreeMap<String, (Format, Vec<usize>)> {
    let checkpoint = Checkpoint::open(path).unwrap();
    assert_eq!(checkpoint.unsupported().count(), 0);
    let entries = checkpoint.tensors().map(|tensor| {
        let values = tensor.decode().unwrap();
        assert!(values.iter().all(|value| value.is_finite()), "{} is not finite", tensor.name);
        (tensor.name.to_owned(), (tensor.format, tensor.shape.to_vec()))
    });
    entries.collect()
}

fn listed(weights: Vec<Weight>, formats: &[Format]) -> BTreeMap<String, (Format, Vec<usize>)> {
    weights.into_iter().zip(formats).map(|(weight, &format)| (weight.name, (format, weight.shape))).collect()
}

#[test]
fn what_is_written_as_gguf_is_read_back() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("model.gguf");
    for shape in SHAPES {
        let shape = Shape { vocabulary: shape.vocabulary / 64, ..small(shape.name) };
        for format in ["f32", "q4_k_m", "iq4_xs"] {
            let mixture = Mixture::parse(format).unwrap();
            gguf::write(&shape, mixture, 1, &path).unwrap();
            let weights = weights::list(&shape, Dialect::Gguf);
            let formats = mixture.formats(&weights, &shape);
            assert_eq!(found(&path), listed(weights, &formats), "{} in {format}", shape.name);
        }
    }
}

#[test]
fn what_is_written_as_safetensors_is_read_back() {
    let folder = TempDir::new().unwrap();
    for shape in SHAPES {
        let shape = Shape { vocabulary: shape.vocabulary / 64, ..small(shape.name) };
        for (name, format) in [("f32", Format::F32), ("bf16", Format::Bf16), ("f16", Format::F16)] {
            hugging_face::write(&shape, Mixture::parse(name).unwrap(), 1, folder.path()).unwrap();
            let weights = weights::list(&shape, Dialect::HuggingFace);
            let formats = vec![format; weights.len()];
            assert_eq!(found(folder.path()), listed(weights, &formats), "{} in {name}", shape.name);
        }
    }
}

#[test]
fn safetensors_hold_no_blocks() {
    let folder = TempDir::new().unwrap();
    let q8_0 = Mixture::parse("q8_0").unwrap();
    let error = hugging_face::write(&small("qwen3-0.6b"), q8_0, 1, folder.path()).unwrap_err();
    assert!(error.to_string().contains("`q8_0` needs GGUF"), "{error}");
}

#[test]
fn a_checkpoint_is_a_function_of_its_seed() {
    let folder = TempDir::new().unwrap();
    let write = |seed: u64| {
        let path = folder.path().join("model.gguf");
        gguf::write(&small("qwen3.5-35b-a3b"), Mixture::parse("q4_k_m").unwrap(), seed, &path).unwrap();
        fs::read(&path).unwrap()
    };
    let first = write(1);
    assert!(first == write(1));
    assert!(first != write(2));
}

#[test]
fn formats_of_floats_round_the_same_numbers() {
    let folder = TempDir::new().unwrap();
    let values = |format: &str| {
        let path = folder.path().join("model.gguf");
        gguf::write(&small("qwen3-0.6b"), Mixture::parse(format).unwrap(), 1, &path).unwrap();
        let checkpoint = Checkpoint::open(&path).unwrap();
        checkpoint.tensor("token_embd.weight").unwrap().unwrap().decode().unwrap()
    };
    let exact = values("f32");
    for (format, step) in [("f16", 1.0 / 2048.0), ("bf16", 1.0 / 256.0)] {
        let rounded = values(format);
        // Half a step of the last bit, or of the smallest f16.
        let near = |(exact, rounded): (&f32, &f32)| (exact - rounded).abs() <= exact.abs() * step + 3e-8;
        assert!(exact.iter().zip(&rounded).all(near), "{format}");
        assert!(exact != rounded, "{format}");
    }
}

#[test]
fn a_float_tensor_has_its_deviation_and_its_mean() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("model.gguf");
    gguf::write(&small("qwen3-0.6b"), Mixture::parse("bf16").unwrap(), 1, &path).unwrap();
    let checkpoint = Checkpoint::open(&path).unwrap();
    let check = |name: &str, mean: f32, deviation: f32| {
        let values = checkpoint.tensor(name).unwrap().unwrap().decode().unwrap();
        let count = values.len() as f32;
        let found_mean = values.iter().sum::<f32>() / count;
        let variance = values.iter().map(|value| (value - found_mean).powi(2)).sum::<f32>() / count;
        assert!((found_mean - mean).abs() < 4.0 * deviation / count.sqrt(), "{name}: mean {found_mean}");
        assert!(
            (variance.sqrt() / deviation - 1.0).abs() < 4.0 / count.sqrt(),
            "{name}: {}",
            variance.sqrt()
        );
    };
    check("blk.0.ffn_up.weight", 0.0, 1.0 / 16.0);
    check("blk.1.attn_output.weight", 0.0, 1.0 / 2048f32.sqrt());
    check("blk.1.attn_norm.weight", 1.0, 0.05);
}

#[test]
fn the_mixtures_are_those_of_the_field() {
    let check = |name: &str, mixture: &str, stem: &str, expected: &[(Format, &[usize])]| {
        let shape = shapes::find(name).unwrap();
        let weights = weights::list(&shape, Dialect::Gguf);
        let formats = Mixture::parse(mixture).unwrap().formats(&weights, &shape);
        for (format, layers) in expected {
            let of_layer = |layer: usize| {
                let wanted = format!("blk.{layer}.{stem}.weight");
                let place = weights.iter().position(|weight| weight.name == wanted);
                place.is_some_and(|place| formats[place] == *format)
            };
            let found: Vec<usize> = (0..shape.layers).filter(|layer| of_layer(*layer)).collect();
            assert_eq!(found, *layers, "{name} in {mixture}: {stem} in {format}");
        }
    };
    // As llama.cpp's quantiser says that it would write them.
    let half = &[0, 1, 2, 5, 8, 11, 14, 17, 20, 23, 24, 25, 26, 27];
    check("qwen3-0.6b", "q4_k_m", "ffn_down", &[(Format::Q6K, half)]);
    check("qwen3-0.6b", "q4_k_m", "attn_v", &[(Format::Q6K, half)]);
    check("qwen3-0.6b", "q4_k_m", "attn_k", &[(Format::Q6K, &[])]);
    check("qwen3-0.6b", "iq4_xs", "ffn_down", &[(Format::Q5K, &[0, 1, 2])]);
    check("qwen3-0.6b", "iq4_xs", "attn_v", &[(Format::Q5K, &[])]);
    let (better, rest) =
        (&[0, 1, 2, 5, 8, 11, 14, 17, 20, 21, 22, 23], &[3, 4, 6, 7, 9, 10, 12, 13, 15, 16, 18, 19]);
    check("qwen2.5-0.5b", "q4_k_m", "ffn_down", &[(Format::Q6K, better), (Format::Q4K, rest)]);
    check("qwen2.5-0.5b", "q4_k_m", "attn_v", &[(Format::Q8_0, better), (Format::Q5_0, rest)]);
    check("qwen2.5-0.5b", "q5_k_m", "attn_v", &[(Format::Q8_0, better), (Format::Q5_1, rest)]);
    let values = &[(Format::Q6K, &[11, 23][..]), (Format::Q5K, &[3, 7, 15, 19])];
    check("qwen3.5-0.8b", "q5_k_m", "attn_v", values);
    let fused = &[0, 1, 2, 5, 8, 14, 17, 20, 21, 22];
    check("qwen3.5-0.8b", "q5_k_m", "attn_qkv", &[(Format::Q6K, fused)]);
}

#[test]
fn the_head_is_in_a_better_format() {
    let check = |name: &str, mixture: &str, tensor: &str, expected: Format| {
        let shape = shapes::find(name).unwrap();
        let weights = weights::list(&shape, Dialect::Gguf);
        let formats = Mixture::parse(mixture).unwrap().formats(&weights, &shape);
        let place = weights.iter().position(|weight| weight.name == tensor).unwrap();
        assert_eq!(formats[place], expected, "{name} in {mixture}: {tensor}");
    };
    // As llama.cpp's quantiser says that it would write them.
    check("qwen3-0.6b", "q4_k_m", "token_embd.weight", Format::Q6K);
    check("qwen3-0.6b", "q4_0", "token_embd.weight", Format::Q6K);
    check("qwen3-0.6b", "q8_0", "token_embd.weight", Format::Q8_0);
    check("qwen2.5-0.5b", "q4_k_m", "token_embd.weight", Format::Q8_0);
    check("llama-3.1-8b", "q4_k_m", "token_embd.weight", Format::Q4K);
    check("llama-3.1-8b", "q4_k_m", "output.weight", Format::Q6K);
    check("llama-3.1-8b", "f16", "output.weight", Format::F16);
}

#[test]
fn an_unknown_name_is_answered_with_the_known_ones() {
    let check = |error: String, known: &str| assert!(error.contains(known), "{error}");
    check(Mixture::parse("q4_k_x").unwrap_err(), "q4_k_m");
    check(Mixture::parse("q8_k").unwrap_err(), "q8_0");
    check(shapes::find("qwen9").map(drop).unwrap_err(), "qwen3-0.6b");
}
