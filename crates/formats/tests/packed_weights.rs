//! Weights that are stored in parts have the values that `goldens/packed.py` says, in the formats that it says; parts that
//! contradict each other are named.

use std::{fs, slice};

use gannet_formats::{Checkpoint, FormatError};
use safetensors::tensor::TensorView;
use safetensors::{Dtype, SafeTensors};
use serde_json::{Value, json};
use tempfile::TempDir;

const GOLDEN: &[u8] = include_bytes!("../../../goldens/packed.safetensors");
const CASES: &str = include_str!("../../../goldens/packed.json");

/// A tensor on its way into a file.
#[derive(Clone)]
struct Stored {
    name: String,
    dtype: Dtype,
    shape: Vec<usize>,
    bytes: Vec<u8>,
}

fn stored(name: &str, dtype: Dtype, shape: &[usize]) -> Stored {
    let bytes = shape.iter().product::<usize>() * dtype.bitsize() / 8;
    Stored { name: name.to_owned(), dtype, shape: shape.to_vec(), bytes: vec![0; bytes] }
}

/// A directory with these tensors and this config.
fn directory(config: &Value, tensors: &[Stored]) -> TempDir {
    let directory = TempDir::new().expect("a temporary directory");
    let views = tensors.iter().map(|tensor| {
        let view = TensorView::new(tensor.dtype, tensor.shape.clone(), &tensor.bytes);
        (&tensor.name, view.expect("bytes and shapes agree"))
    });
    let file = safetensors::serialize(views, None).expect("the views are valid");
    fs::write(directory.path().join("model.safetensors"), file).expect("the directory is there");
    fs::write(directory.path().join("config.json"), config.to_string()).expect("the directory is there");
    directory
}

fn text(value: &Value) -> &str {
    value.as_str().expect("the golden has a text here")
}

fn list(value: &Value) -> &[Value] {
    value.as_array().expect("the golden has a list here")
}

fn parts(golden: &SafeTensors<'_>, case: &Value) -> Vec<Stored> {
    let names = list(&case["parts"]).iter().map(text);
    let part = |name: &str| {
        let view = golden.tensor(&format!("{}/{name}", text(&case["name"]))).expect("the part is there");
        let (shape, bytes) = (view.shape().to_vec(), view.data().to_vec());
        Stored { name: name.to_owned(), dtype: view.dtype(), shape, bytes }
    };
    names.map(part).collect()
}

/// The cases of the golden, each with its parts.
fn cases() -> Vec<(Value, Vec<Stored>)> {
    let golden = SafeTensors::deserialize(GOLDEN).expect("the golden is a safetensors file");
    let json: Value = serde_json::from_str(CASES).expect("the golden is JSON");
    list(&json["cases"]).iter().map(|case| (case.clone(), parts(&golden, case))).collect()
}

fn config(case: &Value) -> Value {
    json!({ "model_type": "toy", "quantization_config": case["quantization_config"] })
}

#[test]
fn every_case_has_the_values_of_its_method() {
    let golden = SafeTensors::deserialize(GOLDEN).unwrap();
    for (case, parts) in cases() {
        let name = case["name"].as_str().unwrap();
        let directory = directory(&config(&case), &parts);
        let checkpoint = Checkpoint::open(directory.path()).unwrap_or_else(|error| panic!("{name}: {error}"));
        for weight in case["weights"].as_array().unwrap() {
            let weight_name = weight["name"].as_str().unwrap();
            let tensor = checkpoint.tensor(weight_name).unwrap().expect("the weight is there");
            let expected = golden.tensor(&format!("{name}={weight_name}")).unwrap();
            assert_eq!(tensor.format.name(), weight["format"], "{name}");
            assert_eq!(tensor.shape, expected.shape(), "{name}");
            assert_eq!(tensor.bytes().unwrap().len(), tensor.byte_length(), "{name}");
            let tolerance = weight["tolerance"].as_f64().unwrap_or(0.0) as f32;
            let expected = expected.data().as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes));
            for (index, (found, expected)) in tensor.decode().unwrap().into_iter().zip(expected).enumerate() {
                let near = (found - expected).abs() <= tolerance * expected.abs();
                assert!(near, "{name}: element {index} is {found}, expected {expected}");
            }
        }
    }
}

#[test]
fn parts_are_listed_as_the_weights_that_they_make() {
    for (case, parts) in cases() {
        let directory = directory(&config(&case), &parts);
        let checkpoint = Checkpoint::open(directory.path()).unwrap();
        let listed: Vec<_> = checkpoint.tensors().map(|tensor| tensor.name.to_owned()).collect();
        for weight in case["weights"].as_array().unwrap() {
            assert!(listed.iter().any(|name| weight["name"] == **name), "{listed:?}");
        }
        let biases =
            parts.iter().filter(|part| part.name.ends_with("bias") || part.name.starts_with("norm")).count();
        let packed = case["weights"].as_array().unwrap().iter().filter(|weight| weight["format"] != "bf16");
        let packed = packed.filter(|weight| weight["format"] != "f16").count();
        assert_eq!(listed.len(), packed + biases, "{}: {listed:?}", case["name"]);
        let bytes: usize = checkpoint.tensors().map(|tensor| tensor.byte_length()).sum();
        assert_eq!(checkpoint.tensor_bytes(), bytes);
    }
}

