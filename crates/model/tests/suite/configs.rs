//! Configs in both kinds of file become the config of the right family, or an error that names the key.

use crate::toy::{edited, entries, gguf, hugging_face};
use gannet_formats::Checkpoint;
use gannet_formats::gguf::{Array, Value as Entry};
use gannet_model::{
    Activation, AttentionConfig, FeedForward, GatedConfig, LayerConfig, LayerNorms, Mixer, Model,
    QueryKeyNorm, RopeConfig, RopeIndex, RopeScaling, recognise,
};
use gannet_ops::TokenId;
use gannet_testing::goldens;
use serde_json::{Value, json};

fn from_config(config: &Value) -> Model {
    recognise(&hugging_face(config, &[]).checkpoint).unwrap()
}

pub(crate) fn from_gguf(architecture: &str, edits: &[(&str, Option<Entry>)]) -> Result<Model, String> {
    let toy = gguf(&edited(entries(architecture), edits), &[("token_embd.weight", &[10, 8])]);
    recognise(&toy.checkpoint).map_err(|error| error.to_string())
}

fn attention(layer: &LayerConfig) -> &AttentionConfig {
    let Mixer::Attention(attention) = &layer.mixer else { panic!("the layer is no attention") };
    attention
}

fn gated(layer: &LayerConfig) -> GatedConfig {
    let FeedForward::Gated(gated) = &layer.feed_forward else { panic!("the layer has experts") };
    *gated
}

fn windows(model: &Model) -> Vec<Option<u32>> {
    model.config.layers.iter().map(|layer| attention(layer).window).collect()
}

/// The object with the other's keys put in.
pub(crate) fn with(mut object: Value, other: Value) -> Value {
    let other = other.as_object().unwrap().clone();
    object.as_object_mut().unwrap().extend(other);
    object
}

pub(crate) fn llama() -> Value {
    json!({ "architectures": ["LlamaForCausalLM"], "model_type": "llama", "tie_word_embeddings": true,
            "vocab_size": 100, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 3,
            "num_attention_heads": 4, "num_key_value_heads": 2, "rms_norm_eps": 1e-5 })
}

#[test]
fn absent_keys_have_the_defaults_of_the_reference() {
    // Architecture; vocabulary, width, feed-forward, layers, heads, kv heads, head width, context, tied; first window.
    type Sizes = (usize, usize, usize, usize, usize, usize, usize, usize, bool);
    let cases: [(&str, Sizes, Option<u32>); 5] = [
        ("LlamaForCausalLM", (32000, 4096, 11008, 32, 32, 32, 128, 2048, false), None),
        ("MistralForCausalLM", (32000, 4096, 14336, 32, 32, 8, 128, 131072, false), Some(4096)),
        ("Qwen2ForCausalLM", (151936, 4096, 22016, 32, 32, 32, 128, 32768, false), None),
        ("Qwen3ForCausalLM", (151936, 4096, 22016, 32, 32, 32, 128, 32768, false), None),
        ("Gemma3ForCausalLM", (262208, 2304, 9216, 26, 8, 4, 256, 131072, true), Some(4096)),
    ];
    for (architecture, expected, window) in cases {
        let mut config = json!({ "architectures": [architecture] });
        if !expected.8 {
            config["tie_word_embeddings"] = json!(false);
        }
        let config = from_config(&config).config;
        let (first, gated) = (attention(&config.layers[0]), gated(&config.layers[0]));
        let sizes = (config.vocabulary, config.width, gated.width, config.layers.len());
        let heads = (first.heads, first.kv_heads, first.head_dim, config.context_length, config.tied_head);
        let found = (sizes.0, sizes.1, sizes.2, sizes.3, heads.0, heads.1, heads.2, heads.3, heads.4);
        assert_eq!((found, first.window), (expected, window), "{architecture}");
        assert_eq!(config.norm_epsilon, 1e-6, "{architecture}");
    }
}

/// Folders and the GGUF files that hold the same weights without loss.
pub(crate) const EXACT_TWINS: [(&str, &str); 18] = [
    ("llama", "llama-f32.gguf"),
    ("llama-rope-yarn", "llama-rope-yarn-bf16.gguf"),
    ("qwen2", "qwen2-f16.gguf"),
    ("qwen3", "qwen3-bf16.gguf"),
    ("gemma3", "gemma3-f16.gguf"),
    ("qwen2-moe", "qwen2-moe-f16.gguf"),
    ("qwen3-moe", "qwen3-moe-bf16.gguf"),
    ("mixtral", "mixtral-bf16.gguf"),
    ("qwen3-next", "qwen3-next-bf16.gguf"),
    ("gemma2", "gemma2-f16.gguf"),
    ("phi3", "phi3-bf16.gguf"),
    ("granite", "granite-bf16.gguf"),
    ("smollm3", "smollm3-bf16.gguf"),
    ("olmo2", "olmo2-f16.gguf"),
    ("glm4", "glm4-bf16.gguf"),
    ("gpt-oss", "gpt-oss-bf16.gguf"),
    ("embedding-last", "embedding-last-bf16.gguf"),
    ("embedding-mean", "embedding-mean-bf16.gguf"),
];

