"""What each format of keys and values costs in quality: perplexity, and KL divergence from f16, over a real text.

    python kv_formats.py MODEL.gguf TEXT [--context 2048]

The weights are dequantised to float32 and everything else is exact, so the differences are those of the formats alone.
A row sees the keys of its own page of 64 tokens in half precision and those of earlier pages as codes. The table has
keys alone, values alone and both, and the same with a scale a token of keys in place of one a channel and page.
"""

import argparse
import math
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS, eager_mask
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

PAGE = 64
# Name: (keys, values)
VARIANTS = {
    "f16": ("f16", "f16"),
    "bf16": ("bf16", "bf16"),
    "int8 keys": ("channel", "f16"),
    "int8 values": ("f16", "token"),
    "int8": ("channel", "token"),
    "int8 keys, a scale a token": ("token", "f16"),
    "int8, a scale a token for both": ("token", "token"),
}
chosen = ("f16", "f16")


def rounded(x, dtype):
    return x.to(dtype).to(torch.float32)


def codes(x, axis):
    scale = rounded(x.abs().amax(axis, keepdim=True) / 127, torch.float16)
    return torch.where(scale > 0, (x / scale).round().clamp(-127, 127), 0) * scale


def kept(x, kind):
    """Keys or values `[1, heads, tokens, dim]` as later pages see them."""
    if kind == "bf16":
        return rounded(x, torch.bfloat16)
    if kind == "token":
        return codes(x, -1)
    x = rounded(x, torch.float16)
    if kind == "channel":
        batch, heads, tokens, dim = x.shape
        whole = tokens // PAGE * PAGE
        pages = codes(x[:, :, :whole].reshape(batch, heads, -1, PAGE, dim), 3)
        return torch.cat([pages.reshape(batch, heads, whole, dim), x[:, :, whole:]], 2)
    return x


def attention(module, query, key, value, attention_mask, scaling, **_):
    groups = query.shape[1] // key.shape[1]
    keys, values = chosen
    value = kept(value, values).repeat_interleave(groups, 1)
    own = rounded(key, torch.float16).repeat_interleave(groups, 1)
    earlier = kept(key, keys).repeat_interleave(groups, 1)
    page = torch.arange(query.shape[2]) // PAGE
    scores = query @ earlier.transpose(2, 3)
    if keys in ("channel", "token"):
        scores = torch.where(page[:, None] == page[None, :], query @ own.transpose(2, 3), scores)
    weights = (scores * scaling + attention_mask).softmax(-1)
    return (weights @ value).transpose(1, 2).contiguous(), None


@torch.no_grad()
def scores_of(model, windows):
    return [model(input_ids=window[None]).logits[0].log_softmax(-1) for window in windows]


def main():
    global chosen
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("text", type=Path)
    parser.add_argument("--context", type=int, default=2048)
    arguments = parser.parse_args()
    ALL_ATTENTION_FUNCTIONS.register("formats", attention)
    ALL_MASK_ATTENTION_FUNCTIONS.register("formats", eager_mask)
    folder, file = arguments.model.parent, arguments.model.name
    tokenizer = AutoTokenizer.from_pretrained(folder, gguf_file=file)
    model = AutoModelForCausalLM.from_pretrained(
        folder, gguf_file=file, dtype=torch.float32, attn_implementation="formats"
    ).eval()
    ids = tokenizer(arguments.text.read_text(), return_tensors="pt").input_ids[0]
    windows = [window for window in ids.split(arguments.context) if len(window) > 1]
    print(f"{file}: {len(ids)} tokens in windows of {arguments.context}")
    base = None
    for name, formats in VARIANTS.items():
        chosen = formats
        found = scores_of(model, windows)
        base = base or found
        nll = [-scores[:-1].gather(1, window[1:, None]) for scores, window in zip(found, windows)]
        kl = [(a.exp() * (a - b)).sum(-1) for a, b in zip(base, found)]
        perplexity = math.exp(torch.cat(nll).mean())
        print(f"{name:32} perplexity {perplexity:.5f}  KL {torch.cat(kl).mean():.3e} nats", flush=True)


if __name__ == "__main__":
    main()
