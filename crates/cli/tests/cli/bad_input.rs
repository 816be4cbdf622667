//! Files and prompts that can't be used: each gives one line that names what was found and expected.

use crate::support::{gannet, gannet_reading, golden};
use crate::toy::write_toy;
use gannet_formats::gguf::Value;
use safetensors::SafeTensors;
use safetensors::tensor::TensorView;
use std::fs;
use std::path::{Path, PathBuf};

/// Both ways to use a file fail with the same words.
fn refused(path: &Path, parts: &[&str]) {
    let path = path.to_str().unwrap();
    gannet(&["inspect", path]).failed(1, parts);
    gannet(&["run", path, "--ids", "1"]).failed(1, parts);
}

/// A copy of a committed file with other bytes.
fn changed(folder: &Path, file: &str, change: impl FnOnce(&mut Vec<u8>)) -> PathBuf {
    let mut bytes = fs::read(golden(file)).unwrap();
    change(&mut bytes);
    let path = folder.join("changed.gguf");
    fs::write(&path, bytes).unwrap();
    path
}

#[test]
fn files_that_are_no_model_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    refused(&folder.join("absent.gguf"), &["absent.gguf", "doesn't exist"]);
    let empty = folder.join("empty.gguf");
    fs::write(&empty, "").unwrap();
    refused(&empty, &["empty.gguf", "is empty"]);
    let text = folder.join("text.gguf");
    fs::write(&text, "not a model at all").unwrap();
    refused(&text, &["text.gguf", "expected `GGUF`"]);
    refused(folder, &["expected config.json"]);
    refused(&changed(folder, "llama-f32.gguf", |bytes| bytes.truncate(bytes.len() / 2)), &["ends too early"]);
    refused(&changed(folder, "llama-f32.gguf", |bytes| bytes.truncate(40)), &["ends too early"]);
}

#[test]
fn unknown_architectures_are_named() {
    refused(
        Path::new(&golden("small.gguf")),
        &["small.gguf", "general.architecture", "`toy`", "supported are"],
    );
    let folder = tempfile::tempdir().unwrap();
    copy_folder("llama", folder.path());
    let config = fs::read_to_string(folder.path().join("config.json")).unwrap();
    fs::write(folder.path().join("config.json"), config.replace("llama", "mamba").replace("Llama", "Mamba"))
        .unwrap();
    refused(folder.path(), &["config.json", "amba", "supported are"]);
    fs::write(folder.path().join("config.json"), "{\"model_type\": ").unwrap();
    refused(folder.path(), &["config.json", "not valid JSON"]);
}

#[test]
fn unknown_tensor_types_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = changed(folder.path(), "llama-f32.gguf", |bytes| {
        let name = b"blk.0.attn_q.weight";
        let after = bytes.windows(name.len()).position(|window| window == name).unwrap() + name.len();
        // The number of dimensions, two of them, the type.
        bytes[after + 4 + 2 * 8..][..4].copy_from_slice(&36u32.to_le_bytes());
    });
    let parts = ["blk.0.attn_q.weight", "iq4_nl_4_4 (36)", "not supported"];
    gannet(&["run", path.to_str().unwrap(), "--ids", "1"]).failed(1, &parts);
    let shown = gannet(&["inspect", path.to_str().unwrap()]).succeeded();
    assert!(parts.iter().all(|part| shown.contains(part)), "{shown}");
}

#[test]
fn missing_and_misshapen_tensors_are_named() {
    let folder = tempfile::tempdir().unwrap();
    copy_folder("llama", folder.path());
    let path = folder.path().join("model.safetensors");
    let bytes = fs::read(&path).unwrap();
    let stored = SafeTensors::deserialize(&bytes).unwrap();
    let name = "model.layers.1.mlp.up_proj.weight";
    let others = || stored.tensors().into_iter().filter(|(other, _)| other != name);
    safetensors::serialize_to_file(others(), None, &path).unwrap();
    gannet(&["run", folder.path().to_str().unwrap(), "--ids", "1"]).failed(1, &[name, "missing"]);
    let tensor = stored.tensor(name).unwrap();
    let shape: Vec<usize> = tensor.shape().iter().rev().copied().collect();
    let turned = TensorView::new(tensor.dtype(), shape, tensor.data()).unwrap();
    safetensors::serialize_to_file(others().chain([(name.to_owned(), turned)]), None, &path).unwrap();
    gannet(&["run", folder.path().to_str().unwrap(), "--ids", "1"])
        .failed(1, &[name, "[96, 64]", "[64, 96]"]);
}