#[test]
fn gguf_twins_have_the_config_of_their_folders() {
    for (folder, twin) in EXACT_TWINS {
        let config =
            |name| recognise(&Checkpoint::open(&goldens::folder().join(name)).unwrap()).unwrap().config;
        assert_eq!(config(folder), config(twin), "{twin}");
    }
}

#[test]
fn llama3_divisors_of_gguf_are_those_of_the_config() {
    let table = |name| {
        let checkpoint = Checkpoint::open(&goldens::folder().join(name)).unwrap();
        recognise(&checkpoint).unwrap().config.ropes[0].table(512).inverse_frequencies
    };
    let (config, divisors) = (table("llama-rope-llama3"), table("llama-rope-llama3-bf16.gguf"));
    for (pair, (config, divisors)) in config.iter().zip(&divisors).enumerate() {
        assert!((config - divisors).abs() < 1e-6 * config, "pair {pair}: {config} and {divisors}");
    }
}

#[test]
fn nested_text_config_counts_and_its_window_layers_have_their_own_rope() {
    let config = json!({
        "architectures": ["Gemma3ForConditionalGeneration"], "model_type": "gemma3", "eos_token_id": [1, 106],
        "text_config": { "hidden_size": 2560, "intermediate_size": 10240, "num_hidden_layers": 12,
                         "sliding_window": 1024, "rope_scaling": { "factor": 8.0, "rope_type": "linear" } },
        "vision_config": { "hidden_size": 1152 },
    });
    let model = from_config(&config);
    let rope = |theta, scaling| RopeConfig { theta, dims: 256, attention_scale: 1.0, scaling };
    let linear = rope(1e6, RopeScaling::Linear { factor: 8.0 });
    assert_eq!(model.config.ropes, [linear, rope(1e4, RopeScaling::None)]);
    for (number, layer) in model.config.layers.iter().enumerate() {
        let full = number == 5 || number == 11;
        let (window, index) = if full { (None, RopeIndex(0)) } else { (Some(1024), RopeIndex(1)) };
        assert_eq!((attention(layer).window, attention(layer).rope), (window, Some(index)), "layer {number}");
        let norms = (layer.norms, attention(layer).query_key_norm);
        assert_eq!(norms, (LayerNorms::Around, QueryKeyNorm::Head), "layer {number}");
        assert_eq!(gated(layer).activation, Activation::GeluTanh);
    }
    assert_eq!(model.config.embedding_scale, Some(2560f32.sqrt()));
    assert_eq!(model.tokens.eos, [TokenId(1), TokenId(106)]);
}

#[test]
fn scores_are_scaled_by_the_stated_width_or_that_of_the_size_that_differs() {
    let scale = |model: &Model| attention(&model.config.layers[0]).scale;
    let stated = json!({ "architectures": ["Gemma3ForCausalLM"], "query_pre_attn_scalar": 168 });
    assert_eq!(scale(&from_config(&stated)), 168f64.powf(-0.5) as f32);
    let large = [
        ("gemma3.block_count", Some(Entry::U32(62))),
        ("gemma3.attention.sliding_window", Some(Entry::U32(4))),
        ("gemma3.attention.key_length", Some(Entry::U32(2))),
    ];
    assert_eq!(scale(&from_gguf("gemma3", &large).unwrap()), (8f64 / 2.0).powf(-0.5) as f32);
    assert_eq!(scale(&from_gguf("gemma3", &large[1..]).unwrap()), 2f64.powf(-0.5) as f32);
}

#[test]
fn mistral_has_a_window_unless_it_says_null() {
    let base = with(llama(), json!({ "architectures": ["MistralForCausalLM"], "model_type": "mistral" }));
    assert_eq!(windows(&from_config(&base)), [Some(4096); 3]);
    assert_eq!(windows(&from_config(&with(base.clone(), json!({ "sliding_window": 12 })))), [Some(12); 3]);
    assert_eq!(windows(&from_config(&with(base, json!({ "sliding_window": null })))), [None; 3]);
    let stated = [("llama.attention.sliding_window", Some(Entry::U32(12)))];
    assert_eq!(windows(&from_gguf("llama", &stated).unwrap()), [Some(12)]);
}

#[test]
fn qwen_layers_slide_from_the_stated_layer_on_or_as_listed() {
    let base = with(llama(), json!({ "architectures": ["Qwen2ForCausalLM"], "sliding_window": 12 }));
    let on = with(base.clone(), json!({ "use_sliding_window": true }));
    let (some, none) = (Some(12), None);
    let cases = [
        (json!({ "max_window_layers": 1 }), [none, some, some]),
        (json!({ "max_window_layers": 0 }), [some; 3]),
        (json!({}), [none; 3]),
        (
            json!({ "layer_types": ["sliding_attention", "full_attention", "sliding_attention"] }),
            [some, none, some],
        ),
    ];
    for (keys, expected) in cases {
        assert_eq!(windows(&from_config(&with(on.clone(), keys.clone()))), expected, "{keys}");
    }
    assert_eq!(windows(&from_config(&with(base, json!({ "max_window_layers": 0 })))), [none; 3]);
}

