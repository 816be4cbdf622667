//! A random checkpoint as a Hugging Face directory: config.json, the tokenizer's files, safetensors in shards.
//!
//! Source: the configurations of transformers; the hybrids come as their text models alone.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write;
use std::path::Path;

use anyhow::{Context, Result};
use gannet_tensor::Format;
use serde_json::{Map, Value, json};

use super::mixture::Mixture;
use super::pipeline::{self, Encoded};
use super::shapes::{Delta, Family, Shape};
use super::tokenizer::{Special, Tokenizer};
use super::vocabulary;
use super::weights::{self, Dialect, Llama3Scaling};

/// At most so many bytes of tensors are a shard.
const SHARD_BYTES: usize = 5_000_000_000;

/// Writes the directory; the bytes of its tensors.
pub(super) fn write(shape: &Shape, mixture: Mixture, seed: u64, directory: &Path) -> Result<u64> {
    let format = mixture.float()?;
    let weights = weights::list(shape, Dialect::HuggingFace);
    let formats = vec![format; weights.len()];
    let tensors = pipeline::encode(weights, &formats)?;
    fs::create_dir_all(directory).with_context(|| format!("cannot make `{}`", directory.display()))?;
    write_json(directory, "config.json", &config(shape, format))?;
    write_json(directory, "generation_config.json", &generation_config(shape.tokenizer))?;
    write_json(directory, "tokenizer.json", &tokenizer(shape))?;
    write_json(directory, "tokenizer_config.json", &tokenizer_config(shape))?;
    write_shards(directory, &tensors, seed, SHARD_BYTES)
}

fn write_json(directory: &Path, name: &str, value: &Value) -> Result<()> {
    let path = directory.join(name);
    fs::write(&path, format!("{value:#}\n")).with_context(|| format!("cannot write `{}`", path.display()))
}

fn write_shards(directory: &Path, tensors: &[Encoded], seed: u64, shard_bytes: usize) -> Result<u64> {
    let shards = shards(tensors, shard_bytes);
    let mut places = Map::new();
    let mut written = 0;
    for (index, shard) in shards.iter().enumerate() {
        let name = match shards.len() {
            1 => "model.safetensors".to_owned(),
            count => format!("model-{:05}-of-{count:05}.safetensors", index + 1),
        };
        let path = directory.join(&name);
        let mut file = File::create(&path).with_context(|| format!("cannot write `{}`", path.display()))?;
        file.write_all(&header(shard))?;
        written += pipeline::stream(shard, seed, &mut |bytes| {
            file.write_all(bytes).with_context(|| format!("cannot write `{}`", path.display()))
        })?;
        places.extend(shard.iter().map(|tensor| (tensor.weight.name.clone(), json!(name))));
    }
    if shards.len() > 1 {
        let index = json!({"metadata": {"total_size": written}, "weight_map": places});
        write_json(directory, "model.safetensors.index.json", &index)?;
    }
    Ok(written)
}

/// Runs of tensors, each of at most `shard_bytes`, or of one tensor.
fn shards(tensors: &[Encoded], shard_bytes: usize) -> Vec<&[Encoded]> {
    let mut shards = Vec::new();
    let (mut start, mut bytes) = (0, 0);
    for (index, tensor) in tensors.iter().enumerate() {
        if bytes > 0 && bytes + tensor.bytes() > shard_bytes {
            shards.push(&tensors[start..index]);
            (start, bytes) = (index, 0);
        }
        bytes += tensor.bytes();
    }
    shards.push(&tensors[start..]);
    shards
}

/// The header of a safetensors file, padded with spaces so that the data is aligned to 8 bytes.
fn header(tensors: &[Encoded]) -> Vec<u8> {
    let mut entries = Map::new();
    entries.insert("__metadata__".to_owned(), json!({"format": "pt"}));
    let mut offset = 0;
    for tensor in tensors {
        let end = offset + tensor.bytes();
        let dtype = dtypes(tensor.format).0;
        let entry = json!({"dtype": dtype, "shape": tensor.weight.shape, "data_offsets": [offset, end]});
        entries.insert(tensor.weight.name.clone(), entry);
        offset = end;
    }
    let mut text = Value::Object(entries).to_string();
    while !text.len().is_multiple_of(8) {
        text.push(' ');
    }
    let mut bytes = (text.len() as u64).to_le_bytes().to_vec();
    bytes.extend(text.bytes());
    bytes
}

/// The names of a format in safetensors and in config.json.
fn dtypes(format: Format) -> (&'static str, &'static str) {
    let known = [(Format::F32, ("F32", "float32")), (Format::F16, ("F16", "float16"))];
    known.iter().find(|(known, _)| *known == format).map_or(("BF16", "bfloat16"), |(_, names)| *names)
}