#[test]
fn a_part_that_is_missing_cut_or_of_another_type_is_an_error_or_optional() {
    for (case, parts) in cases() {
        let open = |parts: &[Stored]| {
            let directory = directory(&config(&case), parts);
            let checkpoint = Checkpoint::open(directory.path());
            // Whatever is handed out can be read. The elements of the first weight are counted.
            checkpoint.map(|checkpoint| {
                for tensor in checkpoint.tensors() {
                    assert_eq!(tensor.decode().unwrap().len(), tensor.elements());
                }
                let first = case["weights"][0]["name"].as_str().unwrap();
                checkpoint.tensor(first).unwrap().map_or(0, |tensor| tensor.elements())
            })
        };
        let optional = |name: &str| {
            ["g_idx", "zero_point", "bias", "input_scale", "norm.weight"].iter().any(|o| name.ends_with(o))
        };
        for index in 0..parts.len() {
            let name = &parts[index].name;
            let mut others = parts.clone();
            others.remove(index);
            if !others.is_empty() && !optional(name) {
                assert!(open(&others).is_err(), "{}: without `{name}`", case["name"]);
            }
            let mut flat = parts.clone();
            flat[index].shape = vec![1, 1, 1, flat[index].shape.iter().product()];
            let mut empty = parts.clone();
            empty[index] = stored(name, parts[index].dtype, &[0, 0]);
            let mut floats = parts.clone();
            floats[index] = stored(name, Dtype::F64, &parts[index].shape);
            let (flat, empty, _may_be_optional) = (open(&flat), open(&empty), open(&floats));
            if !optional(name) {
                assert!(flat.is_err(), "{}: flat `{name}`", case["name"]);
                assert!(empty.map_or(true, |elements| elements == 0), "{}: empty `{name}`", case["name"]);
            }
        }
    }
}

/// Opens a directory of these tensors with this `quantization_config` and compares the error, in which `DIR` stands for
/// its path.
#[track_caller]
fn check(quantization: Value, tensors: &[Stored], expect: &str) {
    let directory = directory(&json!({ "quantization_config": quantization }), tensors);
    let error: FormatError = Checkpoint::open(directory.path()).expect_err("the parts are wrong");
    assert_eq!(error.to_string().replace(&directory.path().display().to_string(), "DIR"), expect);
}

#[test]
fn a_method_that_is_not_supported_is_named() {
    let check = |config: Value, key: &str, found: &str, expected: &str| {
        let expect =
            format!("`DIR/config.json`: key `quantization_config{key}` is `{found}`, expected {expected}");
        check(config, &[stored("a", Dtype::F32, &[1])], &expect);
    };
    let methods = "one of gptq, awq, fp8, fbgemm_fp8, compressed-tensors, mxfp4, modelopt";
    check(json!({ "quant_method": "aqlm" }), ".quant_method", "\"aqlm\"", methods);
    check(json!({ "bits": 4 }), ".quant_method", "null", methods);
    check(json!([4]), "", "[4]", "an object");
    let bits = "2 or 3 or 4 or 8";
    check(json!({ "quant_method": "gptq", "bits": 5 }), ".bits", "5", bits);
    check(json!({ "quant_method": "gptq", "bits": "4" }), ".bits", "\"4\"", bits);
    check(
        json!({ "quant_method": "gptq", "checkpoint_format": "marlin" }),
        ".checkpoint_format",
        "\"marlin\"",
        "`gptq` or `gptq_v2`",
    );
    let layouts = "`gemm` or `GEMM` or `gemv` or `GEMV`";
    check(json!({ "quant_method": "awq", "version": "gemv_fast" }), ".version", "\"gemv_fast\"", layouts);
    let groups = "a whole number above 0, or -1";
    for (value, shown) in [(json!(0), "0"), (json!(-2), "-2"), (Value::Null, "null")] {
        let config = json!({ "quant_method": "awq", "version": "gemv", "group_size": value });
        check(config, ".group_size", shown, groups);
    }
    check(json!({ "quant_method": "awq", "zero_point": false }), ".zero_point", "false", "true");
    let blocks = |value: Value| json!({ "quant_method": "fp8", "weight_block_size": value });
    check(blocks(json!([128])), ".weight_block_size", "[128]", "two whole numbers above 0");
    check(blocks(json!([0, 128])), ".weight_block_size", "[0,128]", "two whole numbers above 0");
    check(
        json!({ "quant_method": "compressed-tensors", "sparsity_config": { "format": "sparse-24-bitmask" } }),
        ".sparsity_config.format",
        "\"sparse-24-bitmask\"",
        "`dense`",
    );
}

