//! Drafters as GGUF files hold them: the same config and the same weights as from the files of their authors.
//!
//! Keys and names are those of the field's converter: taps are counted as layers before the stream that is read, a table
//! of ids is absolute, and rows of queries and keys alternate between the halves of a head where the rope does.

use crate::drafters::{OPTIONS, block_drafter, dense, feature_drafter, open};
use crate::generated::Written;
use crate::toy::rewritten;
use gannet_formats::Checkpoint;
use gannet_formats::gguf::{Array, GgufWriter, Strings, Value};
use gannet_model::{Drafter, ModelConfig, recognise, recognise_drafter};
use gannet_ops::WeightSource;
use gannet_testing::goldens;
use std::fs::File;
use tempfile::TempDir;

const LAYER: [(&str, &str); 12] = [
    ("input_layernorm", "attn_norm"),
    ("hidden_norm", "attn_norm_2"),
    ("self_attn.q_proj", "attn_q"),
    ("self_attn.k_proj", "attn_k"),
    ("self_attn.v_proj", "attn_v"),
    ("self_attn.o_proj", "attn_output"),
    ("self_attn.q_norm", "attn_q_norm"),
    ("self_attn.k_norm", "attn_k_norm"),
    ("post_attention_layernorm", "ffn_norm"),
    ("mlp.gate_proj", "ffn_gate"),
    ("mlp.up_proj", "ffn_up"),
    ("mlp.down_proj", "ffn_down"),
];
const OUTSIDE: [(&str, &str); 5] = [
    ("fc.weight", "fc.weight"),
    ("hidden_norm.weight", "enc.output_norm.weight"),
    ("norm.weight", "output_norm.weight"),
    ("lm_head.weight", "output.weight"),
    ("d2t", "d2t"),
];
const HEAD_DIM: usize = 16;

fn gguf_name(name: &str) -> String {
    if let Some((_, known)) = OUTSIDE.iter().find(|(outside, _)| *outside == name) {
        return (*known).to_owned();
    }
    let (layer, stem) = match name.strip_prefix("layers.") {
        Some(rest) => rest.split_once('.').unwrap(),
        None => ("0", name.strip_prefix("midlayer.").unwrap()),
    };
    let stem = stem.strip_suffix(".weight").unwrap();
    let (_, known) = LAYER.iter().find(|(hub, _)| *hub == stem).unwrap();
    format!("blk.{layer}.{known}.weight")
}

/// Rows of queries or keys from two halves a head to alternating ones.
fn alternating(rows: &[u8], row_bytes: usize) -> Vec<u8> {
    let half = HEAD_DIM / 2 * row_bytes;
    let head = |head: &[u8]| -> Vec<u8> {
        let pairs = head[..half].chunks(row_bytes).zip(head[half..].chunks(row_bytes));
        pairs.flat_map(|(first, second)| [first, second].concat()).collect()
    };
    rows.chunks(2 * half).flat_map(head).collect()
}

/// The drafter of `written` as a GGUF file of this architecture.
fn as_gguf(written: &Written, architecture: &str, entries: &[(&str, Value)]) -> (Checkpoint, TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("drafter.gguf");
    let mut writer = GgufWriter::new(&path);
    writer.push_entry("general.architecture", Value::from(architecture)).unwrap();
    for (key, value) in entries {
        let key =
            if key.starts_with("tokenizer.") { (*key).to_owned() } else { format!("{architecture}.{key}") };
        writer.push_entry(&key, value.clone()).unwrap();
    }
    let is_alternating =
        |name: &str| architecture == "eagle3" && (name.contains("q_proj") || name.contains("k_proj"));
    let tensors = written.checkpoint.tensors().map(|tensor| {
        let bytes = tensor.bytes().unwrap().into_owned();
        let bytes = match tensor.name {
            "d2t" => {
                let offsets = bytes.chunks(8).map(|word| i64::from_le_bytes(word.try_into().unwrap()));
                offsets.zip(0..).flat_map(|(offset, id): (i64, i64)| (offset + id).to_le_bytes()).collect()
            }
            name if is_alternating(name) => alternating(&bytes, tensor.shape[1] * 4),
            _ => bytes,
        };
        (gguf_name(tensor.name), tensor.format, tensor.shape.to_vec(), bytes)
    });
    let tensors: Vec<_> = tensors.collect();
    for (name, format, shape, bytes) in &tensors {
        writer.push_tensor(name, *format, shape, bytes).unwrap();
    }
    writer.write(File::create(&path).unwrap()).unwrap();
    (Checkpoint::open(&path).unwrap(), folder)
}

