//! Vectors of texts, through the loader and the engine: those of the goldens, whatever else runs.

use crossbeam_channel::unbounded;
use gannet_backend_cpu::{ActivationFormat, CpuBackend, CpuOptions};
use gannet_engine::{
    EmbedError, Embedding, EmbeddingRequest, EngineHandle, EngineOptions, Request, SubmitError,
};
use gannet_loader::{LoadError, LoadOptions, Purpose, Running, load, start};
use gannet_ops::{KvFormat, PoolKind, TokenId};
use gannet_testing::goldens::{self, Golden};
use std::fs;
use std::path::Path;
use std::sync::Arc;

const VECTORS: LoadOptions = LoadOptions {
    memory: None,
    context: Some(256),
    step_rows: None,
    sequences: Some(8),
    fewer_sequences: false,
    kv_format: Some(KvFormat::F32),
    rope_scaling: None,
    force_context: false,
    purpose: Purpose::Vectors { pooling: None },
    drafts: 0,
    random_weights: None,
};

/// How far an element may be from the reference's, as a part of the largest.
const TOLERANCE: f32 = 1e-4;

fn engine(model: &Path, options: &LoadOptions, step_rows: Option<usize>) -> EngineHandle {
    // As the reference computes.
    let exact = CpuOptions { activations: ActivationFormat::Float32, ..CpuOptions::default() };
    let backend = CpuBackend::new(exact).expect("the CPU is supported");
    let loaded = load(model, &backend, options, &|_| ()).expect("the golden loads");
    let options = EngineOptions { sequences: 8, step_rows, ..EngineOptions::default() };
    let Running { handle, .. } = start(loaded.runner, options).expect("a thread can be had");
    handle
}

fn embed_all(handle: &EngineHandle, texts: &[Vec<TokenId>], dimensions: Option<usize>) -> Vec<Embedding> {
    let (sink, results) = unbounded();
    let sink = Arc::new(sink);
    let submit = |tokens: &Vec<TokenId>| {
        let request =
            EmbeddingRequest { dimensions, ..EmbeddingRequest::whole(tokens.clone(), sink.clone()) };
        handle.embed(request).expect("the request is valid")
    };
    let ids: Vec<_> = texts.iter().map(submit).collect();
    let mut found: Vec<_> = ids.iter().map(|_| results.recv().expect("each request has a result")).collect();
    found.sort_by_key(|(id, _)| *id);
    assert_eq!(found.iter().map(|(id, _)| *id).collect::<Vec<_>>(), ids);
    found.into_iter().map(|(_, result)| result.expect("nothing goes wrong")).collect()
}

fn embed(handle: &EngineHandle, tokens: &[TokenId]) -> Embedding {
    embed_all(handle, &[tokens.to_vec()], None).remove(0)
}

fn pooled() -> Vec<(Golden, Vec<f32>)> {
    let all = goldens::all().into_iter();
    let pooled: Vec<_> =
        all.filter_map(|golden| golden.pooled.clone().map(|vector| (golden, vector))).collect();
    assert!(pooled.len() >= 4, "two models, each in two containers");
    pooled
}

fn check_close(name: &str, found: &[f32], expected: &[f32]) {
    assert_eq!(found.len(), expected.len(), "{name}");
    let largest = expected.iter().fold(0.0f32, |largest, x| largest.max(x.abs()));
    for (place, (found, expected)) in found.iter().zip(expected).enumerate() {
        assert!(
            (found - expected).abs() <= TOLERANCE * largest,
            "{name}: element {place} is {found}, not {expected}"
        );
    }
}

fn ids(seed: u32, length: u32) -> Vec<TokenId> {
    (0..length).map(|n| TokenId((seed * 89 + n * n * 7 + n * 13 + 3) % 128)).collect()
}

#[test]
fn vectors_are_those_of_the_reference() {
    for (golden, expected) in pooled() {
        let handle = engine(&golden.model, &VECTORS, None);
        assert_eq!(handle.vector_width(), Some(expected.len()), "{}", golden.name);
        let Embedding { vector, usage } = embed(&handle, &golden.ids);
        check_close(&golden.name, &vector, &expected);
        assert_eq!((usage.prompt_tokens, usage.generated_tokens), (golden.ids.len() as u32, 0));
    }
}

#[test]
fn a_vector_depends_on_its_text_alone() {
    for (golden, _) in pooled() {
        let alone = embed(&engine(&golden.model, &VECTORS, None), &golden.ids).vector;
        for step_rows in [None, Some(1), Some(7), Some(64), Some(65)] {
            let handle = engine(&golden.model, &VECTORS, step_rows);
            let mut texts: Vec<_> = (0..12).map(|n| ids(n, 1 + n * 17)).collect();
            texts.insert(5, golden.ids.clone());
            texts.push(golden.ids.clone());
            let found = embed_all(&handle, &texts, None);
            for place in [5, texts.len() - 1] {
                assert_eq!(found[place].vector, alone, "{}: with steps of {step_rows:?}", golden.name);
            }
        }
    }
}

