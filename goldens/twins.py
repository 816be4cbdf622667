"""GGUF twins: the same checkpoint under GGUF's names, layouts and metadata.

Differences of meaning between the two containers: `llama` stores the rows of q and k in interleaved order (pairs
2i, 2i+1 instead of i, i + half), `gemma3` stores norm weights with the one added, llama3 rope scaling is a tensor
of divisors. 1-D tensors are always float32.
"""

import math

import gguf
import numpy as np
import torch

FORMATS = {
    "f32": gguf.GGMLQuantizationType.F32,
    "f16": gguf.GGMLQuantizationType.F16,
    "bf16": gguf.GGMLQuantizationType.BF16,
    "q8_0": gguf.GGMLQuantizationType.Q8_0,
}
LOSSY = {"q8_0"}

LAYER_NAMES = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
GEMMA_NAMES = LAYER_NAMES | {
    "post_attention_layernorm": "post_attention_norm",
    "pre_feedforward_layernorm": "ffn_norm",
    "post_feedforward_layernorm": "post_ffw_norm",
}
OUTER_NAMES = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}


def architecture(config):
    return config["model_type"].removesuffix("_text")


def gguf_name(config, name):
    """The GGUF name of a hub tensor."""
    stem, kind = name.rsplit(".", 1)
    if stem in OUTER_NAMES:
        return f"{OUTER_NAMES[stem]}.{kind}"
    layer, stem = stem.removeprefix("model.layers.").split(".", 1)
    names = GEMMA_NAMES if architecture(config) == "gemma3" else LAYER_NAMES
    return f"blk.{layer}.{names[stem]}.{kind}"


def interleave(rows, heads):
    """Rows of q or k from two halves a head to interleaved pairs."""
    halves = rows.reshape(heads, 2, -1, *rows.shape[1:])
    return halves.swapaxes(1, 2).reshape(rows.shape)


def halve(rows, heads):
    """The inverse of `interleave`."""
    pairs = rows.reshape(heads, -1, 2, *rows.shape[1:])
    return pairs.swapaxes(1, 2).reshape(rows.shape)


def permuted_heads(config, name):
    """The heads of a tensor whose rows GGUF interleaves, or nothing."""
    if architecture(config) != "llama":
        return None
    if "q_proj" in name:
        return config["num_attention_heads"]
    return config["num_key_value_heads"] if "k_proj" in name else None


def to_gguf(config, name, tensor):
    """Values of a hub tensor as GGUF means them, float32."""
    values = tensor.float().numpy()
    if heads := permuted_heads(config, name):
        values = interleave(values, heads)
    if architecture(config) == "gemma3" and name.endswith("norm.weight"):
        values = values + np.float32(1)
    return np.ascontiguousarray(values)


def from_gguf(config, name, values):
    """Values of a GGUF tensor as the hub means them, float32."""
    if heads := permuted_heads(config, name):
        values = halve(values, heads)
    if architecture(config) == "gemma3" and name.endswith("norm.weight"):
        values = values - np.float32(1)
    return torch.from_numpy(np.array(values, dtype=np.float32, order="C"))


def write(folder, case, tensors, format):
    """Writes `NAME-FORMAT.gguf`. Returns its stem, and for a lossy format the dequantised hub tensors."""
    config, stem = case.config, f"{case.name}-{format}"
    writer = gguf.GGUFWriter(folder / f"{stem}.gguf", architecture(config))
    write_metadata(writer, config, case.name)
    dequantised = {}
    for name, tensor in tensors.items():
        values = to_gguf(config, name, tensor)
        kind = FORMATS[format] if values.ndim == 2 else FORMATS["f32"]
        data = gguf.quants.quantize(values, kind)
        writer.add_tensor(gguf_name(config, name), data, raw_dtype=kind)
        dequantised[name] = from_gguf(config, name, gguf.quants.dequantize(data, kind))
    scaling = config.get("rope_scaling") or {}
    if scaling.get("rope_type") == "llama3":
        writer.add_tensor("rope_freqs.weight", llama3_divisors(config, scaling))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    if config["tie_word_embeddings"]:
        dequantised["lm_head.weight"] = dequantised["model.embed_tokens.weight"]
    return stem, dequantised if format in LOSSY else None


def write_metadata(writer, config, name):
    head_dim = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
    writer.add_name(name)
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_key_length(head_dim)
    writer.add_value_length(head_dim)
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_vocab_size(config["vocab_size"])
    writer.add_rope_dimension_count(head_dim)
    rope = config.get("rope_parameters") or config
    writer.add_rope_freq_base(rope["rope_theta"])
    write_rope_scaling(writer, config.get("rope_scaling") or {})
    if architecture(config) == "gemma3":
        write_windows(writer, config)


def write_rope_scaling(writer, scaling):
    kind = scaling.get("rope_type")
    if kind in ("linear", "yarn"):
        writer.add_rope_scaling_type(gguf.RopeScalingType(kind))
        writer.add_rope_scaling_factor(scaling["factor"])
    if kind == "yarn":
        writer.add_rope_scaling_orig_ctx_len(scaling["original_max_position_embeddings"])


def write_windows(writer, config):
    pattern, layers = config["sliding_window_pattern"], config["num_hidden_layers"]
    writer.add_sliding_window(config["sliding_window"])
    writer.add_sliding_window_pattern([(layer + 1) % pattern != 0 for layer in range(layers)])
    writer.add_rope_freq_base_swa(config["rope_local_base_freq"])


def llama3_divisors(config, scaling):
    """By how much llama3 scaling divides each inverse frequency."""
    width = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
    low, high = scaling["low_freq_factor"], scaling["high_freq_factor"]
    length, factor = scaling["original_max_position_embeddings"], scaling["factor"]
    divisors = []
    for pair in range(width // 2):
        turns = length * config["rope_theta"] ** (-2 * pair / width) / (2 * math.pi)
        mix = min(max((turns - low) / (high - low), 0.0), 1.0)
        divisors.append(1 / ((1 - mix) / factor + mix))
    return np.array(divisors, dtype=np.float32)
