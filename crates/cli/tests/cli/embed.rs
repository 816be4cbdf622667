//! `gannet embed` on committed checkpoints and on a toy with a tokenizer.

use crate::support::{gannet, golden};
use crate::toy::write_toy;
use safetensors::SafeTensors;
use serde_json::Value;
use std::fs;

fn numbers(list: &Value) -> Vec<f64> {
    list.as_array().unwrap().iter().map(|number| number.as_f64().unwrap()).collect()
}

/// The ids and the vector of a golden.
fn expected(name: &str) -> (String, Vec<f32>) {
    let bytes = fs::read(golden(name)).unwrap();
    let tensors = SafeTensors::deserialize(&bytes).unwrap();
    let words = |name: &str| {
        let data = tensors.tensor(name).unwrap().data().to_vec();
        data.chunks_exact(4).map(|word| <[u8; 4]>::try_from(word).unwrap()).collect::<Vec<_>>()
    };
    let ids: Vec<String> =
        words("ids").into_iter().map(|word| u32::from_le_bytes(word).to_string()).collect();
    (ids.join(","), words("pooled").into_iter().map(f32::from_le_bytes).collect())
}

#[test]
fn vectors_are_those_of_the_goldens() {
    for model in ["embedding-last", "embedding-last-bf16.gguf", "embedding-mean", "embedding-mean-bf16.gguf"]
    {
        let (ids, vector) = expected(&format!("{}/golden.safetensors", model.trim_end_matches("-bf16.gguf")));
        // As the reference computes.
        let exact = ["--activations", "f32"];
        let found =
            gannet(&[&["embed", &golden(model), "--ids", &ids, "--json"], &exact[..]].concat()).json();
        assert_eq!(found["dimensions"], vector.len());
        let found = numbers(&found["embeddings"][0]["vector"]);
        let largest = vector.iter().fold(0.0f32, |largest, x| largest.max(x.abs()));
        for (found, expected) in found.iter().zip(&vector) {
            assert!((found - f64::from(*expected)).abs() <= f64::from(1e-4 * largest), "{model}");
        }
    }
}

#[test]
fn texts_come_from_arguments_or_lines_and_keep_their_order() {
    let folder = tempfile::tempdir().unwrap();
    let toy = write_toy(&folder.path().join("toy.gguf"), &[]);
    let file = folder.path().join("lines.txt");
    fs::write(&file, "the hen\n\nwent there, and then it came back again\nno\n").unwrap();
    let common = ["--pooling", "mean", "--dimensions", "7"];
    let texts = ["the hen", "went there, and then it came back again", "no"];
    let lines =
        gannet(&[&["embed", &toy, "--file", file.to_str().unwrap()], &common[..]].concat()).succeeded();
    let together = gannet(&[&["embed", &toy], &texts[..], &common[..]].concat()).succeeded();
    let each = texts.map(|text| gannet(&[&["embed", &toy, text], &common[..]].concat()).succeeded());
    assert_eq!(lines, together);
    assert_eq!(lines, each.concat());
    for line in lines.lines() {
        let vector = numbers(&serde_json::from_str(line).unwrap());
        assert_eq!(vector.len(), 7);
        assert!((vector.iter().map(|x| x * x).sum::<f64>() - 1.0).abs() < 1e-5);
    }
}

#[test]
fn what_can_not_be_embedded_is_refused_with_the_numbers() {
    let model = golden("embedding-mean");
    let long = vec!["5"; 600].join(",");
    gannet(&["embed", &model, "--ids", &long]).failed(1, &["text 1", "600 tokens", "512"]);
    gannet(&["embed", &model, "--ids", "1,2", "--dimensions", "25"]).failed(1, &["25 dimensions", "1 to 24"]);
    gannet(&["embed", &model, "some text"]).failed(1, &["holds no tokenizer"]);
    gannet(&["embed", &golden("llama"), "--ids", "1,2"]).failed(1, &["llama", "choose a pooling"]);
    gannet(&["run", &model, "--ids", "1,2"]).failed(1, &["`embed` makes them"]);
}