#[test]
fn gguf_may_state_sizes_a_layer() {
    let lists = [
        ("llama.block_count", Some(Entry::U32(2))),
        ("llama.attention.head_count_kv", Some(Entry::Array(Array::I32(vec![1, 2])))),
        ("llama.feed_forward_length", Some(Entry::Array(Array::I32(vec![16, 32])))),
    ];
    let model = from_gguf("llama", &lists).unwrap();
    let heads: Vec<usize> = model.config.layers.iter().map(|layer| attention(layer).kv_heads).collect();
    assert_eq!(heads, [1, 2]);
}

#[test]
fn a_head_is_tied_where_the_file_says_so_or_has_none() {
    let tied = |keys: Value| from_config(&with(llama(), keys)).config.tied_head;
    assert!(tied(json!({ "tie_word_embeddings": true })));
    assert!(!tied(json!({ "tie_word_embeddings": false })));
    assert!(tied(json!({ "tie_word_embeddings": null })));
    assert!(from_gguf("llama", &[]).unwrap().config.tied_head);
}

#[test]
fn end_of_text_ids_come_from_every_file_that_has_some() {
    let config = with(llama(), json!({ "bos_token_id": 1, "eos_token_id": 2 }));
    let toy = hugging_face(&config, &[("generation_config.json", r#"{"eos_token_id": [7, 2, 9]}"#)]);
    let tokens = recognise(&toy.checkpoint).unwrap().tokens;
    assert_eq!((tokens.bos, tokens.eos), (Some(TokenId(1)), vec![TokenId(7), TokenId(2), TokenId(9)]));
    let ids = [
        ("tokenizer.ggml.bos_token_id", Some(Entry::U32(3))),
        ("tokenizer.ggml.eos_token_id", Some(Entry::U32(4))),
        ("tokenizer.ggml.eot_token_id", Some(Entry::U32(5))),
    ];
    let tokens = from_gguf("llama", &ids).unwrap().tokens;
    assert_eq!((tokens.bos, tokens.eos), (Some(TokenId(3)), vec![TokenId(4), TokenId(5)]));
}

#[test]
fn what_a_text_model_is_run_without_is_counted_by_what_it_belongs_to() {
    let checkpoint = Checkpoint::open(&goldens::folder().join("qwen3_5-nested")).unwrap();
    let model = recognise(&checkpoint).unwrap();
    let passed_over = model.weights(&checkpoint).unwrap().passed_over();
    let counts: Vec<(&str, usize)> = passed_over.iter().map(|over| (over.part, over.tensors)).collect();
    assert_eq!(counts, [("images and other modalities", 2), ("a head that predicts further tokens", 15)]);
    let drafter = model.drafter.unwrap();
    assert_eq!((drafter.kind.name(), drafter.config.layers.len()), ("mtp", 1));
}

#[test]
fn a_factor_of_attention_in_gguf_replaces_the_formula_of_yarn() {
    let scale = |key: &str, factor: f32| {
        let keys = [
            ("llama.rope.scaling.type", Some(Entry::String("yarn".to_owned()))),
            ("llama.rope.scaling.factor", Some(Entry::F32(4.0))),
            (key, Some(Entry::F32(factor))),
        ];
        from_gguf("llama", &keys).unwrap().config.ropes[0].attention_scale
    };
    let formula = (0.1 * 4f64.ln() + 1.0) as f32;
    assert_eq!(scale("llama.rope.scaling.yarn_attn_factor", 1.5), 1.5);
    assert_eq!(scale("llama.rope.scaling.yarn_attn_factor", 1.0), formula);
    assert_eq!(scale("llama.rope.scaling.attn_factor", 2.0), 2.0 * formula);
}

#[test]
fn a_scaling_that_is_asked_for_stretches_the_context_limit() {
    let mut model = from_config(&llama());
    assert_eq!(model.context_limit(), 2048);
    model.scale_rope(&"yarn:4".parse().unwrap()).unwrap();
    assert_eq!((model.context_limit(), model.config.context_length), (8192, 2048));
    let scaling = json!({ "rope_scaling": { "rope_type": "llama3", "factor": 8, "low_freq_factor": 1, "high_freq_factor": 4 } });
    let mut model = from_config(&with(llama(), scaling));
    let error = model.scale_rope(&"yarn:4".parse().unwrap()).unwrap_err().to_string();
    assert!(
        error.contains("`yarn:4` was asked for: the model's rope has a scaling of its own, `llama3`"),
        "{error}"
    );
}
