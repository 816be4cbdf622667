//! What can't run is refused, with the file, the key, what was found and what was expected.

use crate::configs::{from_gguf, llama, with};
use crate::toy::{hugging_face, rewritten};
use gannet_formats::Checkpoint;
use gannet_formats::gguf::{Array, Value as Entry};
use gannet_model::{ProgramOptions, recognise};
use gannet_ops::{KvFormat, Rollback};
use gannet_testing::goldens;
use serde_json::{Value, json};

/// Each object, put into the base config, is refused with a message that contains the text.
fn check_refused(base: &Value, cases: &[(Value, &str)]) {
    for (keys, expected) in cases {
        let toy = hugging_face(&with(base.clone(), keys.clone()), &[]);
        let error = recognise(&toy.checkpoint).unwrap_err().to_string();
        assert!(error.contains(expected), "{keys} gives: {error}\nexpected: {expected}");
        assert!(error.contains("config.json"), "{error} names no file");
    }
}

#[test]
fn a_config_that_cant_run_is_refused_by_key_and_value() {
    let cases = [
        (
            json!({ "architectures": ["BertModel"] }),
            "`architectures` is `BertModel`, which is not supported; supported are LlamaForCausalLM, MistralForCausalLM, MinistralForCausalLM, Ministral3ForCausalLM, Mistral3ForConditionalGeneration, MixtralForCausalLM, ",
        ),
        (json!({ "architectures": null, "model_type": "bert" }), "`model_type` is `bert`"),
        (json!({ "architectures": null, "model_type": null }), "key `model_type` is missing"),
        (
            json!({ "architectures": "LlamaForCausalLM" }),
            "key `architectures` is `LlamaForCausalLM`, expected a list",
        ),
        (json!({ "hidden_act": "gelu" }), "key `hidden_act` is `gelu`, expected `silu` or `swish`"),
        (json!({ "hidden_size": "64" }), "key `hidden_size` is `64`, expected a whole number"),
        (json!({ "hidden_size": 0 }), "key `hidden_size` is 0, expected a whole number from 1 to 1048576"),
        (json!({ "hidden_size": 64.5 }), "key `hidden_size` is 64.5"),
        (json!({ "hidden_size": 65 }), "key `head_dim` is missing"),
        (
            json!({ "num_hidden_layers": 1025 }),
            "key `num_hidden_layers` is 1025, expected a whole number from 1 to 1024",
        ),
        (json!({ "num_hidden_layers": -1 }), "key `num_hidden_layers` is -1"),
        (
            json!({ "num_key_value_heads": 3 }),
            "key `num_key_value_heads` is 3, expected a divisor of the 4 query heads",
        ),
        (json!({ "head_dim": 15 }), "key `head_dim` is 15, expected an even number"),
        (
            json!({ "head_dim": 16384, "num_attention_heads": 4096 }),
            "the width of all heads together is 67108864",
        ),
        (json!({ "vocab_size": 1u64 << 40 }), "key `vocab_size` is 1099511627776"),
        (json!({ "rms_norm_eps": 0.0 }), "key `rms_norm_eps` is 0, expected a number above 0"),
        (json!({ "rms_norm_eps": -1e-5 }), "key `rms_norm_eps` is -0.00001"),
        (json!({ "rms_norm_eps": 2 }), "key `rms_norm_eps` is 2, expected a number between 0 and 1"),
        (json!({ "attention_bias": "yes" }), "key `attention_bias` is `yes`, expected true or false"),
        (json!({ "eos_token_id": -1 }), "key `eos_token_id` is -1, expected a token id"),
    ];
    check_refused(&llama(), &cases);
}

