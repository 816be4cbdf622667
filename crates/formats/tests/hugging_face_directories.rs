//! Hugging Face directories: single and sharded safetensors, the texts beside them, and directories that are wrong.

use std::fs::{self, File};
use std::io::{Seek, SeekFrom, Write};
use std::path::Path;

use gannet_formats::{Checkpoint, Source};
use gannet_tensor::Format;
use safetensors::Dtype;
use safetensors::tensor::TensorView;
use tempfile::TempDir;

/// A directory with these files.
fn directory(files: &[(&str, &[u8])]) -> TempDir {
    let directory = TempDir::new().expect("a temporary directory");
    for (name, bytes) in files {
        fs::write(directory.path().join(name), bytes).expect("the directory is there");
    }
    directory
}

/// A safetensors file with these tensors of 2 x 2 elements.
fn weights(tensors: &[(&str, Dtype)]) -> Vec<u8> {
    let data = [1u8; 32];
    let views = tensors.iter().map(|(name, dtype)| {
        let view = TensorView::new(*dtype, vec![2, 2], &data[..4 * dtype.bitsize() / 8]);
        (*name, view.expect("the data is as long as the shape says"))
    });
    safetensors::serialize(views, None).expect("the views are valid")
}

/// Opens a directory with `files` and compares the error, in which `DIR` stands for its path.
#[track_caller]
fn check(files: &[(&str, &[u8])], expect: &str) {
    let directory = directory(files);
    let error = Checkpoint::open(directory.path()).expect_err("the directory is wrong").to_string();
    assert_eq!(error.replace(&directory.path().display().to_string(), "DIR"), expect);
}

