"""Names and layouts of GGUF files that differ from those of hub checkpoints, an architecture each."""

import torch

# Values of `general.architecture` that are not the model type.
ARCHITECTURES = {
    "mixtral": "llama",
    "qwen2_moe": "qwen2moe",
    "qwen3_moe": "qwen3moe",
    "qwen3_next": "qwen3next",
    "qwen3_5": "qwen35",
    "qwen3_5_moe": "qwen35moe",
    "gpt_oss": "gpt-oss",
    "mistral": "llama",
    "ministral3": "mistral3",
}
# Rows of q and k are stored as interleaved pairs.
INTERLEAVED = ("llama", "granite", "smollm3", "mistral3")

ATTENTION = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.qkv_proj": "attn_qkv",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "self_attn.sinks.weight": "attn_sinks.weight",
}
FEED_FORWARD = {
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.gate_up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "mlp.gate": "ffn_gate_inp",
    "mlp.router": "ffn_gate_inp",
    "mlp.experts.gate": "ffn_gate_exps",
    "mlp.experts.up": "ffn_up_exps",
    "mlp.experts.down": "ffn_down_exps",
    "mlp.shared_expert.gate_proj": "ffn_gate_shexp",
    "mlp.shared_expert.up_proj": "ffn_up_shexp",
    "mlp.shared_expert.down_proj": "ffn_down_shexp",
    "mlp.shared_expert_gate": "ffn_gate_inp_shexp",
}
PRE_NORMED = ATTENTION | FEED_FORWARD | {"post_attention_layernorm": "ffn_norm"}
AROUND = PRE_NORMED | {
    "post_attention_layernorm": "post_attention_norm",
    "pre_feedforward_layernorm": "ffn_norm",
    "post_feedforward_layernorm": "post_ffw_norm",
}
HYBRID = PRE_NORMED | {
    "post_attention_layernorm": "post_attention_norm",
    "linear_attn.in_proj_qkv": "attn_qkv",
    "linear_attn.in_proj_z": "attn_gate",
    "linear_attn.in_proj_b": "ssm_beta",
    "linear_attn.in_proj_a": "ssm_alpha",
    "linear_attn.in_proj_ba": "ssm_ba",
    "linear_attn.conv1d": "ssm_conv1d",
    "linear_attn.decay.weight": "ssm_a",
    "linear_attn.dt.bias": "ssm_dt.bias",
    "linear_attn.norm": "ssm_norm",
    "linear_attn.out_proj": "ssm_out",
    "nextn.eh_proj": "nextn.eh_proj",
    "nextn.enorm": "nextn.enorm",
    "nextn.hnorm": "nextn.hnorm",
    "nextn.shared_head_norm": "nextn.shared_head_norm",
}
NAMES = {
    "llama": PRE_NORMED,
    "mistral3": PRE_NORMED,
    "qwen2": PRE_NORMED,
    "qwen2moe": PRE_NORMED,
    "qwen3": PRE_NORMED,
    "qwen3moe": PRE_NORMED,
    "qwen3next": HYBRID,
    "qwen35": HYBRID,
    "qwen35moe": HYBRID,
    "gemma2": AROUND,
    "gemma3": AROUND,
    "gemma-embedding": AROUND,
    "phi3": PRE_NORMED,
    "granite": PRE_NORMED,
    "smollm3": PRE_NORMED,
    "olmo2": AROUND,
    "glm4": PRE_NORMED | {"post_self_attn_layernorm": "post_attention_norm", "post_mlp_layernorm": "post_ffw_norm"},
    "gpt-oss": PRE_NORMED | {"post_attention_layernorm": "post_attention_norm"},
}

# Tensors beside the layers of the head that predicts further tokens.
NEXT = {"fc": "eh_proj", "pre_fc_norm_embedding": "enorm", "pre_fc_norm_hidden": "hnorm", "norm": "shared_head_norm"}


def regrouped(config, tensors):
    """Hub tensors as GGUF groups them, under names like the hub's that `NAMES` has a row for."""
    tensors = with_head_beside(config, dict(tensors))
    tensors = stacked(config, tensors)
    for layer in range(config["num_hidden_layers"]):
        scope = f"model.layers.{layer}.linear_attn."
        if f"{scope}A_log" in tensors:
            delta(config, tensors, scope)
    return {rename(name): tensor for name, tensor in tensors.items()}


def rename(name):
    """Names without a kind get one."""
    return f"{name}.weight" if name.endswith(".sinks") else name