#[test]
fn a_rope_that_cant_be_is_refused_by_key_and_value() {
    let yarn =
        |keys: Value| json!({ "rope_scaling": with(json!({ "rope_type": "yarn", "factor": 4.0 }), keys) });
    let cases = [
        (json!({ "partial_rotary_factor": 0.5 }), "key `partial_rotary_factor` is 0.5, expected 1"),
        (json!({ "rope_theta": 0 }), "key `rope_theta` is 0, expected a number above 0"),
        (json!({ "rope_theta": 1.0 }), "key `rope_theta` is 1, expected a number above 1"),
        (json!({ "rope_scaling": "yarn" }), "key `rope_scaling` is `yarn`, expected an object"),
        (
            json!({ "rope_scaling": { "type": "su" } }),
            "key `rope_scaling.rope_type` is `su`, expected `default`, `linear`",
        ),
        (json!({ "rope_scaling": { "type": "linear" } }), "key `rope_scaling.factor` is missing"),
        (json!({ "rope_scaling": { "factor": 2 } }), "key `rope_scaling.rope_type` is missing"),
        (
            json!({ "rope_parameters": { "rope_type": "llama3", "factor": 8 } }),
            "key `rope_parameters.low_freq_factor` is missing",
        ),
        (
            json!({ "rope_scaling": { "rope_type": "longrope", "short_factor": [1.0], "long_factor": [1.0] } }),
            "key `rope_scaling.short_factor` is 1, expected 8 numbers",
        ),
        (yarn(json!({ "factor": 0 })), "key `rope_scaling.factor` is 0"),
        (yarn(json!({ "beta_fast": -1 })), "key `rope_scaling.beta_fast` is -1"),
        (
            yarn(json!({ "original_max_position_embeddings": 0 })),
            "key `rope_scaling.original_max_position_embeddings` is 0",
        ),
    ];
    check_refused(&llama(), &cases);
}

#[test]
fn a_text_model_that_computes_otherwise_is_refused() {
    let base = json!({ "architectures": ["Gemma3ForCausalLM"], "num_hidden_layers": 2 });
    let cases = [
        (
            json!({ "attn_logit_softcapping": 50.0 }),
            "key `attn_logit_softcapping` is 50.0, expected to be absent",
        ),
        (json!({ "use_bidirectional_attention": true }), "key `use_bidirectional_attention` is true"),
        (json!({ "hidden_activation": "gelu" }), "key `hidden_activation` is `gelu`"),
        (json!({ "sliding_window": null }), "key `sliding_window` is null"),
        (
            json!({ "layer_types": ["full_attention"] }),
            "key `layer_types` is a list of 1, expected one kind for each of 2",
        ),
        (
            json!({ "layer_types": ["full_attention", "chunked"] }),
            "key `layer_types` is a list with `chunked`",
        ),
        (json!({ "final_logit_softcapping": -3 }), "key `final_logit_softcapping` is -3"),
    ];
    check_refused(&base, &cases);
}

#[test]
fn a_mixture_that_cant_be_is_refused() {
    let base = with(llama(), json!({ "architectures": ["Qwen3MoeForCausalLM"], "head_dim": 16 }));
    let cases = [
        (json!({ "num_experts": 0 }), "key `num_experts` is 0"),
        (json!({ "num_experts": 1u64 << 40 }), "key `num_experts` is 1099511627776"),
        (
            json!({ "num_experts": 4, "num_experts_per_tok": 5 }),
            "key `num_experts_per_tok` is 5, expected at most the 4 experts",
        ),
        (json!({ "mlp_only_layers": [-1] }), "key `mlp_only_layers` is a list of 1"),
        (json!({ "decoder_sparse_step": 0 }), "key `decoder_sparse_step` is 0"),
        (json!({ "use_sliding_window": "yes" }), "key `use_sliding_window` is `yes`"),
    ];
    check_refused(&base, &cases);
}

#[test]
fn a_hybrid_that_cant_be_is_refused() {
    let base = with(llama(), json!({ "architectures": ["Qwen3_5ForCausalLM"], "head_dim": 16 }));
    let cases = [
        (
            json!({ "layer_types": ["linear_attention", "mamba", "full_attention"] }),
            "key `layer_types` is a list with `mamba`, expected `linear_attention` or `full_attention`",
        ),
        (
            json!({ "layer_types": ["full_attention"] }),
            "key `layer_types` is a list of 1, expected one kind for each of 3",
        ),
        (
            json!({ "linear_num_value_heads": 24 }),
            "key `linear_num_value_heads` is 24, expected a multiple of the 16 key heads",
        ),
        (json!({ "linear_conv_kernel_dim": 0 }), "key `linear_conv_kernel_dim` is 0"),
        (json!({ "linear_key_head_dim": 1 << 20 }), "key `linear_key_head_dim` is 1048576"),
        (
            json!({ "linear_key_head_dim": 1 << 14, "linear_value_head_dim": 1 << 14, "linear_num_value_heads": 4096 }),
            "the channels of the convolution is 67633152",
        ),
        (json!({ "attn_output_gate": false }), "key `attn_output_gate` is false, expected true"),
        (json!({ "output_gate_type": "sigmoid" }), "key `output_gate_type` is `sigmoid`"),
        (json!({ "partial_rotary_factor": 0.01 }), "key `partial_rotary_factor` is 0.01, expected a part"),
        (json!({ "rope_parameters": { "rope_type": "spiral" } }), "`rope_parameters.rope_type` is `spiral`"),
    ];
    check_refused(&base, &cases);
}