/// The value of `architectures` and `model_type`.
fn names(family: Family) -> (&'static str, &'static str) {
    match family {
        Family::Llama => ("LlamaForCausalLM", "llama"),
        Family::Qwen2 => ("Qwen2ForCausalLM", "qwen2"),
        Family::Qwen2Moe => ("Qwen2MoeForCausalLM", "qwen2_moe"),
        Family::Qwen3 => ("Qwen3ForCausalLM", "qwen3"),
        Family::Qwen3Moe => ("Qwen3MoeForCausalLM", "qwen3_moe"),
        Family::Qwen35 => ("Qwen3_5ForCausalLM", "qwen3_5_text"),
        Family::Qwen35Moe => ("Qwen3_5MoeForCausalLM", "qwen3_5_moe_text"),
    }
}

fn config(shape: &Shape, format: Format) -> Value {
    let (architecture, model_type) = names(shape.family);
    let mut keys = BTreeMap::from([
        ("architectures", json!([architecture])),
        ("model_type", json!(model_type)),
        ("torch_dtype", json!(dtypes(format).1)),
        ("vocab_size", json!(shape.vocabulary)),
        ("hidden_size", json!(shape.width)),
        ("num_hidden_layers", json!(shape.layers)),
        ("num_attention_heads", json!(shape.heads)),
        ("num_key_value_heads", json!(shape.kv_heads)),
        ("head_dim", json!(shape.head_dim)),
        ("hidden_act", json!("silu")),
        ("max_position_embeddings", json!(shape.context)),
        ("rms_norm_eps", decimal(shape.epsilon)),
        ("tie_word_embeddings", json!(shape.tied)),
        ("attention_bias", json!(false)),
        ("bos_token_id", json!(shape.tokenizer.bos)),
        ("eos_token_id", json!(shape.tokenizer.eos)),
        ("initializer_range", json!(0.02)),
        ("use_cache", json!(true)),
    ]);
    if shape.feed_forward > 0 {
        keys.insert("intermediate_size", json!(shape.feed_forward));
    }
    keys.extend(family_keys(shape));
    json!(keys)
}

/// The keys of some families only.
fn family_keys(shape: &Shape) -> Vec<(&'static str, Value)> {
    let mut keys = Vec::new();
    match shape.delta {
        Some(delta) => keys.extend(delta_keys(shape, &delta)),
        None => keys.push(("rope_theta", decimal(shape.theta))),
    }
    if shape.family == Family::Llama {
        keys.push(("rope_scaling", llama3_scaling()));
    } else if shape.delta.is_none() {
        keys.push(("use_sliding_window", json!(false)));
    }
    if let Some(experts) = shape.experts {
        keys.extend([
            ("num_experts", json!(experts.count)),
            ("num_experts_per_tok", json!(experts.top_k)),
            ("moe_intermediate_size", json!(experts.width)),
            ("norm_topk_prob", json!(experts.renormalise)),
            ("decoder_sparse_step", json!(1)),
            ("mlp_only_layers", json!([])),
        ]);
        keys.extend(experts.shared.map(|width| ("shared_expert_intermediate_size", json!(width))));
    }
    keys
}

fn llama3_scaling() -> Value {
    let scaling = Llama3Scaling::LLAMA_3_1;
    json!({
        "rope_type": "llama3",
        "factor": scaling.factor,
        "low_freq_factor": scaling.low_frequency,
        "high_freq_factor": scaling.high_frequency,
        "original_max_position_embeddings": scaling.original_context,
    })
}

fn delta_keys(shape: &Shape, delta: &Delta) -> Vec<(&'static str, Value)> {
    let kind = |layer| if shape.is_recurrent(layer) { "linear_attention" } else { "full_attention" };
    let kinds: Vec<&str> = (0..shape.layers).map(kind).collect();
    vec![
        ("linear_conv_kernel_dim", json!(Delta::KERNEL)),
        ("linear_key_head_dim", json!(Delta::HEAD_DIM)),
        ("linear_value_head_dim", json!(Delta::HEAD_DIM)),
        ("linear_num_key_heads", json!(delta.key_heads)),
        ("linear_num_value_heads", json!(delta.value_heads)),
        ("full_attention_interval", json!(Delta::INTERVAL)),
        ("layer_types", json!(kinds)),
        ("attn_output_gate", json!(true)),
        (
            "rope_parameters",
            json!({
                "rope_type": "default",
                "rope_theta": decimal(shape.theta),
                "partial_rotary_factor": 0.25,
                "mrope_interleaved": true,
                "mrope_section": [11, 11, 10],
            }),
        ),
    ]
}

/// The number with the digits that it was written with: 1e-6, and not the single-precision number next to it.
fn decimal(number: f32) -> Value {
    let digits = format!("{number:?}");
    json!(digits.parse::<f64>().expect("a printed number is a number"))
}