/// What all drafters of the tests have; the embedding is the target's, so that the tokenizer alone tells its rows.
fn entries(layers: u32) -> Vec<(&'static str, Value)> {
    let tokens: Vec<String> = (0..64).map(|id| format!("t{id}")).collect();
    let tokens: Strings = tokens.iter().map(String::as_str).collect();
    vec![
        ("block_count", Value::U32(layers)),
        ("embedding_length", Value::U32(32)),
        ("feed_forward_length", Value::U32(48)),
        ("context_length", Value::U32(64)),
        ("attention.head_count", Value::U32(4)),
        ("attention.head_count_kv", Value::U32(2)),
        ("attention.key_length", Value::U32(16)),
        ("attention.value_length", Value::U32(16)),
        ("attention.layer_norm_rms_epsilon", Value::F32(1e-6)),
        ("rope.freq_base", Value::F32(1e6)),
        ("rope.dimension_count", Value::U32(16)),
        ("tokenizer.ggml.tokens", Value::Array(Array::String(tokens))),
    ]
}

fn recognised(checkpoint: &Checkpoint) -> Drafter {
    recognise_drafter(checkpoint).unwrap().expect("it is a drafter")
}

/// A GGUF twin is the same drafter, weight for weight.
fn check(written: &Written, twin: &Checkpoint) {
    let (expected, found) = (recognised(&written.checkpoint), recognised(twin));
    assert_eq!(found.kind, expected.kind);
    // A drafter without a head has its target's, so that no file says whether it is tied.
    let tied_head = expected.config.tied_head;
    let config = ModelConfig { tied_head, ..found.config.clone() };
    assert_eq!((&config, &found.taps), (&expected.config, &expected.taps));
    let (target_file, options) = (dense(), OPTIONS);
    let programs = open(&target_file).programs(&found, &options).unwrap();
    let uses = programs.weights();
    let [own, other] =
        [expected.weights(&written.checkpoint, &uses).unwrap(), found.weights(twin, &uses).unwrap()];
    let drafted: Vec<_> = uses.iter().filter(|wanted| wanted.name.starts_with("draft.")).collect();
    assert!(drafted.len() > 10);
    for wanted in drafted {
        let [expected, found] = [&own, &other].map(|weights| weights.weight(&wanted.name).unwrap());
        assert!(expected.bytes == found.bytes && expected.shape == found.shape, "{}", wanted.name);
    }
}

#[test]
fn a_block_drafter_in_gguf_is_the_same_drafter() {
    let written = block_drafter();
    let own = [
        ("block_size", Value::U32(4)),
        ("target_layers", Value::Array(Array::I32(vec![1, 3]))),
        ("tokenizer.ggml.mask_token_id", Value::U32(63)),
    ];
    let (twin, _folder) = as_gguf(&written, "dflash", &[entries(2), own.to_vec()].concat());
    check(&written, &twin);
}

#[test]
fn a_feature_drafter_in_gguf_is_the_same_drafter() {
    let written = feature_drafter();
    let own = [("target_hidden_size", Value::U32(32)), ("norm_before_residual", Value::Bool(false))];
    let (twin, _folder) = as_gguf(&written, "eagle3", &[entries(1), own.to_vec()].concat());
    check(&written, &twin);
    // Where the file names its taps, they are counted as the target's layers before each.
    let taps = [("target_layers", Value::Array(Array::I32(vec![2, 2, 1])))];
    let (named, _folder) = as_gguf(&written, "eagle3", &[entries(1), taps.to_vec()].concat());
    assert_eq!(recognised(&named).taps, [2, 2, 1]);
}

/// The hybrid's GGUF golden, whose fifth block is a head that predicts further tokens.
fn with_head() -> Checkpoint {
    Checkpoint::open(&goldens::folder().join("qwen3_5-bf16.gguf")).unwrap()
}