#[test]
fn the_prefix_cache_serves_models_that_read_in_chunks_alone() {
    for (golden, _) in pooled() {
        let handle = engine(&golden.model, &VECTORS, None);
        let text = ids(3, 200);
        let (first, second) = (embed(&handle, &text), embed(&handle, &text));
        assert_eq!(first.vector, second.vector, "{}", golden.name);
        let expected = if golden.name.starts_with("embedding-last") { 199 } else { 0 };
        assert_eq!(second.usage.reused_tokens, expected, "{}", golden.name);
    }
}

#[test]
fn fewer_dimensions_are_the_first_ones_at_unit_length() {
    let (golden, expected) = pooled().remove(0);
    let handle = engine(&golden.model, &VECTORS, None);
    let found = embed_all(&handle, std::slice::from_ref(&golden.ids), Some(5)).remove(0).vector;
    let length = expected[..5].iter().map(|x| x * x).sum::<f32>().sqrt();
    let expected: Vec<f32> = expected[..5].iter().map(|x| x / length).collect();
    check_close("five dimensions", &found, &expected);
}

#[test]
fn a_pooling_is_chosen_where_the_files_name_none() {
    let folder = goldens::folder().join("embedding-last");
    let plain = tempfile::tempdir().expect("a folder can be made");
    for file in ["config.json", "model.safetensors"] {
        fs::copy(folder.join(file), plain.path().join(file)).expect("a file can be copied");
    }
    let (golden, expected) =
        pooled().into_iter().find(|(golden, _)| golden.model == folder).expect("the golden is committed");
    let with = |pooling| LoadOptions { purpose: Purpose::Vectors { pooling }, ..VECTORS };
    let handle = engine(plain.path(), &with(Some(PoolKind::Last)), None);
    check_close("chosen", &embed(&handle, &golden.ids).vector, &expected);
    // A text of one token has one row, whichever counts.
    let by = |kind| embed(&engine(plain.path(), &with(Some(kind)), None), &ids(1, 1)).vector;
    assert_eq!(by(PoolKind::Mean), by(PoolKind::Last));
    assert_eq!(by(PoolKind::First), by(PoolKind::Last));
    let backend = CpuBackend::new(CpuOptions::default()).expect("the CPU is supported");
    let error = load(plain.path(), &backend, &with(None), &|_| ()).err().expect("no pooling is named");
    assert!(matches!(error, LoadError::NoPooling { family: "qwen3" }), "{error}");
}

#[test]
fn what_can_not_be_embedded_is_refused_with_the_numbers() {
    let options = LoadOptions { step_rows: Some(20), ..VECTORS };
    let handle = engine(&goldens::folder().join("embedding-mean"), &options, None);
    let check = |tokens: Vec<TokenId>, dimensions, expected: EmbedError| {
        let (sink, _results) = unbounded();
        let request = EmbeddingRequest { dimensions, ..EmbeddingRequest::whole(tokens, Arc::new(sink)) };
        assert_eq!(handle.embed(request).expect_err("it is refused"), expected);
    };
    check(Vec::new(), None, EmbedError::Empty);
    check(ids(1, 21), None, EmbedError::LongerThanStep { tokens: 21, limit: 20 });
    check(ids(1, 257), None, EmbedError::TooLong { tokens: 257, limit: 256 });
    check(ids(1, 3), Some(25), EmbedError::WrongDimensions { asked: 25, width: 24 });
    check(ids(1, 3), Some(0), EmbedError::WrongDimensions { asked: 0, width: 24 });
    check(vec![TokenId(160)], None, EmbedError::UnknownToken { id: 160, vocabulary: 160 });
    assert_eq!(embed(&handle, &ids(1, 20)).vector.len(), 24);
    let (sink, _events) = unbounded();
    let refused = handle.submit(Request::greedy(ids(1, 3), 1, Arc::new(sink)));
    assert_eq!(refused, Err(SubmitError::MakesVectors));
}

#[test]
fn a_model_is_refused_what_it_was_not_loaded_for() {
    let text = LoadOptions { purpose: Purpose::Text, ..VECTORS };
    let handle = engine(&goldens::folder().join("qwen3"), &text, None);
    assert_eq!(handle.vector_width(), None);
    let (sink, _results) = unbounded();
    let refused = handle.embed(EmbeddingRequest::whole(ids(1, 3), Arc::new(sink)));
    assert_eq!(refused, Err(EmbedError::MakesText));
    let backend = CpuBackend::new(CpuOptions::default()).expect("the CPU is supported");
    let error = load(&goldens::folder().join("embedding-mean"), &backend, &text, &|_| ());
    let error = error.err().expect("it makes vectors").to_string();
    assert!(error.contains("`embed` makes them"), "{error}");
}

#[test]
fn a_text_fills_the_whole_context() {
    let options = LoadOptions { context: Some(30), ..VECTORS };
    for (golden, _) in pooled() {
        let handle = engine(&golden.model, &options, None);
        let full = embed(&handle, &ids(2, 30)).vector;
        assert_eq!(
            full,
            embed(&engine(&golden.model, &VECTORS, None), &ids(2, 30)).vector,
            "{}",
            golden.name
        );
    }
}
