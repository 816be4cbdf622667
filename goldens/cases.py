"""The tiny checkpoints as a table: a name, a config.json, and how it is stored.

Each case is one difference from the plain model of its family, so that a failing golden names its cause. The
configs are written the way released checkpoints write them: most with the long-lived keys `rope_theta` and
`rope_scaling`, some with the newer `rope_parameters`.
"""

from dataclasses import dataclass, field

WINDOW = 12  # Tokens of a sliding window: well below the prompt, so that the mask matters.
PROMPT = 48  # Prompt tokens of most cases.


@dataclass(frozen=True)
class Case:
    """One checkpoint. `prompts` maps the stem of a golden file to its prompt length."""

    name: str
    config: dict
    storage: str = "bf16"
    shards: int = 1
    prompts: dict = field(default_factory=lambda: {"golden": PROMPT})
    greedy: bool = True
    nested: bool = False
    blocks: bool = False  # Experts are stored in blocks of 4-bit floats.
    pooling: str | None = None  # The model gives one vector: `mean` or `lasttoken` of its rows.
    projections: tuple = ()  # Widths that the vector is projected to, one after the other.
    rows: int | None = None  # Positions whose logits are kept, the last ones; all where absent.
    next_tokens: bool = False  # Has a head that predicts further tokens, which the reference passes over.
    gguf: tuple = ()  # Formats of the GGUF twins: f32, f16, bf16, q8_0, mxfp4; none where GGUF can't say what the config does.


BASE = {
    "vocab_size": 272,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
    "rms_norm_eps": 1e-5,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "tie_word_embeddings": True,
}

LLAMA = BASE | {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_act": "silu",
    "attention_bias": False,
    "mlp_bias": False,
    "rope_theta": 10000.0,
}
MISTRAL = BASE | {
    "architectures": ["MistralForCausalLM"],
    "model_type": "mistral",
    "hidden_act": "silu",
    "head_dim": 16,
    "rope_theta": 10000.0,
    "sliding_window": WINDOW,
    "tie_word_embeddings": False,
}
QWEN2 = BASE | {
    "architectures": ["Qwen2ForCausalLM"],
    "model_type": "qwen2",
    "hidden_act": "silu",
    "rms_norm_eps": 1e-6,
    "rope_theta": 1000000.0,
    "use_sliding_window": False,
    "sliding_window": WINDOW,
    "max_window_layers": 1,
}
QWEN3 = BASE | {
    "architectures": ["Qwen3ForCausalLM"],
    "model_type": "qwen3",
    "hidden_act": "silu",
    "head_dim": 32,
    "rms_norm_eps": 1e-6,
    "attention_bias": False,
    "use_sliding_window": False,
    "sliding_window": None,
    "max_window_layers": 2,
    "rope_parameters": {"rope_type": "default", "rope_theta": 1000000.0},
}
GEMMA3 = BASE | {
    "architectures": ["Gemma3ForCausalLM"],
    "model_type": "gemma3_text",
    "hidden_activation": "gelu_pytorch_tanh",
    "num_hidden_layers": 3,
    "head_dim": 16,
    "rms_norm_eps": 1e-6,
    "attention_bias": False,
    "query_pre_attn_scalar": 16,
    "sliding_window": WINDOW,
    "attn_logit_softcapping": None,
    "final_logit_softcapping": None,
    "pad_token_id": 0,
    "bos_token_id": 2,
    "eos_token_id": 1,
}
GEMMA3_OLD_KEYS = GEMMA3 | {
    "sliding_window_pattern": 3,
    "rope_theta": 1000000.0,
    "rope_local_base_freq": 10000.0,
    "rope_scaling": {"rope_type": "linear", "factor": 8.0},
}
GEMMA3_NEW_KEYS = GEMMA3 | {
    "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
    "rope_parameters": {
        "full_attention": {"rope_type": "linear", "rope_theta": 1000000.0, "factor": 8.0},
        "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
    },
}
ROPE = LLAMA | {"intermediate_size": 64}
LONG = LLAMA | {
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "max_position_embeddings": 8192,
}
LAST_OF_LONG = {"prompts": {"golden": 8000}, "greedy": False, "rows": 50, "gguf": ("bf16",)}