#[test]
fn zeros_of_3_bits_that_could_mean_two_things_are_refused() {
    let (_, mut parts) = cases().into_iter().find(|(case, _)| case["name"] == "gptq-3-bits").unwrap();
    let quantization = json!({ "quant_method": "gptq", "bits": 3 });
    let zeros = parts.iter_mut().find(|part| part.name == "a.qzeros").unwrap();
    zeros.bytes[5] ^= 1;
    let expect = "`DIR/model.safetensors`: tensor `a.qzeros` holds zeros of 3 bits that differ from group to group in version 1 \
                  of GPTQ, which its writers store in two ways; convert the model to `gptq_v2`";
    check(quantization.clone(), &parts, expect);
    let with = |words: usize, rows: usize, expect: &str| {
        let codes = stored("a.qweight", Dtype::I32, &[words, rows]);
        let zeros = stored("a.qzeros", Dtype::I32, &[1, 3]);
        let expect = format!(
            "`DIR/model.safetensors`: tensor `a.qweight` has the shape [{words}, {rows}], expected {expect}"
        );
        check(quantization.clone(), &[codes, zeros, stored("a.scales", Dtype::F16, &[1, rows])], &expect);
    };
    with(4, 32, "a multiple of 3 words in each column");
    with(3, 24, "a multiple of 32 outputs, as zeros of 3 bits need");
}

#[test]
fn parts_that_contradict_each_other_are_named() {
    let gptq = json!({ "quant_method": "gptq", "bits": 4 });
    let codes = stored("a.qweight", Dtype::I32, &[8, 16]);
    let zeros = stored("a.qzeros", Dtype::I32, &[2, 2]);
    let scales = stored("a.scales", Dtype::F16, &[2, 16]);
    let file = "`DIR/model.safetensors`: tensor";
    check(
        gptq.clone(),
        &[codes.clone(), zeros.clone()],
        &format!("{file} `a.qweight` is packed and needs `a.scales`, which is missing"),
    );
    check(
        gptq.clone(),
        &[codes.clone(), zeros.clone(), stored("a.scales", Dtype::F16, &[2, 15])],
        &format!("{file} `a.scales` has the shape [2, 15], expected [2, 16]"),
    );
    check(
        gptq.clone(),
        &[codes.clone(), stored("a.qzeros", Dtype::I16, &[2, 2]), scales.clone()],
        &format!("{file} `a.qzeros` has the type i16, expected i32"),
    );
    check(
        gptq.clone(),
        &[codes.clone(), stored("a.qzeros", Dtype::I32, &[5, 2]), stored("a.scales", Dtype::F16, &[5, 16])],
        &format!("{file} `a.scales` has the shape [5, 16], expected groups that divide 64 columns"),
    );
    check(
        gptq.clone(),
        &[codes.clone(), zeros.clone(), scales.clone(), stored("a.weight", Dtype::F32, &[1])],
        &format!("{file} `a.weight` occurs twice"),
    );
    let mut groups = stored("a.g_idx", Dtype::I32, &[64]);
    groups.bytes[4 * 9..4 * 10].copy_from_slice(&2i32.to_le_bytes());
    check(
        gptq,
        &[codes.clone(), zeros, scales, groups],
        &format!("{file} `a.g_idx` puts column 9 into group 2, expected one of 2 groups"),
    );
    let fp8 = json!({ "quant_method": "fp8", "weight_block_size": [128, 128] });
    let weight = stored("a.weight", Dtype::F8_E4M3, &[256, 256]);
    check(
        fp8.clone(),
        slice::from_ref(&weight),
        &format!("{file} `a.weight` is packed and needs `a.weight_scale`, which is missing"),
    );
    check(
        fp8.clone(),
        &[weight.clone(), stored("a.weight_scale_inv", Dtype::F32, &[2, 3])],
        &format!(
            "{file} `a.weight_scale_inv` has the shape [2, 3], expected one scale, 256 for the rows, or one for each of \
             blocks of [128, 128] of shape [256, 256]"
        ),
    );
    let why = "reading the weight without it would be wrong";
    check(
        fp8,
        &[stored("a.weight", Dtype::BF16, &[2, 2]), stored("a.weight_scale_inv", Dtype::F32, &[1])],
        &format!(
            "{file} `a.weight_scale_inv` is part of a packed weight, but the method `fp8` takes it for none; {why}"
        ),
    );
    check(
        Value::Null,
        &[weight, stored("a.weight_scale_inv", Dtype::F32, &[2, 2])],
        &format!(
            "{file} `a.weight_scale_inv` is part of a packed weight, but config.json has no `quantization_config`; {why}"
        ),
    );
}
