"""GGUF twins: the same checkpoint under GGUF's names, layouts and metadata.

Differences of meaning between the two containers: some architectures store the rows of q and k in interleaved order
(pairs 2i, 2i+1 instead of i, i + half), some norm weights with the one added; llama3 rope scaling is a tensor of
divisors; experts are stacks (see layouts.py, which also has the hybrids). 1-D tensors are always float32.

A config that GGUF has no keys for is refused: `unsayable` lists what.
"""

import math

import gguf
import numpy as np
import torch

from layouts import ARCHITECTURES, INTERLEAVED, NAMES, regrouped
from weights import norms_lack_one

FORMATS = {
    "f32": gguf.GGMLQuantizationType.F32,
    "f16": gguf.GGMLQuantizationType.F16,
    "bf16": gguf.GGMLQuantizationType.BF16,
    "q8_0": gguf.GGMLQuantizationType.Q8_0,
    "mxfp4": gguf.GGMLQuantizationType.MXFP4,  # Of the experts; the rest is bf16.
}
LOSSY = {"q8_0"}
POOLING = None  # Of an embedding model being written: which rows count, and its projections.
ALWAYS_F32 = ("ffn_gate_inp.weight", "ssm_conv1d.weight", "exps.bias")

OUTER_NAMES = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}


def architecture(config):
    if POOLING and config["model_type"] == "gemma3_text":
        return "gemma-embedding"
    kind = config["model_type"].removesuffix("_text")
    return ARCHITECTURES.get(kind, kind)


def gguf_name(config, name):
    """The GGUF name of a hub tensor."""
    stem, kind = name.rsplit(".", 1)
    if stem in OUTER_NAMES:
        return f"{OUTER_NAMES[stem]}.{kind}"
    layer, stem = stem.removeprefix("model.layers.").split(".", 1)
    names = NAMES[architecture(config)]
    whole = names.get(f"{stem}.{kind}")
    return f"blk.{layer}.{whole or f'{names[stem]}.{kind}'}"


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
    if architecture(config) not in INTERLEAVED:
        return None
    if "q_proj" in name:
        return config["num_attention_heads"]
    return config["num_key_value_heads"] if "k_proj" in name else None


def to_gguf(config, name, tensor):
    """Values of a hub tensor as GGUF means them, float32."""
    values = tensor.float().numpy()
    if heads := permuted_heads(config, name):
        values = interleave(values, heads)
    if norms_lack_one(config) and name.endswith("norm.weight") and "linear_attn" not in name:
        values = values + np.float32(1)
    return np.ascontiguousarray(values)


def from_gguf(config, name, values):
    """Values of a GGUF tensor as the hub means them, float32."""
    if heads := permuted_heads(config, name):
        values = halve(values, heads)
    if norms_lack_one(config) and name.endswith("norm.weight") and "linear_attn" not in name:
        values = values - np.float32(1)
    return torch.from_numpy(np.array(values, dtype=np.float32, order="C"))


def unsayable(config):
    """What the config says and GGUF has no keys for, if anything."""
    rope = config.get("rope_scaling") or config.get("rope_parameters") or {}
    reasons = {
        "dynamic rope": rope.get("rope_type") == "dynamic",
        "a ramp that doesn't end at whole pairs": rope.get("truncate") is False and config["model_type"] != "gpt_oss",
        "which layers slide": config.get("use_sliding_window") or config["model_type"] == "ministral",
        "layers without experts": config.get("mlp_only_layers"),
        "how scores are scaled": config["model_type"].startswith("gemma3") and config["query_pre_attn_scalar"] != config["head_dim"],
        "the bound of the gate": config.get("swiglu_limit", 7.0) != 7.0,
    }
    return [reason for reason, found in reasons.items() if found]


def format_of(format, name, values):
    """The type of one tensor."""
    if values.ndim == 1 or name.endswith(ALWAYS_F32):
        return FORMATS["f32"]
    if format == "mxfp4" and not name.endswith("exps.weight"):
        return FORMATS["bf16"]
    return FORMATS[format]


