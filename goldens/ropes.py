"""Writes ropes.json: cosines and sines of every kind of rope at positions far apart, by transformers' own module.

    python ropes.py        needs torch and transformers

    [{"name", "config", "context", "positions", "cos": [position][pair], "sin": ...}]

The module computes in float32. `dynamic` and `longrope` follow the longest position of a call, which is the last.
"""

import json
from pathlib import Path

import torch
import transformers
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

POSITIONS = [0, 1, 31, 1000, 4095, 32767, 100001, 131071, 262143]
BASE = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 128,
    "num_attention_heads": 4,
    "num_hidden_layers": 1,
    "max_position_embeddings": 32768,
    "tie_word_embeddings": True,
}
VARIANTS = {
    "default": {},
    "linear": {"rope_type": "linear", "factor": 8.0},
    "dynamic": {"rope_type": "dynamic", "factor": 8.0},
    "yarn": {"rope_type": "yarn", "factor": 8.0, "original_max_position_embeddings": 32768},
    "llama3": {
        "rope_type": "llama3",
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    },
    "longrope": {
        "rope_type": "longrope",
        "short_factor": [1.0 + 0.05 * pair for pair in range(16)],
        "long_factor": [1.0 + 0.5 * pair for pair in range(16)],
        "original_max_position_embeddings": 4096,
    },
}


def entry(name, scaling, theta):
    config = BASE | {"rope_theta": theta} | ({"rope_scaling": scaling} if scaling else {})
    module = LlamaRotaryEmbedding(transformers.LlamaConfig(**json.loads(json.dumps(config))))
    cos, sin = module(torch.zeros(1), torch.tensor([POSITIONS]))
    pairs = cos.shape[-1] // 2
    rows = lambda values: [[float(x) for x in row] for row in values[0, :, :pairs]]
    return {"name": name, "config": config, "context": POSITIONS[-1] + 1, "positions": POSITIONS, "cos": rows(cos), "sin": rows(sin)}


def main():
    entries = [entry(name, scaling, theta) for name, scaling in VARIANTS.items() for theta in (10000.0, 1000000.0)]
    (Path(__file__).parent / "ropes.json").write_text(json.dumps(entries, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