#[test]
fn architectures_that_look_like_a_known_one_are_refused_with_the_reason() {
    let cases = [
        (
            json!({ "architectures": ["Qwen4ExpForCausalLM"] }),
            "`architectures` is `Qwen4ExpForCausalLM`, which can't run: it has hyper-connections",
        ),
        (
            json!({ "architectures": null, "model_type": "qwen4_exp" }),
            "`model_type` is `qwen4_exp`, which can't run: it has hyper-connections",
        ),
        (json!({ "architectures": ["DFlash2DraftModel"] }), "it has convolutions within a block"),
    ];
    check_refused(&llama(), &cases);
    let renamed = [("general.architecture", Some(Entry::String("qwen4exp".to_owned())))];
    let error = from_gguf("llama", &renamed).unwrap_err();
    assert!(error.contains("`general.architecture` is `qwen4exp`, which can't run"), "{error}");
}

/// What is wrong with the weights of a golden whose config has other keys.
fn weights_error(golden: &str, keys: Value) -> String {
    let source = goldens::folder().join(golden);
    let folder = tempfile::tempdir().unwrap();
    let config = std::fs::read(source.join("config.json")).unwrap();
    let config = with(serde_json::from_slice(&config).unwrap(), keys);
    std::fs::write(folder.path().join("config.json"), config.to_string()).unwrap();
    std::fs::copy(source.join("model.safetensors"), folder.path().join("model.safetensors")).unwrap();
    let checkpoint = Checkpoint::open(folder.path()).unwrap();
    recognise(&checkpoint).unwrap().weights(&checkpoint).err().unwrap().to_string()
}

#[test]
fn tensors_that_dont_match_the_config_are_named_before_anything_is_read() {
    let cases = [
        ("qwen3-moe", json!({ "num_experts": 9 }), "`model.layers.0.mlp.gate.weight`"),
        ("mixtral", json!({ "num_local_experts": 3 }), "`model.layers.0.block_sparse_moe.gate.weight`"),
        (
            "qwen3_5-moe",
            json!({ "text_config": with(read_text_config("qwen3_5-moe"), json!({ "moe_intermediate_size": 8 })) }),
            "`model.language_model.layers.0.mlp.experts.gate_up_proj`",
        ),
        (
            "qwen3_5",
            json!({ "layer_types": ["linear_attention", "linear_attention", "linear_attention", "linear_attention"] }),
            "tensor `model.layers.3.linear_attn.in_proj_qkv.weight` is missing",
        ),
        (
            "qwen3-next",
            json!({ "linear_num_value_heads": 4 }),
            "tensor `model.layers.0.linear_attn.in_proj_qkvz.weight`",
        ),
        ("gpt-oss", json!({ "num_local_experts": 5 }), "`model.layers.0.mlp.router.weight`"),
    ];
    for (golden, keys, expected) in cases {
        let error = weights_error(golden, keys);
        assert!(error.contains(expected), "{golden}: {error}\nexpected: {expected}");
    }
}

#[test]
fn a_hybrid_without_one_of_its_tensors_is_refused_by_name() {
    let source = goldens::folder().join("qwen3_5");
    let bytes = std::fs::read(source.join("model.safetensors")).unwrap();
    for stem in ["conv1d.weight", "A_log", "dt_bias"] {
        let name = format!("model.layers.1.linear_attn.{stem}");
        // A name of the same length leaves the header's length as it is.
        let start = bytes.windows(name.len()).position(|window| window == name.as_bytes()).unwrap();
        let mut changed = bytes.clone();
        changed[start] = b'x';
        let folder = tempfile::tempdir().unwrap();
        std::fs::copy(source.join("config.json"), folder.path().join("config.json")).unwrap();
        std::fs::write(folder.path().join("model.safetensors"), changed).unwrap();
        let checkpoint = Checkpoint::open(folder.path()).unwrap();
        let error = recognise(&checkpoint).unwrap().weights(&checkpoint).err().unwrap().to_string();
        assert!(error.contains(&format!("tensor `{name}` is missing")), "{error}");
    }
}

