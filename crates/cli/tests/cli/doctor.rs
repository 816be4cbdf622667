//! `gannet doctor`: the machine, and model files that are sound or spoilt in known ways.

use crate::support::{Run, gannet, golden};
use crate::toy::write_toy;
use gannet_formats::gguf::Value;
use serde_json::Value as Json;
use std::fs;

/// The verdict and the detail of a check.
fn check<'a>(json: &'a Json, name: &str) -> (&'a str, &'a str) {
    let checks = json["checks"].as_array().unwrap();
    let check = checks.iter().find(|check| check["check"] == name);
    let check = check.unwrap_or_else(|| panic!("{name} is not in {json}"));
    (check["verdict"].as_str().unwrap(), check["detail"].as_str().unwrap())
}

/// The report of a run that may have failed.
fn report(run: &Run) -> Json {
    serde_json::from_str(&run.stdout).unwrap()
}

#[test]
fn the_machine_is_described_in_words_and_in_json() {
    let text = gannet(&["doctor"]).succeeded();
    for part in [
        "processor",
        "instructions",
        "activations",
        "threads",
        "memory",
        "gpu",
        "libcuda.so.1",
        "model cache",
        "CPU",
    ] {
        assert!(text.contains(part), "{part:?} is not in {text}");
    }
    let json = gannet(&["doctor", "--json"]).json();
    assert!(json["processor"]["threads"]["used"].as_u64().unwrap() >= 1, "{json}");
    assert!(
        json["processor"]["levels"].as_array().unwrap().contains(&json["processor"]["instructions"]),
        "{json}"
    );
    assert!(json["memory"]["for_a_model"].as_u64().unwrap() > 0, "{json}");
    assert!(!json["gpu_libraries"]["looked_in"].as_array().unwrap().is_empty(), "{json}");
}

#[test]
fn a_sound_model_has_no_fault() {
    let folder = tempfile::tempdir().unwrap();
    let toy = write_toy(&folder.path().join("toy.gguf"), &[]);
    let json = gannet(&["doctor", &toy, "--json"]).json();
    assert_eq!(json["faults"], 0, "{json}");
    for name in [
        "structure",
        "config",
        "shapes",
        "unused tensors",
        "vocabulary",
        "splitting rule",
        "chat template",
        "turn end",
    ] {
        assert_eq!(check(&json, name).0, "ok", "{name} in {json}");
    }
    assert!(check(&json, "turn end").1.contains("`<|im_end|>`"), "{json}");
    let text = gannet(&["doctor", &toy]).succeeded();
    assert_eq!(text.lines().count(), json["checks"].as_array().unwrap().len());
    assert!(text.starts_with("ok     structure"), "{text}");
    // A folder without a tokenizer, and norms and codes of other formats.
    for model in ["gemma3", "qwen3", "llama-q8_0.gguf"] {
        let json = gannet(&["doctor", &golden(model), "--json"]).json();
        assert_eq!(check(&json, "tokenizer").0, "note", "{json}");
        assert!(check(&json, "values").1.contains("are finite"), "{json}");
    }
}