def write(folder, case, tensors, format):
    """Writes `NAME-FORMAT.gguf`. Returns its stem, and for a lossy format the dequantised hub tensors."""
    config, stem = case.config, f"{case.name}-{format}"
    if unsayable(config):
        raise SystemExit(f"{case.name}: GGUF has no keys for {', '.join(unsayable(config))}")
    writer = gguf.GGUFWriter(folder / f"{stem}.gguf", architecture(config))
    write_metadata(writer, config, case.name, tensors)
    dequantised = {}
    for name, tensor in regrouped(config, tensors).items():
        values = to_gguf(config, name, tensor)
        kind = format_of(format, gguf_name(config, name), values)
        data = gguf.quants.quantize(values, kind)
        writer.add_tensor(gguf_name(config, name), data, raw_dtype=kind)
        dequantised[name] = from_gguf(config, name, gguf.quants.dequantize(data, kind))
    for number, weight in enumerate(POOLING[1] if POOLING else []):
        data = gguf.quants.quantize(weight.float().numpy(), FORMATS[format])
        writer.add_tensor(f"dense_{number + 2}.weight", data, raw_dtype=FORMATS[format])
    scaling = config.get("rope_scaling") or {}
    if scaling.get("rope_type") == "llama3":
        writer.add_tensor("rope_freqs.weight", llama3_divisors(config, scaling))
    for length in ("long", "short"):
        if f"{length}_factor" in scaling:
            writer.add_tensor(f"rope_factors_{length}.weight", np.array(scaling[f"{length}_factor"], dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    if config["tie_word_embeddings"]:
        dequantised["lm_head.weight"] = dequantised["model.embed_tokens.weight"]
    return stem, dequantised if format in LOSSY else None


def write_metadata(writer, config, name, tensors):
    head_dim = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
    writer.add_name(name)
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    beside = any(name.startswith("mtp.") for name in tensors)
    writer.add_block_count(config["num_hidden_layers"] + beside)
    if "intermediate_size" in config:
        writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_key_length(head_dim)
    writer.add_value_length(head_dim)
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_vocab_size(config["vocab_size"])
    rope = config.get("rope_parameters") or config
    rope = rope.get("full_attention", rope)
    writer.add_rope_dimension_count(int(head_dim * (rope.get("partial_rotary_factor") or config.get("partial_rotary_factor", 1.0))))
    writer.add_rope_freq_base(rope["rope_theta"])
    write_rope_scaling(writer, config, config.get("rope_scaling") or rope)
    if architecture(config) in ("gemma3", "gemma-embedding"):
        write_windows(writer, config)
    if POOLING:
        writer.add_pooling_type(gguf.PoolingType.MEAN if POOLING[0] == "mean" else gguf.PoolingType.LAST)
    if beside:
        writer.add_uint32(f"{architecture(config)}.nextn_predict_layers", 1)
    write_members(writer, config)


def write_members(writer, config):
    """What single architectures have beside the common keys."""
    known = architecture(config)
    if experts := config.get("num_experts") or config.get("num_local_experts"):
        writer.add_expert_count(experts)
        writer.add_expert_used_count(config["num_experts_per_tok"])
        if inner := config.get("moe_intermediate_size"):
            writer.add_expert_feed_forward_length(inner)
        if shared := config.get("shared_expert_intermediate_size"):
            writer.add_expert_shared_feed_forward_length(shared)
    if "linear_conv_kernel_dim" in config:
        heads = config["linear_num_value_heads"]
        writer.add_ssm_conv_kernel(config["linear_conv_kernel_dim"])
        writer.add_ssm_state_size(config["linear_key_head_dim"])
        writer.add_ssm_group_count(config["linear_num_key_heads"])
        writer.add_ssm_time_step_rank(heads)
        writer.add_ssm_inner_size(heads * config["linear_value_head_dim"])
        writer.add_uint32(f"{known}.full_attention_interval", 4)
    if known in ("gemma2", "gpt-oss") or config["model_type"] == "mistral":
        writer.add_sliding_window(config["sliding_window"])
    if known == "gemma2":
        writer.add_attn_logit_softcapping(config["attn_logit_softcapping"])
        writer.add_final_logit_softcapping(config["final_logit_softcapping"])
    if known == "mistral3":
        scaling = config["rope_parameters"]
        writer.add_rope_scaling_yarn_log_mul(scaling["mscale_all_dim"])
        writer.add_attn_temperature_scale(scaling["llama_4_scaling_beta"])
    if known == "granite":
        writer.add_embedding_scale(config["embedding_multiplier"])
        writer.add_attention_scale(config["attention_multiplier"])
        writer.add_residual_scale(config["residual_multiplier"])
        writer.add_logit_scale(config["logits_scaling"])


def write_rope_scaling(writer, config, scaling):
    kind = scaling.get("rope_type") or scaling.get("type")
    if kind in ("linear", "yarn"):
        writer.add_rope_scaling_type(gguf.RopeScalingType(kind))
        writer.add_rope_scaling_factor(scaling["factor"])
    if kind == "yarn":
        writer.add_rope_scaling_orig_ctx_len(scaling["original_max_position_embeddings"])
        for key in ("attention_factor", "beta_fast", "beta_slow"):
            if key in scaling:
                getattr(writer, f"add_rope_scaling_yarn_{key.replace('attention', 'attn')}")(scaling[key])
    if kind == "longrope":
        original = config["original_max_position_embeddings"]
        stretch = config["max_position_embeddings"] / original
        writer.add_rope_scaling_orig_ctx_len(original)
        writer.add_rope_scaling_attn_factors(math.sqrt(1 + math.log(stretch) / math.log(original)))


def write_windows(writer, config):
    layers = config["num_hidden_layers"]
    if kinds := config.get("layer_types"):
        slides = [kind == "sliding_attention" for kind in kinds]
        theta = config["rope_parameters"]["sliding_attention"]["rope_theta"]
    else:
        slides = [(layer + 1) % config["sliding_window_pattern"] != 0 for layer in range(layers)]
        theta = config["rope_local_base_freq"]
    writer.add_sliding_window(config["sliding_window"])
    writer.add_sliding_window_pattern(slides)
    writer.add_rope_freq_base_swa(theta)
    if config["final_logit_softcapping"]:
        writer.add_final_logit_softcapping(config["final_logit_softcapping"])


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