#[test]
fn a_ministral_that_cant_be_is_refused() {
    let base =
        with(llama(), json!({ "architectures": ["Ministral3ForCausalLM"], "model_type": "ministral3" }));
    let scaled = |keys: Value| {
        let rope = json!({ "rope_type": "default", "rope_theta": 1e4 });
        json!({ "rope_parameters": with(rope, keys) })
    };
    let cases = [
        (json!({}), "key `rope_parameters` is missing, expected an object"),
        (scaled(json!({ "llama_4_scaling_beta": 0.1 })), "original_max_position_embeddings` is missing"),
        (
            scaled(json!({ "llama_4_scaling_beta": 0.1, "original_max_position_embeddings": 0 })),
            "original_max_position_embeddings` is 0",
        ),
        (
            json!({ "model_type": "mistral4" }),
            "key `model_type` is `mistral4`, expected `mistral`, `ministral` or",
        ),
    ];
    check_refused(&base, &cases);
}

fn read_text_config(golden: &str) -> Value {
    let file = goldens::folder().join(golden).join("config.json");
    let config: Value = serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
    config["text_config"].clone()
}

#[test]
fn gguf_metadata_that_cant_run_is_refused_by_key_and_value() {
    let text = |text: &str| Some(Entry::String(text.to_owned()));
    let cases = [
        (
            "general.architecture",
            text("bert"),
            "`general.architecture` is `bert`, which is not supported; supported are llama, mistral3, qwen2, qwen2moe, qwen3, qwen3moe, qwen3next, qwen35, qwen35moe, gemma2, ",
        ),
        ("general.architecture", None, "general.architecture"),
        ("llama.block_count", None, "key `llama.block_count` is missing"),
        ("llama.block_count", Some(Entry::U32(5000)), "key `llama.block_count` is the u32 5000"),
        ("llama.embedding_length", text("8"), "key `llama.embedding_length` is `8`"),
        (
            "llama.attention.layer_norm_rms_epsilon",
            None,
            "key `llama.attention.layer_norm_rms_epsilon` is missing",
        ),
        ("llama.attention.layer_norm_rms_epsilon", Some(Entry::F32(f32::NAN)), "expected a finite number"),
        (
            "llama.attention.head_count_kv",
            Some(Entry::Array(Array::U32(vec![1, 1]))),
            "key `llama.attention.head_count_kv` is a list of 2, expected one number for each of 1 layers",
        ),
        ("llama.expert_count", Some(Entry::U32(8)), "key `llama.expert_used_count` is missing"),
        (
            "llama.rope.dimension_count",
            Some(Entry::U32(2)),
            "key `llama.rope.dimension_count` is 2, expected 4, the whole head",
        ),
        ("llama.rope.scaling.type", text("ntk"), "key `llama.rope.scaling.type` is `ntk`"),
        ("llama.rope.scaling.type", text("dynamic"), "key `llama.rope.scaling.type` is `dynamic`"),
        (
            "llama.rope.scaling.type",
            text("longrope"),
            "expected it to come with the tensor `rope_factors_short.weight`",
        ),
        ("llama.rope.scaling.factor", Some(Entry::F32(-1.0)), "key `llama.rope.scaling.factor` is -1"),
        ("llama.rope.freq_base", Some(Entry::F32(f32::INFINITY)), "expected a finite number"),
    ];
    for (key, value, expected) in cases {
        let error = from_gguf("llama", &[(key, value)]).unwrap_err();
        assert!(error.contains(expected), "{key}: {error}\nexpected: {expected}");
    }
}

