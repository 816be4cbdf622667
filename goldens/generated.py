"""Models that need no file: weights from a named generator, and what transformers computes with them.

Writes generated.json, a list of cases {name, config, ids, logits, greedy}: `logits` of the last of `ids`, then the
greedy continuation. A tensor called `name` has at flat row-major index n

    seed = FNV-1a-32(name);  x = splitmix64((seed << 32) + n);  u = (x >> 40) / 2^24 - 0.5, in [-0.5, 0.5)

and the value 1 + u for norm weights (u where the family adds the one itself), u for biases, u / 2 for everything
else. Names are those of a hub checkpoint. Tests build such models without reading a file.
"""

import json
from pathlib import Path

import numpy as np
import torch
import transformers

HERE = Path(__file__).parent
IDS = [1, 5, 9, 2, 7, 11, 3, 8, 4, 6, 10, 12]
GREEDY_TOKENS = 8

BASE = {
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "rms_norm_eps": 1e-6,
    "max_position_embeddings": 512,
    "tie_word_embeddings": False,
}
LLAMA3 = {"low_freq_factor": 1.0, "high_freq_factor": 4.0, "factor": 8.0, "original_max_position_embeddings": 64}
CASES = {
    "llama": BASE
    | {"model_type": "llama", "rope_theta": 10000.0, "rope_scaling": {"rope_type": "llama3"} | LLAMA3},
    "qwen2": BASE | {"model_type": "qwen2", "rope_theta": 1000000.0, "use_sliding_window": False},
    "qwen3": BASE | {"model_type": "qwen3", "head_dim": 16, "rope_theta": 1000000.0, "use_sliding_window": False},
    "qwen3-yarn": BASE
    | {
        "model_type": "qwen3",
        "head_dim": 16,
        "rope_theta": 10000.0,
        "rope_scaling": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64},
        "use_sliding_window": False,
    },
    "gemma3": BASE
    | {
        "model_type": "gemma3_text",
        "num_hidden_layers": 6,
        "tie_word_embeddings": True,
        "head_dim": 16,
        "query_pre_attn_scalar": 16,
        "sliding_window": 4,
        "sliding_window_pattern": 6,
        "rope_theta": 1000000.0,
        "rope_local_base_freq": 10000.0,
        "rope_scaling": {"rope_type": "linear", "factor": 8.0},
    },
}
CLASSES = {
    "llama": transformers.LlamaForCausalLM,
    "qwen2": transformers.Qwen2ForCausalLM,
    "qwen3": transformers.Qwen3ForCausalLM,
    "gemma3_text": transformers.Gemma3ForCausalLM,
}


def fnv1a(name):
    hash = 0x811C9DC5
    for byte in name.encode():
        hash = (hash ^ byte) * 0x01000193 & 0xFFFFFFFF
    return hash


def uniform(name, count):
    """u for the first `count` indices of a tensor, float64."""
    x = (np.uint64(fnv1a(name)) << np.uint64(32)) + np.arange(count, dtype=np.uint64)
    x += np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    x ^= x >> np.uint64(31)
    return (x >> np.uint64(40)).astype(np.float64) / 2**24 - 0.5


def values(name, shape, adds_one):
    u = uniform(name, int(np.prod(shape))).reshape(shape)
    if len(shape) == 2:
        u = u / 2
    elif name.endswith("norm.weight") and not adds_one:
        u = 1 + u
    return torch.from_numpy(u.astype(np.float32))


def build(config):
    model_class = CLASSES[config["model_type"]]
    plain = json.loads(json.dumps({key: value for key, value in config.items() if key != "model_type"}))
    model = model_class._from_config(model_class.config_class(**plain), attn_implementation="eager").eval()
    adds_one = config["model_type"] == "gemma3_text"
    state = {name: values(name, tuple(tensor.shape), adds_one) for name, tensor in model.state_dict().items()}
    if config["tie_word_embeddings"]:
        state["lm_head.weight"] = state["model.embed_tokens.weight"]
    model.load_state_dict(state)
    return model


def last_logits(model, ids):
    with torch.no_grad():
        return model(torch.tensor([ids]), use_cache=False).logits[0, -1]


def case(name, config):
    model, ids = build(config), list(IDS)
    logits = [round(float(value), 6) for value in last_logits(model, ids)]
    for _ in range(GREEDY_TOKENS):
        ids.append(int(last_logits(model, ids).argmax()))
    return {"name": name, "config": config, "ids": IDS, "logits": logits, "greedy": ids[len(IDS) :]}


if __name__ == "__main__":
    cases = [case(name, config) for name, config in CASES.items()]
    lines = ",\n".join("  " + json.dumps(entry) for entry in cases)
    (HERE / "generated.json").write_text(f"[\n{lines}\n]\n")