def with_head_beside(config, tensors):
    """The layer of the head as one more of the model."""
    scope = f"model.layers.{config['num_hidden_layers']}."
    for name in [name for name in tensors if name.startswith("mtp.")]:
        tensor, rest = tensors.pop(name), name.removeprefix("mtp.")
        if rest.startswith("layers.0."):
            tensors[scope + rest.removeprefix("layers.0.")] = tensor
        else:
            stem, kind = rest.rsplit(".", 1)
            tensors[f"{scope}nextn.{NEXT[stem]}.{kind}"] = tensor
    return tensors


def stacked(config, tensors):
    """Experts as stacks of gate, up and down."""
    kept, parts = {}, {}
    olds = {"w1": "gate_proj", "w3": "up_proj", "w2": "down_proj"}
    for name, tensor in tensors.items():
        name = name.replace(".block_sparse_moe.", ".mlp.")
        if ".mlp.experts." not in name:
            kept[name] = tensor.reshape(-1) if name.endswith("shared_expert_gate.weight") else tensor
            continue
        scope, rest = name.split(".mlp.experts.")
        scope += ".mlp.experts."
        first = rest.split(".")[0]
        if first.isdigit():
            stem = rest.split(".")[1]
            parts.setdefault(scope + olds.get(stem, stem).removesuffix("_proj") + ".weight", []).append(tensor)
        elif config["model_type"] == "gpt_oss":
            kept |= alternating(scope, rest, tensor)
        elif rest == "gate_up_proj":
            kept[f"{scope}gate.weight"], kept[f"{scope}up.weight"] = tensor.chunk(2, dim=1)
        else:
            kept[f"{scope}down.weight"] = tensor
    return kept | {name: torch.stack(experts) for name, experts in parts.items()}


def alternating(scope, rest, tensor):
    """Experts whose matrices are transposed and whose gate and up alternate."""
    kind = "bias" if rest.endswith("_bias") else "weight"
    rows = tensor if kind == "bias" else tensor.transpose(1, 2)
    if rest.startswith("down"):
        return {f"{scope}down.{kind}": rows}
    return {f"{scope}gate.{kind}": rows[:, ::2], f"{scope}up.{kind}": rows[:, 1::2]}


def delta(config, tensors, scope):
    """A delta rule: projections apart, the decay as it multiplies; some order value heads by key head last."""
    keys, key_dim = config["linear_num_key_heads"], config["linear_key_head_dim"]
    heads, dim = config["linear_num_value_heads"], config["linear_value_head_dim"]
    each, width = heads // keys, keys * key_dim
    if config["model_type"] == "qwen3_next":
        grouped = tensors.pop(f"{scope}in_proj_qkvz.weight")
        groups = grouped.reshape(keys, 2 * (key_dim + each * dim), -1)
        q, k, v, z = groups.split([key_dim, key_dim, each * dim, each * dim], dim=1)
        flat = [part.reshape(-1, grouped.shape[1]) for part in (q, k, v)]
        tensors[f"{scope}in_proj_qkv.weight"] = torch.cat(flat)
        tensors[f"{scope}in_proj_z.weight"] = z.reshape(-1, grouped.shape[1])
    tensors[f"{scope}conv1d.weight"] = tensors[f"{scope}conv1d.weight"].squeeze(1)
    tensors[f"{scope}decay.weight"] = -tensors.pop(f"{scope}A_log").float().exp()
    tensors[f"{scope}dt.bias"] = tensors.pop(f"{scope}dt_bias")
    if config["model_type"] == "qwen3_next":
        return
    # GGUF head j is hub head (j % keys) * each + j // keys.
    order = torch.tensor([(j % keys) * each + j // keys for j in range(heads)])
    rows = lambda tensor: tensor.reshape(heads, -1, *tensor.shape[1:])[order].reshape(tensor.shape)
    values = lambda tensor: torch.cat([tensor[: 2 * width], rows(tensor[2 * width :])])
    for name in ("in_proj_qkv.weight", "conv1d.weight"):
        tensors[scope + name] = values(tensors[scope + name])
    for name in ("in_proj_z.weight", "in_proj_b.weight", "in_proj_a.weight", "decay.weight", "dt.bias"):
        tensors[scope + name] = rows(tensors[scope + name])
    out = tensors[f"{scope}out_proj.weight"]
    tensors[f"{scope}out_proj.weight"] = rows(out.T.contiguous()).T