#[test]
fn a_window_in_gguf_is_refused_where_no_key_says_which_layers_slide() {
    for architecture in ["qwen2", "qwen2moe", "qwen3", "qwen3moe"] {
        let number = |key: &str, value| (format!("{architecture}.{key}"), Some(Entry::U32(value)));
        let window = format!("{architecture}.attention.sliding_window");
        let keys = [
            number("attention.sliding_window", 12),
            number("expert_count", 4),
            number("expert_used_count", 2),
            number("expert_feed_forward_length", 8),
            number("expert_shared_feed_forward_length", 8),
        ];
        let keys = keys.each_ref().map(|(key, value)| (key.as_str(), value.clone()));
        let error = from_gguf(architecture, &keys).unwrap_err();
        let expected =
            format!("key `{window}` is 12, expected to be absent, as GGUF doesn't say which layers");
        assert!(error.contains(&expected), "{error}\nexpected: {expected}");
    }
}

/// Why a GGUF golden with a changed key, or without a tensor, is refused; all of its weights are looked up.
fn gguf_error(golden: &str, edits: &[(&str, Option<Entry>)], left_out: &str) -> String {
    let whole = Checkpoint::open(&goldens::folder().join(golden)).unwrap();
    let toy = rewritten(&whole, edits, |name| name != left_out, &[]);
    match recognise(&toy.checkpoint) {
        Ok(model) => model.weights(&toy.checkpoint).err().unwrap().to_string(),
        Err(error) => error.to_string(),
    }
}

#[test]
fn gguf_keys_that_dont_match_the_tensors_or_each_other_are_refused() {
    let number = |number| Some(Entry::U32(number));
    let list = |list: &[bool]| Some(Entry::Array(Array::Bool(list.to_vec())));
    let (hybrid, mixture) = ("qwen3_5-bf16.gguf", "qwen3-moe-bf16.gguf");
    let cases = [
        (mixture, "qwen3moe.expert_count", number(9), "tensor `blk.0.ffn_gate_inp.weight`"),
        (mixture, "qwen3moe.expert_count", number(2), "`qwen3moe.expert_used_count` is 3, expected at most"),
        (mixture, "qwen3moe.expert_feed_forward_length", number(8), "tensor `blk.0.ffn_gate_exps.weight`"),
        ("mixtral-bf16.gguf", "llama.expert_count", number(3), "tensor `blk.0.ffn_gate_inp.weight`"),
        ("qwen3-next-bf16.gguf", "qwen3next.expert_count", number(7), "tensor `blk.0.ffn_gate_inp.weight`"),
        (hybrid, "qwen35.attention.head_count", number(3), "expected a divisor of the 3 query heads"),
        (
            hybrid,
            "qwen35.ssm.group_count",
            number(4),
            "key `qwen35.ssm.time_step_rank` is 6, expected a multiple",
        ),
        (
            hybrid,
            "qwen35.ssm.inner_size",
            number(95),
            "key `qwen35.ssm.inner_size` is 95, expected a multiple",
        ),
        (hybrid, "qwen35.ssm.conv_kernel", number(3), "tensor `blk.0.ssm_conv1d.weight`"),
        (hybrid, "qwen35.full_attention_interval", number(2), "tensor `blk.1.attn_qkv.weight`"),
        (
            hybrid,
            "qwen35.attention.recurrent_layers",
            list(&[true; 3]),
            "expected one flag for each of 4 layers",
        ),
        (
            hybrid,
            "qwen35.attention.recurrent_layers",
            list(&[true; 4]),
            "tensor `blk.3.attn_qkv.weight` is missing",
        ),
        (
            hybrid,
            "qwen35.attention.recurrent_layers",
            Some(Entry::Array(Array::U32(vec![1, 1, 1, 0]))),
            "is an array of 4 x u32, expected a list of true and false",
        ),
        (hybrid, "qwen35.attention.recurrent_layers", number(3), "is the u32 3, expected to be absent"),
        (
            hybrid,
            "qwen35.rope.scaling.type",
            Some(Entry::String("spiral".to_owned())),
            "key `qwen35.rope.scaling.type` is `spiral`, expected `none`, `linear`, `yarn` or `longrope`",
        ),
        (hybrid, "qwen35.nextn_predict_layers", number(5), "qwen35.nextn_predict_layers"),
    ];
    for (golden, key, value, expected) in cases {
        let error = gguf_error(golden, &[(key, value)], "");
        assert!(
            error.contains(expected) && error.contains("rewritten.gguf"),
            "{key}: {error}\nexpected: {expected}"
        );
    }
}