const CONFIG: (&str, &[u8]) = ("config.json", br#"{"model_type": "toy", "layers": 2}"#);

#[test]
fn a_file_of_the_reference_reads_as_its_own_crate_reads_it() {
    let golden = include_bytes!("../../../goldens/formats.safetensors");
    let directory = directory(&[CONFIG, ("model.safetensors", golden)]);
    let checkpoint = Checkpoint::open(directory.path()).unwrap();
    let expected = safetensors::SafeTensors::deserialize(golden).unwrap();
    assert_eq!(checkpoint.tensors().count() + checkpoint.unsupported().count(), expected.len());
    for (name, expected) in expected.tensors() {
        let tensor = checkpoint.tensor(&name).unwrap().unwrap();
        let format = if expected.dtype() == Dtype::F32 { Format::F32 } else { Format::U8 };
        assert_eq!((tensor.format, tensor.shape), (format, expected.shape()));
        assert_eq!(*tensor.bytes().unwrap(), *expected.data());
    }
}

#[test]
fn every_type_of_a_float_or_integer_has_a_format_and_others_are_named() {
    let known = [
        (Dtype::F64, Format::F64),
        (Dtype::F8_E4M3, Format::F8E4M3),
        (Dtype::F8_E5M2, Format::F8E5M2),
        (Dtype::F8_E8M0, Format::F8E8M0),
        (Dtype::F4, Format::F4E2M1),
        (Dtype::I8, Format::I8),
        (Dtype::I16, Format::I16),
        (Dtype::I32, Format::I32),
        (Dtype::I64, Format::I64),
    ];
    for (dtype, format) in known {
        let directory = directory(&[CONFIG, ("model.safetensors", &weights(&[("a", dtype)]))]);
        let checkpoint = Checkpoint::open(directory.path()).unwrap();
        let tensor = checkpoint.tensor("a").unwrap().unwrap();
        assert_eq!((tensor.format, tensor.shape), (format, &[2, 2][..]));
        assert_eq!(tensor.elements(), 4);
    }
    let directory = directory(&[CONFIG, ("model.safetensors", &weights(&[("a", Dtype::U16)]))]);
    let error = Checkpoint::open(directory.path()).unwrap().tensor("a").unwrap_err().to_string();
    assert!(error.contains("tensor `a` has the type U16, which is not supported"), "{error}");
}

#[test]
fn shards_are_one_checkpoint() {
    let index = br#"{"metadata": {}, "weight_map": {"a": "m-2.safetensors", "b": "m-1.safetensors", "c": "m-1.safetensors"}}"#;
    let first = weights(&[("b", Dtype::F32), ("c", Dtype::BF16)]);
    let second = weights(&[("a", Dtype::F16)]);
    let directory = directory(&[
        CONFIG,
        ("model.safetensors.index.json", index),
        ("m-1.safetensors", &first),
        ("m-2.safetensors", &second),
    ]);
    let checkpoint = Checkpoint::open(directory.path()).unwrap();
    let found: Vec<_> = checkpoint.tensors().map(|tensor| (tensor.name, tensor.format)).collect();
    assert_eq!(found, [("b", Format::F32), ("c", Format::Bf16), ("a", Format::F16)]);
    assert_eq!(checkpoint.tensor_bytes(), 16 + 8 + 8);
    assert_eq!(checkpoint.file_bytes(), first.len() + second.len());
}

#[test]
fn the_texts_of_a_directory_are_read() {
    let directory = directory(&[
        CONFIG,
        ("model.safetensors", &weights(&[("a", Dtype::F32)])),
        ("generation_config.json", b"{\"eos_token_id\": 2}"),
        ("tokenizer.json", b"{}"),
        ("chat_template.jinja", "{{ messages }} é".as_bytes()),
    ]);
    let checkpoint = Checkpoint::open(directory.path()).unwrap();
    let Source::HuggingFace(files) = &checkpoint.source else { panic!("a directory was opened") };
    assert_eq!(files.config["model_type"], "toy");
    assert_eq!(files.generation_config.as_deref(), Some("{\"eos_token_id\": 2}"));
    assert_eq!(files.tokenizer_json.as_ref().unwrap().read().unwrap(), "{}");
    assert_eq!(files.chat_template.as_deref(), Some("{{ messages }} é"));
    assert_eq!(files.tokenizer_config, None);
    assert_eq!(files.special_tokens_map, None);
}

#[test]
fn what_is_no_model_directory_says_what_was_expected() {
    check(
        &[],
        "`DIR` is no model directory: expected config.json beside model.safetensors or model.safetensors.index.json, \
         found an empty directory; a GGUF model is opened by the path of its file",
    );
    check(
        &[("b.gguf", b"GGUF"), ("a.txt", b"")],
        "`DIR` is no model directory: expected config.json beside model.safetensors or model.safetensors.index.json, \
         found `a.txt`, `b.gguf`; a GGUF model is opened by the path of its file",
    );
    check(
        &[CONFIG, ("pytorch_model.bin", b"PK")],
        "`DIR` has no weights that can be opened: expected model.safetensors or model.safetensors.index.json, \
         found `config.json`, `pytorch_model.bin`",
    );
    check(
        &[("config.json", b"[1]"), ("model.safetensors", b"")],
        "`DIR/config.json` holds an array, expected a JSON object",
    );
    check(
        &[("config.json", b"{\"a\": "), ("model.safetensors", b"")],
        "`DIR/config.json` is not valid JSON: EOF while parsing a value at line 1 column 6",
    );
    check(&[CONFIG, ("model.safetensors", b"")], "`DIR/model.safetensors` is empty");
}

#[test]
fn a_missing_path_and_a_lone_safetensors_file_say_what_to_do() {
    let error = Checkpoint::open(Path::new("nowhere/at-all")).unwrap_err();
    assert_eq!(error.to_string(), "`nowhere/at-all` doesn't exist");
    let directory = directory(&[("model.safetensors", &weights(&[("a", Dtype::F32)]))]);
    let error = Checkpoint::open(&directory.path().join("model.safetensors")).unwrap_err().to_string();
    assert!(error.ends_with("give the directory that holds this file and config.json"), "{error}");
}

#[test]
fn an_index_is_not_trusted() {
    let with_index = |index: &str, expect: &str| {
        let shard = weights(&[("a", Dtype::F32)]);
        let again = weights(&[("a", Dtype::F32), ("b", Dtype::F32)]);
        let files: [(&str, &[u8]); 4] = [
            CONFIG,
            ("model.safetensors.index.json", index.as_bytes()),
            ("m.safetensors", &shard),
            ("n.safetensors", &again),
        ];
        check(&files, expect);
    };
    for name in
        ["../m.safetensors", "/etc/passwd", "x/m.safetensors", "x\\\\m", "C:m", "..", ".", "", "m\\u0000"]
    {
        let shown: String = serde_json::from_str(&format!("\"{name}\"")).unwrap();
        let expect = format!(
            "`DIR/model.safetensors.index.json` names the shard {shown:?}, expected the plain name of a file beside it"
        );
        with_index(&format!(r#"{{"weight_map": {{"a": "{name}"}}}}"#), &expect);
    }
    with_index(r#"{"weight_map": {"a": "gone.safetensors"}}"#, "`DIR/gone.safetensors` doesn't exist");
    with_index(
        r#"{"weight_map": {"a": "m.safetensors", "z": "m.safetensors"}}"#,
        "`DIR/model.safetensors.index.json` places tensor `z` in `m.safetensors`, which doesn't hold it",
    );
    with_index(
        r#"{"weight_map": {"a": "m.safetensors", "b": "n.safetensors"}}"#,
        "`DIR/n.safetensors`: tensor `a` occurs twice",
    );
    let no_map =
        "`DIR/model.safetensors.index.json` holds no map from tensors to files, expected `weight_map`";
    with_index("{}", no_map);
    with_index(r#"{"weight_map": {"a": 1}}"#, no_map);
}

#[test]
fn a_safetensors_header_is_not_trusted() {
    let file = weights(&[("a", Dtype::F32), ("b", Dtype::I64)]);
    let directory = directory(&[CONFIG, ("model.safetensors", &file)]);
    let path = directory.path().join("model.safetensors");
    let mut damaged = File::options().write(true).open(path).unwrap();
    for (place, &byte) in file.iter().enumerate() {
        for flipped in (0..8).map(|bit| byte ^ (1 << bit)).chain([byte]) {
            damaged.seek(SeekFrom::Start(place as u64)).unwrap();
            damaged.write_all(&[flipped]).unwrap();
            let Ok(checkpoint) = Checkpoint::open(directory.path()) else { continue };
            for tensor in checkpoint.tensors() {
                assert_eq!(tensor.bytes().unwrap().len(), tensor.byte_length());
            }
        }
    }
    for length in (0..file.len()).rev() {
        damaged.set_len(length as u64).unwrap();
        assert!(Checkpoint::open(directory.path()).is_err(), "{length} bytes");
    }
    check(
        &[CONFIG, ("model.safetensors", &[255; 16])],
        "`DIR/model.safetensors`: the length of the safetensors header is 18446744073709551615, above the limit of \
         100000000 (SAFETENSORS_HEADER_BYTES)",
    );
    check(
        &[CONFIG, ("model.safetensors", b"\x01\0\0\0\0\0\0\0{")],
        "`DIR/model.safetensors` has no valid safetensors header: EOF while parsing an object at line 1 column 1; \
         fetch it again",
    );
    let longer = [file.as_slice(), &[0; 3]].concat();
    check(
        &[CONFIG, ("model.safetensors", &longer)],
        "`DIR/model.safetensors` has 51 bytes of tensor data, expected 48; fetch it again",
    );
    check(
        &[CONFIG, ("model.safetensors", &file[..file.len() - 1])],
        "`DIR/model.safetensors` ends too early: expected 48 bytes for the tensor data from byte 128 on, found 47; \
         it was cut off or damaged, so fetch it again",
    );
}

#[test]
fn a_key_that_occurs_twice_is_named() {
    let shard = weights(&[("a", Dtype::F32)]);
    check(
        &[("config.json", br#"{"model_type": "toy", "rope": {"theta": 1, "theta": 2}}"#)],
        "`DIR/config.json` is not valid JSON: key \"theta\" occurs twice at line 1 column 50",
    );
    let index = br#"{"weight_map": {"a": "m.safetensors", "a": "m.safetensors"}}"#;
    check(
        &[CONFIG, ("model.safetensors.index.json", index), ("m.safetensors", &shard)],
        "`DIR/model.safetensors.index.json` is not valid JSON: key \"a\" occurs twice at line 1 column 41",
    );
    let with_header = |header: &str, expect: &str| {
        let file = [&(header.len() as u64).to_le_bytes(), header.as_bytes(), &[0; 16]].concat();
        check(&[CONFIG, ("model.safetensors", &file)], expect);
    };
    let tensor = r#"{"dtype":"F32","shape":[2,2],"data_offsets":[0,16]}"#;
    with_header(
        &format!(r#"{{"a":{tensor},"a":{tensor}}}"#),
        "`DIR/model.safetensors` has no valid safetensors header: key \"a\" occurs twice at line 1 column 60; \
         fetch it again",
    );
    let note = r#""__metadata__":{"format":"pt"}"#;
    with_header(
        &format!(r#"{{{note},"a":{tensor},{note}}}"#),
        "`DIR/model.safetensors` has no valid safetensors header: key \"__metadata__\" occurs twice at line 1 \
         column 102; fetch it again",
    );
}

#[test]
fn a_text_over_its_limit_is_refused() {
    let long = vec![b' '; (1 << 20) + 1];
    check(
        &[CONFIG, ("generation_config.json", &long)],
        "`DIR/generation_config.json`: the length of the file is 1048577, above the limit of 1048576 \
         (GENERATION_CONFIG_BYTES)",
    );
}
