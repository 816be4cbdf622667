"""What drafters of tiny generated models compute, in float64 and with nothing of the engine in it.

    python drafters.py      writes drafters.json (needs numpy)

Weights follow from their names: an FNV-1a hash of the name seeds splitmix64, and the place in the tensor counts; the
engine's tests make the same ones. The target is a dense decoder of four layers with a norm a head; the drafter reads
the streams into its layers 2, 2 and 1 (early, middle and late of four), and has a vocabulary of 16 of 64 tokens.
"""

import json
from pathlib import Path

import numpy as np

PROMPT = [1, 5, 9, 2, 7, 11, 3, 8, 4, 6, 10, 12]
HIDDEN, INNER, HEADS, KV_HEADS, DIM, VOCABULARY, DRAFTED = 32, 48, 4, 2, 16, 64, 16
THETA, EPSILON = 1e6, 1e-6
M64 = (1 << 64) - 1


def uniform(name, count):
    """Numbers of [-0.5, 0.5)."""
    seed = 0x811C9DC5
    for byte in name.encode():
        seed = ((seed ^ byte) * 0x01000193) & 0xFFFFFFFF
    numbers = []
    for n in range(count):
        x = ((seed << 32) + n + 0x9E3779B97F4A7C15) & M64
        x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & M64
        x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & M64
        x ^= x >> 31
        numbers.append((x >> 40) / (1 << 24) - 0.5)
    return np.array(numbers)


def matrix(name, rows, columns):
    return 0.5 * uniform(name, rows * columns).reshape(rows, columns)


def norm(x, name):
    weight = 1 + uniform(name, x.shape[-1])
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + EPSILON) * weight


def silu(x):
    return x / (1 + np.exp(-x))


def rope(x, positions):
    """x [tokens, heads, dim], the halves of each head against each other."""
    half = DIM // 2
    angles = positions[:, None] * THETA ** (-2 * np.arange(half) / DIM)
    cos, sin = np.cos(angles)[:, None, :], np.sin(angles)[:, None, :]
    a, b = x[..., :half], x[..., half:]
    return np.concatenate([a * cos - b * sin, b * cos + a * sin], -1)


def attention(x, scope, normed):
    """Causal attention of tokens at positions 0, 1, ..; x [tokens, columns]."""
    tokens, columns = x.shape
    positions = np.arange(tokens)
    project = lambda name, heads: (x @ matrix(f"{scope}{name}_proj.weight", heads * DIM, columns).T).reshape(tokens, heads, DIM)
    q, k, v = project("q", HEADS), project("k", KV_HEADS), project("v", KV_HEADS)
    if normed:
        q, k = norm(q, f"{scope}q_norm.weight"), norm(k, f"{scope}k_norm.weight")
    q, k = rope(q, positions), rope(k, positions)
    k, v = (part.repeat(HEADS // KV_HEADS, 1) for part in (k, v))
    scores = np.einsum("ihd,jhd->hij", q, k) / np.sqrt(DIM)
    scores = np.where(np.tril(np.ones((tokens, tokens), bool)), scores, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    y = np.einsum("hij,jhd->ihd", weights, v).reshape(tokens, HEADS * DIM)
    return y @ matrix(f"{scope}o_proj.weight", HIDDEN, HEADS * DIM).T


def feed_forward(x, scope):
    gate = x @ matrix(f"{scope}gate_proj.weight", INNER, HIDDEN).T
    up = x @ matrix(f"{scope}up_proj.weight", INNER, HIDDEN).T
    return (silu(gate) * up) @ matrix(f"{scope}down_proj.weight", HIDDEN, INNER).T


def streams(tokens):
    """The residual stream of the target before its first layer and after each."""
    x = matrix("model.embed_tokens.weight", VOCABULARY, HIDDEN)[tokens]
    found = [x]
    for layer in range(4):
        scope = f"model.layers.{layer}."
        x = x + attention(norm(x, f"{scope}input_layernorm.weight"), f"{scope}self_attn.", True)
        x = x + feed_forward(norm(x, f"{scope}post_attention_layernorm.weight"), f"{scope}mlp.")
        found.append(x)
    return found


def feature_layer(embedded, features):
    """The stream that the drafter's layer leaves for each position."""
    both = np.concatenate([norm(embedded, "midlayer.input_layernorm.weight"), norm(features, "midlayer.hidden_norm.weight")], -1)
    x = features + attention(both, "midlayer.self_attn.", False)
    return x + feed_forward(norm(x, "midlayer.post_attention_layernorm.weight"), "midlayer.mlp.")


def scores(x):
    return norm(x, "norm.weight") @ matrix("lm_head.weight", DRAFTED, HIDDEN).T


def main():
    target = streams(PROMPT)
    taps = np.concatenate([target[tap] for tap in (2, 2, 1)], -1)
    features = taps @ matrix("fc.weight", HIDDEN, 3 * HIDDEN).T
    embedding = matrix("model.embed_tokens.weight", VOCABULARY, HIDDEN)
    logits = norm(target[4], "model.norm.weight") @ matrix("lm_head.weight", VOCABULARY, HIDDEN).T
    tokens = PROMPT[1:] + [int(logits[-1].argmax())]
    first = feature_layer(embedding[tokens], features)
    drafted = int(scores(first[-1]).argmax())
    # The next draft has the drafter's own stream as its feature, and the first draft's target id as its token.
    chained = feature_layer(embedding[tokens + [3 * drafted + 5]], np.concatenate([features, first[-1:]]))
    golden = {
        "next": tokens[-1],
        "first": [round(float(x), 6) for x in scores(first[-1])],
        "second": [round(float(x), 6) for x in scores(chained[-1])],
    }
    (Path(__file__).parent / "drafters.json").write_text(json.dumps(golden) + "\n")


if __name__ == "__main__":
    main()