#[test]
fn known_faults_of_the_text_side_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let spoilt = |name: &str, changes: &[(&str, Value)]| {
        let toy = write_toy(&folder.path().join(format!("{name}.gguf")), changes);
        gannet(&["doctor", &toy, "--json"])
    };
    let expect = |changes: &[(&str, Value)], name: &str, verdict: &str, parts: &[&str]| {
        let run = spoilt("spoilt", changes);
        let json = report(&run);
        let (found, detail) = check(&json, name);
        assert_eq!(found, verdict, "{detail}");
        assert!(parts.iter().all(|part| detail.contains(part)), "{detail}");
        assert_eq!(run.code, Some(i32::from(verdict == "fault")), "{run:?}");
        if verdict == "fault" {
            assert!(run.stderr.contains("has 1 fault"), "{run:?}");
        }
    };
    let template = |text: &str| [("tokenizer.chat_template", Value::from(text))];
    expect(
        &[("tokenizer.ggml.pre", Value::from("default"))],
        "splitting rule",
        "note",
        &["`default`", "converter"],
    );
    expect(&[("tokenizer.ggml.pre", Value::from("unheard-of"))], "tokenizer", "fault", &["`unheard-of`"]);
    expect(&[("tokenizer.ggml.bos_token_id", Value::from(0u32))], "beginning", "note", &["nothing puts it"]);
    expect(&[("tokenizer.ggml.eot_token_id", Value::from(9999u32))], "tokenizer", "fault", &["9999"]);
    expect(
        &[("tokenizer.ggml.eom_token_id", Value::from(9999u32))],
        "special ids",
        "fault",
        &["9999", "272"],
    );
    expect(
        &[("tokenizer.ggml.eom_token_id", Value::from(5u32))],
        "end tokens",
        "note",
        &["no control token"],
    );
    expect(&template("a\n{% if %}"), "chat template", "fault", &["line 2", "unexpected end of block"]);
    expect(&template("{{ raise_exception('never') }}"), "chat template", "fault", &["never"]);
    expect(&template("no message"), "chat template", "fault", &["loses"]);
    expect(
        &template("{% for m in messages %}{{ m.content }}<|spare_262|>{% endfor %}"),
        "turn end",
        "fault",
        &["`<|spare_262|>`", "isn't among the end tokens"],
    );
    expect(
        &template("{% for m in messages if m.role != 'system' %}{{ m.content }}<|im_end|>{% endfor %}"),
        "system message",
        "note",
        &["leaves it out"],
    );
}

#[test]
fn values_that_are_not_finite_are_named_with_tensor_and_row() {
    let folder = tempfile::tempdir().unwrap();
    let mut bytes = fs::read(golden("llama-f32.gguf")).unwrap();
    let checkpoint = gannet_formats::Checkpoint::open(golden("llama-f32.gguf").as_ref()).unwrap();
    let tensor = checkpoint.tensor("blk.0.attn_q.weight").unwrap().unwrap();
    let content = tensor.bytes().unwrap();
    let start = bytes.windows(content.len()).position(|window| window == &content[..]).unwrap();
    // Row 2, column 3, of 64 columns in f32.
    bytes[start + 4 * (2 * 64 + 3)..][..4].copy_from_slice(&f32::NAN.to_le_bytes());
    let path = folder.path().join("nan.gguf");
    fs::write(&path, bytes).unwrap();
    let run = gannet(&["doctor", path.to_str().unwrap()]);
    assert_eq!(run.code, Some(1), "{run:?}");
    let line = run.stdout.lines().find(|line| line.contains("values")).unwrap();
    assert!(line.starts_with("fault"), "{line}");
    for part in ["`blk.0.attn_q.weight` holds NaN in row 2, column 3", "1 of 64 rows"] {
        assert!(line.contains(part), "{part:?} is not in {line}");
    }
}

#[test]
fn broken_structure_and_wrong_shapes_are_faults() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("short.gguf");
    let bytes = fs::read(golden("llama-f32.gguf")).unwrap();
    fs::write(&path, &bytes[..bytes.len() / 2]).unwrap();
    let run = gannet(&["doctor", path.to_str().unwrap(), "--json"]);
    assert_eq!(run.code, Some(1));
    assert!(check(&report(&run), "structure").1.contains("ends too early"), "{run:?}");
    let wrong = [("llama.feed_forward_length", Value::from(128u32))];
    let run = gannet(&["doctor", &write_toy(&folder.path().join("wrong.gguf"), &wrong), "--json"]);
    let json = report(&run);
    let (verdict, detail) = check(&json, "shapes");
    assert_eq!(verdict, "fault");
    assert!(detail.contains("[96, 64]") && detail.contains("[128, 64]"), "{detail}");
    gannet(&["doctor", "absent.gguf"]).failed(1, &["doesn't exist"]);
    gannet(&["doctor", &golden("small.gguf")]).failed(1, &["has 1 fault"]);
}