SMALL = BASE | {"vocab_size": 160, "hidden_size": 32, "intermediate_size": 48, "head_dim": 16, "hidden_act": "silu"}
LONG_PROMPT = {"golden": 80}  # Longer than a page, so that chunks of a page and one more are parts.

QWEN2_MOE = SMALL | {
    "architectures": ["Qwen2MoeForCausalLM"],
    "model_type": "qwen2_moe",
    "rope_theta": 1000000.0,
    "use_sliding_window": False,
    "num_experts": 6,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 24,
    "shared_expert_intermediate_size": 40,
    "norm_topk_prob": False,
    "decoder_sparse_step": 1,
    "mlp_only_layers": [],
}
del QWEN2_MOE["head_dim"]
QWEN3_MOE = SMALL | {
    "architectures": ["Qwen3MoeForCausalLM"],
    "model_type": "qwen3_moe",
    "rope_theta": 1000000.0,
    "attention_bias": False,
    "num_hidden_layers": 3,
    "num_experts": 8,
    "num_experts_per_tok": 3,
    "moe_intermediate_size": 24,
    "norm_topk_prob": True,
    "decoder_sparse_step": 1,
    "mlp_only_layers": [],
}
MIXTRAL = SMALL | {
    "architectures": ["MixtralForCausalLM"],
    "model_type": "mixtral",
    "rope_theta": 1000000.0,
    "sliding_window": None,
    "num_local_experts": 4,
    "num_experts_per_tok": 2,
}
HYBRID = SMALL | {
    "num_hidden_layers": 4,
    "head_dim": 32,
    "rms_norm_eps": 1e-6,
    "layer_types": ["linear_attention", "linear_attention", "linear_attention", "full_attention"],
    "linear_conv_kernel_dim": 4,
    "linear_key_head_dim": 16,
    "linear_value_head_dim": 16,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 6,
}
HYBRID_EXPERTS = {
    "num_experts": 8,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 16,
    "shared_expert_intermediate_size": 16,
}
QWEN3_NEXT = HYBRID | HYBRID_EXPERTS | {
    "architectures": ["Qwen3NextForCausalLM"],
    "model_type": "qwen3_next",
    "rope_theta": 10000000.0,
    "partial_rotary_factor": 0.25,
    "norm_topk_prob": True,
    "decoder_sparse_step": 1,
    "mlp_only_layers": [],
    "tie_word_embeddings": False,
}
TEXT_ROPE = {
    "rope_type": "default",
    "rope_theta": 10000000.0,
    "partial_rotary_factor": 0.25,
    "mrope_section": [2, 1, 1],
    "mrope_interleaved": True,
}
QWEN3_5 = HYBRID | {
    "architectures": ["Qwen3_5ForCausalLM"],
    "model_type": "qwen3_5_text",
    "rope_parameters": TEXT_ROPE,
}
QWEN3_5_MOE = HYBRID | HYBRID_EXPERTS | {
    "architectures": ["Qwen3_5MoeForCausalLM"],
    "model_type": "qwen3_5_moe_text",
    "rope_parameters": TEXT_ROPE,
    "linear_num_value_heads": 4,
    "tie_word_embeddings": False,
}
del QWEN3_5_MOE["intermediate_size"]
GEMMA2 = SMALL | {
    "architectures": ["Gemma2ForCausalLM"],
    "model_type": "gemma2",
    "hidden_activation": "gelu_pytorch_tanh",
    "num_hidden_layers": 3,
    "rope_theta": 10000.0,
    "query_pre_attn_scalar": 16,
    "sliding_window": WINDOW,
    "attn_logit_softcapping": 4.0,
    "final_logit_softcapping": 12.0,
    "pad_token_id": 0,
    "bos_token_id": 2,
    "eos_token_id": 1,
}
PHI3 = SMALL | {
    "architectures": ["Phi3ForCausalLM"],
    "model_type": "phi3",
    "hidden_size": 64,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "sliding_window": None,
    "pad_token_id": 0,
    "tie_word_embeddings": False,
}
del PHI3["head_dim"]
GRANITE = SMALL | {
    "architectures": ["GraniteForCausalLM"],
    "model_type": "granite",
    "hidden_size": 64,
    "rope_theta": 10000.0,
    "attention_bias": False,
    "mlp_bias": False,
    "embedding_multiplier": 0.6,
    "attention_multiplier": 0.2,
    "residual_multiplier": 1.3,
    "logits_scaling": 0.7,
}
del GRANITE["head_dim"]
SMOLLM3 = SMALL | {
    "architectures": ["SmolLM3ForCausalLM"],
    "model_type": "smollm3",
    "hidden_size": 64,
    "rope_theta": 2000000.0,
    "num_hidden_layers": 4,
    "no_rope_layers": [1, 1, 1, 0],
    "no_rope_layer_interval": 4,
    "use_sliding_window": False,
    "attention_bias": False,
    "mlp_bias": False,
    "pad_token_id": 0,
}
del SMOLLM3["head_dim"]
OLMO2 = SMALL | {
    "architectures": ["Olmo2ForCausalLM"],
    "model_type": "olmo2",
    "hidden_size": 64,
    "rope_theta": 500000.0,
    "attention_bias": False,
    "pad_token_id": 0,
    "tie_word_embeddings": False,
}
del OLMO2["head_dim"]
GLM4 = SMALL | {
    "architectures": ["Glm4ForCausalLM"],
    "model_type": "glm4",
    "rope_theta": 10000.0,
    "partial_rotary_factor": 0.5,
    "attention_bias": True,
    "pad_token_id": 0,
    "tie_word_embeddings": False,
}
GPT_OSS = SMALL | {
    "architectures": ["GptOssForCausalLM"],
    "model_type": "gpt_oss",
    "rope_theta": 150000.0,
    "rope_scaling": {
        "rope_type": "yarn",
        "factor": 4.0,
        "beta_fast": 32.0,
        "beta_slow": 1.0,
        "truncate": False,
        "original_max_position_embeddings": 64,
    },
    "layer_types": ["sliding_attention", "full_attention"],
    "sliding_window": WINDOW,
    "attention_bias": True,
    "num_local_experts": 4,
    "num_experts_per_tok": 2,
    "tie_word_embeddings": False,
    "pad_token_id": 0,
}
QWEN3_SMALL = QWEN3 | {"vocab_size": 160, "hidden_size": 32, "intermediate_size": 48, "head_dim": 16}
GEMMA3_EMBEDDING = GEMMA3_OLD_KEYS | {
    "architectures": ["Gemma3TextModel"],
    "vocab_size": 160,
    "hidden_size": 32,
    "intermediate_size": 48,
    "use_bidirectional_attention": True,
}
MINISTRAL3 = SMALL | {
    "architectures": ["Ministral3ForCausalLM"],
    "model_type": "ministral3",
    "max_position_embeddings": 256,
    "rope_parameters": {
        "rope_type": "yarn",
        "rope_theta": 10000.0,
        "factor": 16.0,
        "original_max_position_embeddings": 16,
        "beta_fast": 32.0,
        "beta_slow": 1.0,
        "mscale": 1.0,
        "mscale_all_dim": 1.0,
        "llama_4_scaling_beta": 0.6,
    },
    "sliding_window": None,
    "tie_word_embeddings": False,
}
MINISTRAL = MISTRAL | {
    "architectures": ["MinistralForCausalLM"],
    "model_type": "ministral",
    "vocab_size": 160,
    "hidden_size": 32,
    "intermediate_size": 48,
    "layer_types": ["sliding_attention", "full_attention"],
}