#[test]
fn a_model_without_a_usable_tokenizer_takes_ids_alone() {
    let folder = tempfile::tempdir().unwrap();
    let path = write_toy(&folder.path().join("rwkv.gguf"), &[("tokenizer.ggml.model", Value::from("rwkv"))]);
    gannet(&["run", &path, "Hi"]).failed(1, &["`rwkv`", "supported"]);
    gannet(&["run", &path, "--ids", "1,2", "--max-tokens", "2"]).succeeded();
    assert!(gannet(&["inspect", &path]).succeeded().contains("`rwkv`"));
    let plain = golden("llama");
    gannet(&["run", &plain, "Hi"]).failed(1, &["tokenizer.json", "--ids"]);
    gannet(&["run", &plain, "--ids", "1", "--stop", "x"]).failed(1, &["--stop needs a tokenizer"]);
    gannet(&["eval", "perplexity", &plain, "--file", &golden("index.json")]).failed(1, &["tokenizer.json"]);
}

#[test]
fn a_broken_chat_template_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let template = Value::from("{% if %}");
    let path = write_toy(&folder.path().join("template.gguf"), &[("tokenizer.chat_template", template)]);
    gannet(&["run", &path, "Hi"]).failed(1, &["template"]);
    let raises = Value::from("{{ raise_exception('no system messages here') }}");
    let path = write_toy(&folder.path().join("raises.gguf"), &[("tokenizer.chat_template", raises)]);
    gannet(&["run", &path, "Hi", "--system", "x"]).failed(1, &["no system messages here"]);
}

#[test]
fn prompts_that_dont_fit_are_refused_with_the_numbers() {
    let plain = golden("llama");
    gannet(&["run", &plain, "--ids", "1,272"]).failed(1, &["272", "vocabulary of 272"]);
    gannet(&["run", &plain, "--ids", "1", "--logit-bias", "300=1"]).failed(1, &["300", "vocabulary of 272"]);
    gannet(&["run", &plain, "--ids", "1,2,3,4", "--context", "4"]).failed(1, &["4 tokens", "context"]);
    gannet(&["run", &plain, "--ids", "1", "--context", "513"]).failed(1, &["513", "512"]);
    gannet(&["run", &plain, "--ids", "@absent.txt"]).failed(1, &["absent.txt"]);
    let folder = tempfile::tempdir().unwrap();
    let toy = write_toy(&folder.path().join("toy.gguf"), &[]);
    gannet_reading(b"caf\xe9", &["run", &toy, "-"]).failed(1, &["standard input", "not UTF-8", "offset 3"]);
    gannet(&["run", &toy, "--raw", ""]).failed(1, &["the prompt is empty"]);
    gannet(&["run", &toy, &"long ".repeat(300)]).failed(1, &["the context 512", "shorten the prompt"]);
}

#[test]
fn evaluations_that_cant_be_done_are_refused() {
    let plain = golden("llama");
    let logits =
        |ids: &str, output: &str| gannet(&["eval", "logits", &plain, "--ids", ids, "--output", output]);
    logits("1", "absent-folder/x.safetensors").failed(2, &["absent-folder"]);
    let folder = tempfile::tempdir().unwrap();
    logits("1", folder.path().to_str().unwrap()).failed(2, &["is a folder"]);
    logits("1,999", folder.path().join("x").to_str().unwrap()).failed(1, &["999", "vocabulary of 272"]);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    let toy = write_toy(&folder.path().join("toy.gguf"), &[]);
    let text = folder.path().join("short.txt");
    fs::write(&text, "a").unwrap();
    let perplexity = |more: &[&str]| {
        gannet(&[&["eval", "perplexity", &toy, "--file", text.to_str().unwrap()], more].concat())
    };
    perplexity(&["--context", "1"]).failed(2, &["expected at least 2"]);
    perplexity(&[]).failed(1, &["short.txt", "no two tokens"]);
}

fn copy_folder(name: &str, target: &Path) {
    for entry in fs::read_dir(golden(name)).unwrap() {
        let path = entry.unwrap().path();
        fs::copy(&path, target.join(path.file_name().unwrap())).unwrap();
    }
}