#[test]
fn a_gguf_hybrid_or_mixture_without_one_of_its_tensors_is_refused_by_name() {
    let cases = [
        ("qwen3_5-bf16.gguf", "blk.1.ssm_conv1d.weight"),
        ("qwen3_5-bf16.gguf", "blk.1.ssm_a"),
        ("qwen3_5-bf16.gguf", "blk.1.ssm_dt.bias"),
        ("qwen3-next-bf16.gguf", "blk.2.ssm_conv1d.weight"),
        ("qwen3-next-bf16.gguf", "blk.2.ssm_a"),
        ("qwen3-next-bf16.gguf", "blk.0.ffn_gate_inp_shexp.weight"),
        ("qwen3-moe-bf16.gguf", "blk.0.ffn_gate_inp.weight"),
        ("qwen3-moe-bf16.gguf", "blk.2.ffn_up_exps.weight"),
    ];
    for (golden, name) in cases {
        let error = gguf_error(golden, &[], name);
        assert!(error.contains(&format!("tensor `{name}` is missing")), "{name}: {error}");
    }
}

const FAMILIES: [&str; 13] = [
    "LlamaForCausalLM",
    "MixtralForCausalLM",
    "Qwen2MoeForCausalLM",
    "Qwen3ForCausalLM",
    "Qwen3_5ForCausalLM",
    "Gemma2ForCausalLM",
    "Gemma3ForCausalLM",
    "Phi3ForCausalLM",
    "GraniteForCausalLM",
    "SmolLM3ForCausalLM",
    "Glm4ForCausalLM",
    "GptOssForCausalLM",
    "MinistralForCausalLM",
];

const KEYS: [&str; 45] = [
    "vocab_size",
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "head_dim",
    "max_position_embeddings",
    "rms_norm_eps",
    "rope_theta",
    "rope_scaling",
    "rope_parameters",
    "sliding_window",
    "layer_types",
    "use_sliding_window",
    "max_window_layers",
    "hidden_act",
    "tie_word_embeddings",
    "attention_bias",
    "bos_token_id",
    "eos_token_id",
    "text_config",
    "architectures",
    "query_pre_attn_scalar",
    "final_logit_softcapping",
    "sliding_window_pattern",
    "rope_local_base_freq",
    "num_experts",
    "num_local_experts",
    "num_experts_per_tok",
    "moe_intermediate_size",
    "shared_expert_intermediate_size",
    "norm_topk_prob",
    "mlp_only_layers",
    "decoder_sparse_step",
    "linear_num_key_heads",
    "linear_num_value_heads",
    "linear_key_head_dim",
    "linear_conv_kernel_dim",
    "full_attention_interval",
    "partial_rotary_factor",
    "no_rope_layers",
    "residual_multiplier",
    "logits_scaling",
    "attn_logit_softcapping",
];

#[test]
fn hostile_values_give_a_config_or_an_error() {
    let hostile = [
        json!(null),
        json!(true),
        json!(-1),
        json!(0),
        json!(1),
        json!(3),
        json!(u64::MAX),
        json!(1e-308),
        json!(1e308),
        json!("x"),
        json!([]),
        json!([[1]]),
        json!({}),
        json!({ "rope_type": "yarn", "factor": 1e-308 }),
        json!({ "rope_type": "dynamic", "factor": 1e5 }),
        json!({ "full_attention": 1 }),
        json!({ "rope_type": "yarn", "factor": 2, "truncate": false, "beta_fast": 1, "beta_slow": 1 }),
    ];
    for family in FAMILIES {
        let mut refused = 0;
        for (key, value) in KEYS.iter().flat_map(|key| hostile.iter().map(move |value| (*key, value))) {
            let mut config = with(llama(), json!({ "architectures": [family], "use_sliding_window": true }));
            config[key] = value.clone();
            let toy = hugging_face(&config, &[]);
            match recognise(&toy.checkpoint) {
                Ok(model) => {
                    let options =
                        ProgramOptions { context: 128, kv_format: KvFormat::F32, rollback: Rollback::Replay };
                    model
                        .program(&options)
                        .unwrap_or_else(|error| panic!("{family}, {key} {value}: {error}"));
                    assert!(model.weights(&toy.checkpoint).is_err(), "the file has none of the weights");
                }
                Err(error) => {
                    assert!(error.to_string().contains("config.json"), "{error}");
                    refused += 1;
                }
            }
        }
        assert!(refused > 100, "{family} refuses {refused} only");
    }
}
