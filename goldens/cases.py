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
    gguf: tuple = ()  # Formats of the GGUF twins: f32, f16, bf16, q8_0.


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
    Case("llama-tied", LLAMA, storage="bf16"),
    Case("llama-bias", LLAMA | {"attention_bias": True, "mlp_bias": True}, storage="f16"),
    Case("llama-head-dim", LLAMA | {"head_dim": 24, "num_key_value_heads": 1}),
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
    Case("llama-rope-linear", rope_scaling(type="linear", factor=4.0)),
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
    ),
    Case("mistral", MISTRAL, shards=2),
    Case("qwen2", QWEN2, gguf=("f16",)),
    Case("qwen2-sliding", QWEN2 | {"use_sliding_window": True, "num_hidden_layers": 3}),
    Case("qwen3", QWEN3, gguf=("bf16",)),
    Case("gemma3", GEMMA3_OLD_KEYS, gguf=("f16", "q8_0")),
    Case("gemma3-soft-cap", GEMMA3_NEW_KEYS | {"final_logit_softcapping": 8.0, "query_pre_attn_scalar": 24}),
    Case("gemma3-nested", GEMMA3_NEW_KEYS, nested=True),
]