fn generation_config(tokenizer: &Tokenizer) -> Value {
    json!({
        "bos_token_id": tokenizer.bos,
        "eos_token_id": tokenizer.eos,
        "pad_token_id": tokenizer.pad,
        "do_sample": false,
    })
}

fn tokenizer(shape: &Shape) -> Value {
    let Tokenizer { words, composes, ignores_merges, special, .. } = *shape.tokenizer;
    let vocabulary = vocabulary::build(shape.tokenizer, shape.vocabulary);
    let ids: Map<String, Value> =
        vocabulary.tokens.into_iter().enumerate().map(|(id, token)| (token, json!(id))).collect();
    let merges: Vec<String> =
        vocabulary.merges.iter().map(|[left, right]| format!("{left} {right}")).collect();
    let bytes =
        json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false, "use_regex": false});
    let split =
        json!({"type": "Split", "pattern": {"Regex": words}, "behavior": "Isolated", "invert": false});
    json!({
        "version": "1.0",
        "truncation": null,
        "padding": null,
        "added_tokens": special.iter().map(added_token).collect::<Vec<_>>(),
        "normalizer": composes.then(|| json!({"type": "NFC"})),
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [split, bytes]},
        "post_processor": post_processor(shape.tokenizer, &bytes),
        "decoder": bytes,
        "model": {
            "type": "BPE",
            "dropout": null,
            "unk_token": null,
            "continuing_subword_prefix": null,
            "end_of_word_suffix": null,
            "fuse_unk": false,
            "byte_fallback": false,
            "ignore_merges": ignores_merges,
            "vocab": ids,
            "merges": merges,
        },
    })
}

/// Puts the beginning of text before a prompt where the model wants it.
fn post_processor(tokenizer: &Tokenizer, bytes: &Value) -> Value {
    if !tokenizer.adds_bos {
        return bytes.clone();
    }
    let bos = text_of(tokenizer, tokenizer.bos);
    let (begin, text) =
        (json!({"SpecialToken": {"id": bos, "type_id": 0}}), json!({"Sequence": {"id": "A", "type_id": 0}}));
    let second = json!({"Sequence": {"id": "B", "type_id": 1}});
    let template = json!({
        "type": "TemplateProcessing",
        "single": [begin, text],
        "pair": [begin, text, second],
        "special_tokens": {bos: {"id": bos, "ids": [tokenizer.bos], "tokens": [bos]}},
    });
    json!({"type": "Sequence", "processors": [bytes, template]})
}

fn text_of(tokenizer: &Tokenizer, id: u32) -> &'static str {
    tokenizer.special(id as usize).expect("bos, eos and padding are special tokens").text
}

fn added_token(special: &Special) -> Value {
    json!({
        "id": special.id,
        "content": special.text,
        "single_word": false,
        "lstrip": false,
        "rstrip": false,
        "normalized": false,
        "special": special.control,
    })
}

fn tokenizer_config(shape: &Shape) -> Value {
    let tokenizer = shape.tokenizer;
    json!({
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": shape.context,
        "bos_token": text_of(tokenizer, tokenizer.bos),
        "eos_token": text_of(tokenizer, tokenizer.eos),
        "pad_token": text_of(tokenizer, tokenizer.pad),
        "add_bos_token": tokenizer.adds_bos,
        "clean_up_tokenization_spaces": false,
        "chat_template": tokenizer.chat_template,
    })
}

#[cfg(test)]
mod tests {
    use gannet_formats::Checkpoint;
    use tempfile::TempDir;

    use super::super::shapes;
    use super::*;

    #[test]
    fn shards_hold_what_one_file_would() {
        let shape = Shape { layers: 1, vocabulary: 512, ..shapes::find("qwen2.5-0.5b").unwrap() };
        let weights = weights::list(&shape, Dialect::HuggingFace);
        let formats = vec![Format::Bf16; weights.len()];
        let tensors = pipeline::encode(weights, &formats).unwrap();
        let write = |shard_bytes| {
            let folder = TempDir::new().unwrap();
            write_json(folder.path(), "config.json", &config(&shape, Format::Bf16)).unwrap();
            write_shards(folder.path(), &tensors, 1, shard_bytes).unwrap();
            let checkpoint = Checkpoint::open(folder.path()).unwrap();
            let mut found = BTreeMap::new();
            for tensor in checkpoint.tensors() {
                found.insert(tensor.name.to_owned(), tensor.bytes().unwrap().into_owned());
            }
            (found, fs::read_dir(folder.path()).unwrap().count())
        };
        let (whole, files) = write(SHARD_BYTES);
        assert_eq!((whole.len(), files), (tensors.len(), 2));
        let (sharded, files) = write(8_000_000);
        assert!(sharded == whole);
        // The three projections of the feed-forward are 8.7 MB each; config.json and the index come on top.
        assert_eq!(files, 5 + 2);
    }
}
