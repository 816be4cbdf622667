//! `gannet eval` on committed checkpoints and on a toy with a tokenizer.

use crate::support::{gannet, golden, repository};
use crate::toy::write_toy;
use safetensors::{Dtype, SafeTensors};
use std::fs;
use std::path::Path;

/// The numbers of a tensor and its shape.
fn read(path: &Path, name: &str) -> (Vec<usize>, Vec<f32>) {
    let bytes = fs::read(path).unwrap();
    let tensors = SafeTensors::deserialize(&bytes).unwrap();
    let tensor = tensors.tensor(name).unwrap();
    let numbers = tensor.data().chunks_exact(4).map(|bytes| bytes.try_into().unwrap());
    let is_float = tensor.dtype() == Dtype::F32;
    assert!(is_float || tensor.dtype() == Dtype::I32, "`{name}` is {:?}", tensor.dtype());
    let number =
        |bytes: [u8; 4]| if is_float { f32::from_le_bytes(bytes) } else { i32::from_le_bytes(bytes) as f32 };
    (tensor.shape().to_vec(), numbers.map(number).collect())
}

/// Models of vectors have none.
fn has_logits(golden: &str) -> bool {
    SafeTensors::deserialize(&fs::read(golden).unwrap()).unwrap().tensor("logits").is_ok()
}

/// The goldens of short prompts with the logits of each position, as (model, golden).
fn goldens() -> Vec<(String, String)> {
    let index: serde_json::Value =
        serde_json::from_slice(&fs::read(repository("goldens/index.json")).unwrap()).unwrap();
    let text = |entry: &serde_json::Value, key: &str| golden(entry[key].as_str().unwrap());
    let short = index.as_array().unwrap().iter().filter(|entry| entry["long"] != true);
    let goldens = short.map(|entry| (text(entry, "model"), text(entry, "golden")));
    goldens.filter(|(_, golden)| has_logits(golden)).collect()
}

#[test]
fn logits_are_those_of_the_goldens() {
    let folder = tempfile::tempdir().unwrap();
    let (ids_file, output) = (folder.path().join("ids.txt"), folder.path().join("logits.safetensors"));
    let goldens = goldens();
    assert!(goldens.len() > 10);
    for (model, golden) in goldens {
        let (_, ids) = read(Path::new(&golden), "ids");
        fs::write(&ids_file, ids.iter().map(|id| format!("{id}\n")).collect::<String>()).unwrap();
        let ids_argument = format!("@{}", ids_file.display());
        gannet(&["eval", "logits", &model, "--ids", &ids_argument, "--output", output.to_str().unwrap()])
            .succeeded();
        let (expected_shape, expected) = read(Path::new(&golden), "logits");
        let (shape, found) = read(&output, "logits");
        assert_eq!(shape, expected_shape, "{model}");
        for (position, (found, expected)) in found.chunks(shape[1]).zip(expected.chunks(shape[1])).enumerate()
        {
            let largest = expected.iter().fold(0.0f32, |largest, logit| largest.max(logit.abs()));
            let error = found.iter().zip(expected).fold(0.0f32, |error, (a, b)| error.max((a - b).abs()));
            assert!(error <= 1e-4 * largest, "{model} at {position}: off by {error:e} of {largest}");
        }
    }
}

#[test]
fn backends_are_compared_op_by_op() {
    let compare = |more: &[&str]| gannet(&[&["eval", "compare", &golden("qwen3")], more].concat());
    let text = compare(&[]).succeeded();
    assert!(text.contains("layers.1.feed_forward.down.weight") && text.contains("agree in"), "{text}");
    compare(&["--backend", "reference", "--against", "cpu", "--ids", "1,2,3"]).succeeded();
    compare(&["--tolerance", "0"]).failed(1, &["cpu differs from reference first at node"]);
    compare(&["--ids", "1,272"]).failed(1, &["272"]);
}

#[test]
fn a_context_beyond_the_models_own_needs_a_scaling_or_force() {
    let folder = tempfile::tempdir().unwrap();
    let toy = write_toy(&folder.path().join("toy.gguf"), &[]);
    let text = folder.path().join("text.txt");
    fs::write(&text, "the hen went there and came back\n".repeat(40)).unwrap();
    let measure = |more: &[&str]| {
        let common = ["eval", "perplexity", &toy, "--file", text.to_str().unwrap(), "--context", "600"];
        gannet(&[&common, more, &["--windows", "1", "--last", "50", "--json"]].concat())
    };
    measure(&[]).failed(1, &["600", "512", "rope scaling"]);
    let [forced, scaled] = [&["--force-context"][..], &["--rope-scaling", "yarn:2"]]
        .map(|more| measure(more).json()["nll"].as_f64().unwrap());
    assert!(forced.is_finite() && scaled.is_finite());
    assert!((forced - scaled).abs() > 1e-6, "the scaling changes the scores: {forced}, {scaled}");
}

#[test]
fn perplexity_is_that_of_the_logits_of_each_window() {
    let folder = tempfile::tempdir().unwrap();
    let toy = write_toy(&folder.path().join("toy.gguf"), &[]);
    let (text, output) = (folder.path().join("text.txt"), folder.path().join("logits.safetensors"));
    fs::write(&text, "the hen went there\n").unwrap();
    let text = text.to_str().unwrap();
    let prompt =
        gannet(&["run", &toy, "--raw", "the hen went there\n", "--max-tokens", "1", "--json"]).json();
    let ids: Vec<u64> =
        prompt["prompt_ids"].as_array().unwrap().iter().map(|id| id.as_u64().unwrap()).collect();
    let mut nlls = Vec::new();
    for window in ids.chunks(6).filter(|window| window.len() > 1) {
        let list: Vec<String> = window.iter().map(u64::to_string).collect();
        let list = list.join(",");
        gannet(&["eval", "logits", &toy, "--ids", &list, "--output", output.to_str().unwrap()]).succeeded();
        let (shape, logits) = read(&output, "logits");
        for (row, next) in logits.chunks(shape[1]).zip(&window[1..]) {
            let sum: f64 = row.iter().map(|logit| f64::from(*logit).exp()).sum();
            nlls.push(sum.ln() - f64::from(row[*next as usize]));
        }
    }
    let expected = nlls.iter().sum::<f64>() / nlls.len() as f64;
    let measured = gannet(&["eval", "perplexity", &toy, "--file", text, "--context", "6", "--json"]).json();
    assert_eq!(measured["tokens"].as_u64(), Some(nlls.len() as u64));
    assert!((measured["nll"].as_f64().unwrap() - expected).abs() < 1e-9, "{measured} instead of {expected}");
    let perplexity = measured["perplexity"].as_f64().unwrap();
    assert!((perplexity - expected.exp()).abs() < 1e-6 * perplexity, "{measured}");
    // Of the first two windows of 6 tokens, the last two are counted.
    let last = gannet(&[
        "eval",
        "perplexity",
        &toy,
        "--file",
        text,
        "--context",
        "6",
        "--windows",
        "2",
        "--last",
        "2",
        "--json",
    ]);
    let (last, expected) = (last.json(), (nlls[3] + nlls[4] + nlls[8] + nlls[9]) / 4.0);
    assert_eq!((last["tokens"].as_u64(), last["windows"].as_u64()), (Some(4), Some(2)));
    assert!((last["nll"].as_f64().unwrap() - expected).abs() < 1e-9, "{last} instead of {expected}");
    let line = gannet(&["eval", "perplexity", &toy, "--file", text, "--context", "6"]).succeeded();
    assert!(line.starts_with(&format!("perplexity {perplexity:.4} ")), "{line}");
}
