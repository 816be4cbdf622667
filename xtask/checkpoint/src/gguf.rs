//! A random checkpoint as one GGUF file: the keys of each architecture, the vocabulary, the tensors.
//!
//! Source: the converter of llama.cpp, and what its loader asks for.

use std::fs::File;
use std::path::Path;

use anyhow::{Context, Result};
use gannet_formats::gguf::{GgufLayout, Strings, Value};

use super::mixture::Mixture;
use super::pipeline;
use super::shapes::{Delta, Experts, Family, Shape};
use super::vocabulary;
use super::weights::{self, Dialect};

/// Kinds of tokens.
const NORMAL: i32 = 1;
const CONTROL: i32 = 3;
const USER_DEFINED: i32 = 4;

/// The version of the formats of blocks.
const QUANTIZATION_VERSION: u32 = 2;

/// How a hybrid's rope gives its pairs of dimensions to time, height and width.
const ROPE_SECTIONS: [i32; 4] = [11, 11, 10, 0];

/// Writes the file; the bytes of its tensors.
pub(super) fn write(shape: &Shape, mixture: Mixture, seed: u64, path: &Path) -> Result<u64> {
    let weights = weights::list(shape, Dialect::Gguf);
    let formats = mixture.formats(&weights, shape);
    let tensors = pipeline::encode(weights, &formats)?;
    let mut layout = GgufLayout::new(path);
    for (key, value) in
        general_keys(shape, mixture).into_iter().chain(model_keys(shape)).chain(token_keys(shape))
    {
        layout.push_entry(&key, value)?;
    }
    for tensor in &tensors {
        layout.declare_tensor(&tensor.weight.name, tensor.format, &tensor.weight.shape)?;
    }
    let file = File::create(path).with_context(|| format!("cannot write `{}`", path.display()))?;
    let mut stream = layout.begin(file)?;
    let written = pipeline::stream(&tensors, seed, &mut |bytes| Ok(stream.write(bytes)?))?;
    stream.finish()?;
    Ok(written)
}

type Entry = (String, Value);

fn general_keys(shape: &Shape, mixture: Mixture) -> Vec<Entry> {
    let mut keys = vec![
        entry("general.architecture", architecture(shape.family)),
        entry("general.type", "model"),
        entry("general.name", format!("{} with random weights", shape.name)),
    ];
    keys.extend(mixture.file_type().map(|number| entry("general.file_type", number)));
    keys.extend(mixture.is_quantised().then(|| entry("general.quantization_version", QUANTIZATION_VERSION)));
    keys
}

fn architecture(family: Family) -> &'static str {
    match family {
        Family::Llama => "llama",
        Family::Qwen2 => "qwen2",
        Family::Qwen2Moe => "qwen2moe",
        Family::Qwen3 => "qwen3",
        Family::Qwen3Moe => "qwen3moe",
        Family::Qwen35 => "qwen35",
        Family::Qwen35Moe => "qwen35moe",
    }
}

/// The keys below the architecture's name.
fn model_keys(shape: &Shape) -> Vec<Entry> {
    let mut keys = vec![
        entry("block_count", size(shape.layers)),
        entry("context_length", size(shape.context)),
        entry("embedding_length", size(shape.width)),
        entry("attention.head_count", size(shape.heads)),
        entry("attention.head_count_kv", size(shape.kv_heads)),
        entry("attention.key_length", size(shape.head_dim)),
        entry("attention.value_length", size(shape.head_dim)),
        entry("attention.layer_norm_rms_epsilon", shape.epsilon),
        entry("rope.freq_base", shape.theta),
        entry("rope.dimension_count", size(shape.rotated())),
        entry("vocab_size", size(shape.vocabulary)),
    ];
    if shape.feed_forward > 0 {
        keys.push(entry("feed_forward_length", size(shape.feed_forward)));
    }
    keys.extend(shape.experts.iter().flat_map(expert_keys));
    keys.extend(shape.delta.iter().flat_map(delta_keys));
    let prefix = architecture(shape.family);
    keys.into_iter().map(|(key, value)| (format!("{prefix}.{key}"), value)).collect()
}

fn expert_keys(experts: &Experts) -> Vec<Entry> {
    let mut keys = vec![
        entry("expert_count", size(experts.count)),
        entry("expert_used_count", size(experts.top_k)),
        entry("expert_feed_forward_length", size(experts.width)),
    ];
    keys.extend(experts.shared.map(|width| entry("expert_shared_feed_forward_length", size(width))));
    keys
}

fn delta_keys(delta: &Delta) -> Vec<Entry> {
    vec![
        entry("rope.dimension_sections", ROPE_SECTIONS.to_vec()),
        entry("ssm.conv_kernel", size(Delta::KERNEL)),
        entry("ssm.state_size", size(Delta::HEAD_DIM)),
        entry("ssm.group_count", size(delta.key_heads)),
        entry("ssm.time_step_rank", size(delta.value_heads)),
        entry("ssm.inner_size", size(delta.value_width())),
        entry("full_attention_interval", size(Delta::INTERVAL)),
    ]
}

fn token_keys(shape: &Shape) -> Vec<Entry> {
    let tokenizer = shape.tokenizer;
    let vocabulary = vocabulary::build(tokenizer, shape.vocabulary);
    let kind = |id| match tokenizer.special(id) {
        Some(special) if special.control => CONTROL,
        Some(_) => USER_DEFINED,
        None => NORMAL,
    };
    let kinds: Vec<i32> = (0..shape.vocabulary).map(kind).collect();
    let mut merges = Strings::default();
    for [left, right] in &vocabulary.merges {
        merges.push(&format!("{left} {right}"));
    }
    vec![
        entry("tokenizer.ggml.model", "gpt2"),
        entry("tokenizer.ggml.pre", tokenizer.pre),
        entry("tokenizer.ggml.tokens", vocabulary.tokens.iter().map(String::as_str).collect::<Strings>()),
        entry("tokenizer.ggml.token_type", kinds),
        entry("tokenizer.ggml.merges", merges),
        entry("tokenizer.ggml.bos_token_id", tokenizer.bos),
        entry("tokenizer.ggml.eos_token_id", tokenizer.eos),
        entry("tokenizer.ggml.padding_token_id", tokenizer.pad),
        entry("tokenizer.ggml.add_bos_token", tokenizer.adds_bos),
        entry("tokenizer.chat_template", tokenizer.chat_template),
    ]
}

fn entry(key: &str, value: impl Into<Value>) -> Entry {
    (key.to_owned(), value.into())
}

/// A size as GGUF has it.
fn size(number: usize) -> u32 {
    number.try_into().expect("the sizes in the table of shapes are small")
}