def without(config, *keys):
    """The config with some keys left out."""
    return {key: value for key, value in config.items() if key not in keys}


def rope_scaling(**scaling):
    """A llama config with the long-lived rope keys."""
    return ROPE | {"rope_scaling": scaling}


def rope_parameters(**parameters):
    """A llama config with the newer rope key."""
    return without(ROPE, "rope_theta") | {"rope_parameters": {"rope_theta": 10000.0} | parameters}


# Below and above the length that the frequencies of `dynamic` and `longrope` were trained for. There the
# frequencies follow the running length, so that a continuation has no one answer: these cases have no greedy ids.
SHORT_AND_LONG = {"golden": 20, "golden-long": 44}
ORIGINAL_LENGTH = 32

CASES = [
    Case("llama", LLAMA | {"tie_word_embeddings": False}, storage="f32", gguf=("f32", "q8_0")),
    Case("llama-tied", LLAMA, storage="bf16", gguf=("bf16",)),
    Case("llama-bias", LLAMA | {"attention_bias": True, "mlp_bias": True}, storage="f16", gguf=("f16",)),
    Case("llama-head-dim", LLAMA | {"head_dim": 24, "num_key_value_heads": 1}, gguf=("bf16",)),
    Case(
        "llama-rope-llama3",
        rope_scaling(
            rope_type="llama3",
            factor=8.0,
            low_freq_factor=1.0,
            high_freq_factor=4.0,
            original_max_position_embeddings=64,
        ),
        gguf=("bf16",),
    ),
    Case("llama-rope-linear", rope_scaling(type="linear", factor=4.0), gguf=("bf16",)),
    Case(
        "llama-rope-dynamic",
        rope_scaling(rope_type="dynamic", factor=2.0) | {"max_position_embeddings": ORIGINAL_LENGTH},
        prompts=SHORT_AND_LONG,
        greedy=False,
    ),
    Case(
        "llama-rope-yarn",
        rope_scaling(rope_type="yarn", factor=4.0, original_max_position_embeddings=ORIGINAL_LENGTH),
        gguf=("bf16",),
    ),
    Case(
        "llama-rope-yarn-attention-factor",
        rope_parameters(
            rope_type="yarn",
            factor=4.0,
            original_max_position_embeddings=ORIGINAL_LENGTH,
            attention_factor=1.3,
            beta_fast=1.0,
            beta_slow=0.25,
        ),
        gguf=("bf16",),
    ),
    Case(
        "llama-rope-yarn-mscale",
        rope_parameters(
            rope_type="yarn",
            factor=4.0,
            original_max_position_embeddings=ORIGINAL_LENGTH,
            mscale=1.2,
            mscale_all_dim=0.4,
            truncate=False,
        ),
    ),
    Case(
        "llama-rope-longrope",
        rope_scaling(
            rope_type="longrope",
            short_factor=[1.0, 1.05, 1.1, 1.2, 1.3, 1.5, 1.8, 2.0],
            long_factor=[1.1, 1.4, 2.0, 3.0, 4.5, 6.0, 8.0, 9.0],
        )
        | {"original_max_position_embeddings": ORIGINAL_LENGTH, "max_position_embeddings": 128},
        prompts=SHORT_AND_LONG,
        greedy=False,
        gguf=("bf16",),
    ),
    Case("mistral", MISTRAL, shards=2, gguf=("bf16",)),
    Case("qwen2", QWEN2, gguf=("f16",)),
    Case("qwen2-sliding", QWEN2 | {"use_sliding_window": True, "num_hidden_layers": 3}),
    Case("qwen3", QWEN3, gguf=("bf16",)),
    Case("gemma3", GEMMA3_OLD_KEYS, gguf=("f16", "q8_0")),
    Case("gemma3-soft-cap", GEMMA3_NEW_KEYS | {"final_logit_softcapping": 8.0}, gguf=("bf16",)),
    Case("gemma3-score-width", GEMMA3_NEW_KEYS | {"query_pre_attn_scalar": 24}),
    Case("gemma3-nested", GEMMA3_NEW_KEYS, nested=True, gguf=("bf16",)),
    Case("long-default", LONG, **LAST_OF_LONG),
    Case(
        "long-llama3",
        LONG
        | {
            "rope_scaling": {
                "rope_type": "llama3",
                "factor": 8.0,
                "low_freq_factor": 1.0,
                "high_freq_factor": 4.0,
                "original_max_position_embeddings": 1024,
            }
        },
        **LAST_OF_LONG,
    ),
    Case(
        "long-yarn",
        LONG | {"rope_scaling": {"rope_type": "yarn", "factor": 8.0, "original_max_position_embeddings": 1024}},
        **LAST_OF_LONG,
    ),
    Case(
        "long-longrope",
        LONG
        | {
            "original_max_position_embeddings": 1024,
            "rope_scaling": {
                "rope_type": "longrope",
                "short_factor": [1.0, 1.05, 1.1, 1.2, 1.3, 1.5, 1.8, 2.0],
                "long_factor": [1.1, 1.4, 2.0, 3.0, 4.5, 6.0, 8.0, 9.0],
            },
        },
        **LAST_OF_LONG,
    ),
    Case("qwen2-moe", QWEN2_MOE, gguf=("f16",)),
    Case(
        "qwen2-moe-sliding",
        QWEN2_MOE
        | {"use_sliding_window": True, "sliding_window": WINDOW, "max_window_layers": 2, "num_hidden_layers": 4},
    ),
    Case("qwen3-moe-sliding", QWEN3_MOE | {"use_sliding_window": True, "sliding_window": WINDOW, "num_hidden_layers": 2}),
    Case("qwen3-moe", QWEN3_MOE, gguf=("bf16",)),
    Case("qwen3-moe-dense-layers", QWEN3_MOE | {"mlp_only_layers": [1], "norm_topk_prob": False}),
    Case("mixtral", MIXTRAL, gguf=("bf16",)),
    Case("qwen3-next", QWEN3_NEXT, prompts=LONG_PROMPT, gguf=("bf16",)),
    Case("qwen3_5", QWEN3_5, prompts=LONG_PROMPT, next_tokens=True, gguf=("bf16",)),
    Case("qwen3_5-nested", QWEN3_5, nested=True, next_tokens=True, gguf=("bf16",)),
    Case("qwen3_5-moe", QWEN3_5_MOE, prompts=LONG_PROMPT, nested=True, gguf=("bf16",)),
    Case("ministral", MINISTRAL),
    Case("ministral3", MINISTRAL3, prompts=LONG_PROMPT, gguf=("bf16",)),
    Case("gemma2", GEMMA2, gguf=("f16",)),
    Case("phi3", PHI3, gguf=("bf16",)),
    Case(
        "phi3-longrope",
        PHI3
        | {
            "partial_rotary_factor": 0.75,
            "original_max_position_embeddings": ORIGINAL_LENGTH,
            "max_position_embeddings": 128,
            "rope_scaling": {
                "type": "longrope",
                "short_factor": [1.0, 1.05, 1.1, 1.2, 1.3, 1.5],
                "long_factor": [1.1, 1.4, 2.0, 3.0, 4.5, 6.0],
            },
        },
        prompts=SHORT_AND_LONG,
        greedy=False,
        gguf=("bf16",),
    ),
    Case("granite", GRANITE, gguf=("bf16",)),
    Case("smollm3", SMOLLM3, gguf=("bf16",)),
    Case("olmo2", OLMO2, gguf=("f16",)),
    Case("glm4", GLM4, gguf=("bf16",)),
    Case("embedding-last", QWEN3_SMALL, pooling="lasttoken", greedy=False, gguf=("bf16",)),
    Case(
        "embedding-mean",
        GEMMA3_EMBEDDING,
        pooling="mean",
        projections=(48, 24),
        greedy=False,
        gguf=("bf16",),
    ),
    Case("gpt-oss", GPT_OSS, gguf=("bf16",)),
    Case("gpt-oss-blocks", GPT_OSS | {"intermediate_size": 64}, blocks=True, gguf=("mxfp4",)),
    Case("gpt-oss-limit", GPT_OSS | {"swiglu_limit": 1.5}),
]