#[test]
fn a_head_for_further_tokens_has_its_own_embedding_and_head_or_the_models_norm() {
    let whole = with_head();
    let copies = [
        ("blk.4.nextn.embed_tokens.weight", "token_embd.weight"),
        ("blk.4.nextn.shared_head_head.weight", "token_embd.weight"),
    ];
    let is_kept = |name: &str| name != "blk.4.nextn.shared_head_norm.weight";
    let toy = rewritten(&whole, &[], is_kept, &copies);
    let [before, model] = [&whole, &toy.checkpoint].map(|checkpoint| recognise(checkpoint).unwrap());
    let [plain, drafter] = [&before, &model].map(|model| model.drafter.clone().unwrap());
    assert_eq!((plain.own_embedding, plain.own_head), (false, false));
    assert_eq!((drafter.own_embedding, drafter.own_head), (true, true));
    let programs = model.programs(&drafter, &OPTIONS).unwrap();
    let weights = model.weights_of(&toy.checkpoint, &programs.weights()).unwrap();
    assert_eq!((weights.unused(), weights.passed_over()), (vec![], vec![]));
    let same = [
        ("draft.norm.weight", "output_norm.weight"),
        ("draft.embed.weight", "token_embd.weight"),
        ("draft.head.weight", "token_embd.weight"),
    ];
    for (canonical, stored) in same {
        let expected = toy.checkpoint.tensor(stored).unwrap().unwrap().bytes().unwrap();
        assert!(weights.weight(canonical).unwrap().bytes == expected, "{canonical}");
    }
    let two_tables = 2 * before.config.vocabulary * before.config.width;
    let added = drafter.parameters(&model).unwrap() - plain.parameters(&before).unwrap();
    assert_eq!(added, two_tables as u64);
}

#[test]
fn a_head_for_further_tokens_without_one_of_its_tensors_is_refused_by_name() {
    let whole = with_head();
    for stem in ["nextn.eh_proj", "nextn.enorm", "nextn.hnorm", "attn_q", "ffn_down"] {
        let name = format!("blk.4.{stem}.weight");
        let toy = rewritten(&whole, &[], |kept| kept != name, &[]);
        let model = recognise(&toy.checkpoint).unwrap();
        let programs = model.programs(model.drafter.as_ref().unwrap(), &OPTIONS).unwrap();
        let error = model.weights_of(&toy.checkpoint, &programs.weights()).err().unwrap().to_string();
        assert!(error.contains(&format!("tensor `{name}` is missing")), "{error}");
    }
}

#[test]
fn a_head_for_further_tokens_without_its_model_is_recognised_as_a_drafter() {
    let whole = with_head();
    let is_kept = |name: &str| !name.starts_with("blk.") || name.starts_with("blk.4.");
    let toy = rewritten(&whole, &[], is_kept, &[]);
    let model = recognise(&whole).unwrap();
    let (expected, found) = (model.drafter.clone().unwrap(), recognised(&toy.checkpoint));
    assert_eq!((found.kind.name(), &found.config), ("mtp", &expected.config));
    let parameters = found.parameters(&model).unwrap();
    assert_eq!(parameters, expected.parameters(&model).unwrap());
    let uses = model.programs(&found, &OPTIONS).unwrap().weights();
    found.weights(&toy.checkpoint, &uses).unwrap();
    let error = recognise(&toy.checkpoint).unwrap_err().to_string();
    assert!(
        error.contains("`qwen35 without its layers`, a drafter, which runs beside its target"),
        "{error}"
    );
    assert!(recognise_drafter(&whole).unwrap().is_none());
}

#[test]
fn a_drafter_in_gguf_that_cant_run_is_refused_by_key() {
    let refused = |written: &Written, architecture: &str, own: &[(&'static str, Value)], expected: &str| {
        let (twin, _folder) = as_gguf(written, architecture, &[entries(1), own.to_vec()].concat());
        let error = recognise_drafter(&twin).unwrap_err().to_string();
        assert!(error.contains(expected) && error.contains("drafter.gguf"), "{error}\nexpected: {expected}");
    };
    let block = block_drafter();
    let taps = ("target_layers", Value::Array(Array::I32(vec![1, 3])));
    let mask = ("tokenizer.ggml.mask_token_id", Value::U32(63));
    refused(&block, "dflash", std::slice::from_ref(&mask), "dflash.target_layers");
    refused(&block, "dflash", std::slice::from_ref(&taps), "mask_token_id");
    refused(
        &block,
        "dflash",
        &[taps.clone(), mask.clone(), ("conv_kernel_size", Value::U32(2))],
        "conv_kernel_size",
    );
    let head = feature_drafter();
    refused(&head, "dflash", &[taps, mask], "`output.weight`");
    refused(&head, "eagle3", &[("norm_before_fc", Value::Bool(true))], "norm_before_fc");
}
