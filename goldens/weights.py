"""Random weights of a config, under the names and in the dtypes of a hub checkpoint.

The scales keep every part of the forward pass visible in the logits: attention is neither flat nor one-hot, norm
weights lie around one (a wrong +1 shows), and biases are not zero.
"""

import torch

DTYPES = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}


class Maker:
    """Draws tensors from one seeded generator, in a fixed order."""

    def __init__(self, seed):
        self.generator = torch.Generator().manual_seed(1000 + seed)

    def normal(self, shape, std):
        return torch.randn(shape, generator=self.generator) * std

    def checkpoint(self, config):
        """All tensors of a checkpoint, float32."""
        spread = 0.15 if config["model_type"].startswith("gemma") else 0.4
        tensors = {"model.embed_tokens.weight": self.normal((config["vocab_size"], config["hidden_size"]), spread)}
        for layer in range(config["num_hidden_layers"]):
            for name, tensor in self.layer(config, layer).items():
                tensors[f"model.layers.{layer}.{name}"] = tensor
        tensors["model.norm.weight"] = self.norm(config, config["hidden_size"])
        if is_gemma(config):  # As varied logits as in the other families, from smaller embeddings.
            tensors["model.norm.weight"] += 1.0
        if not config["tie_word_embeddings"]:
            tensors["lm_head.weight"] = self.normal((config["vocab_size"], config["hidden_size"]), 0.4)
        return tensors

    def norm(self, config, width):
        """Norm weights: around one, or around zero where the family adds one."""
        centre = 0.0 if norms_lack_one(config) else 1.0
        return centre + self.normal((width,), 0.3)

    def layer(self, config, number):
        """The tensors of one layer, without their prefix."""
        hidden = config["hidden_size"]
        names = NORMS.get(config["model_type"], ["input_layernorm", "post_attention_layernorm"])
        tensors = {f"{name}.weight": self.norm(config, hidden) for name in names}
        if is_gemma(config):  # Branches as strong as the scaled embeddings, or each token would predict itself.
            tensors["post_attention_layernorm.weight"] += 2.0
            tensors["post_feedforward_layernorm.weight"] += 2.0
        mixer = self.delta(config) if is_recurrent(config, number) else self.attention(config)
        experts = has_experts(config, number)
        return tensors | mixer | (self.experts(config) if experts else self.feed_forward(config))

    def attention(self, config):
        hidden, heads = config["hidden_size"], config["num_attention_heads"]
        head_dim = config.get("head_dim") or hidden // heads
        queries, keys = heads * head_dim, config["num_key_value_heads"] * head_dim
        kind = config["model_type"]
        all_biased, but_output = config.get("attention_bias", False), kind in ("qwen2", "qwen2_moe", "glm4")
        projected = queries * (2 if is_hybrid(config) else 1)
        tensors = {}
        for name, rows, columns in [("q", projected, hidden), ("k", keys, hidden), ("v", keys, hidden), ("o", hidden, queries)]:
            biased = (all_biased and kind != "glm4") or (but_output and name != "o")
            tensors |= self.linear(f"self_attn.{name}_proj", rows, columns, 0.16, biased)
        if kind in HEAD_NORMED:
            for name in ("q", "k"):
                tensors[f"self_attn.{name}_norm.weight"] = self.norm(config, head_dim)
        if kind == "olmo2":
            tensors |= {f"self_attn.{name}_norm.weight": self.norm(config, rows) for name, rows in [("q", queries), ("k", keys)]}
        if kind == "phi3":
            parts = [tensors.pop(f"self_attn.{name}_proj.weight") for name in "qkv"]
            tensors["self_attn.qkv_proj.weight"] = torch.cat(parts)
        if kind == "gpt_oss":
            tensors["self_attn.sinks"] = self.normal((heads,), 1.0)
        return tensors

    def delta(self, config):
        """A gated delta rule; states neither vanish nor stay for ever."""
        hidden, kernel = config["hidden_size"], config["linear_conv_kernel_dim"]
        keys = config["linear_num_key_heads"] * config["linear_key_head_dim"]
        heads, dim = config["linear_num_value_heads"], config["linear_value_head_dim"]
        values = heads * dim
        parts = {"in_proj_qkv": 2 * keys + values, "in_proj_z": values, "in_proj_b": heads, "in_proj_a": heads}
        if config["model_type"] == "qwen3_next":
            parts = {"in_proj_qkvz": 2 * (keys + values), "in_proj_ba": 2 * heads}
        tensors = {f"linear_attn.{name}.weight": self.normal((rows, hidden), 0.2) for name, rows in parts.items()}
        return tensors | {
            "linear_attn.conv1d.weight": self.normal((2 * keys + values, 1, kernel), 0.5),
            "linear_attn.A_log": self.normal((heads,), 0.5) - 1.0,
            "linear_attn.dt_bias": self.normal((heads,), 0.5),
            "linear_attn.norm.weight": 1.0 + self.normal((dim,), 0.3),
            "linear_attn.out_proj.weight": self.normal((hidden, values), 0.2),
        }

    def experts(self, config):
        """Experts as hub checkpoints hold them: a tensor each, or fused, or transposed and alternating."""
        hidden, kind = config["hidden_size"], config["model_type"]
        count = config.get("num_experts") or config["num_local_experts"]
        inner = config.get("moe_intermediate_size") or config["intermediate_size"]
        if kind == "gpt_oss":
            return self.linear("mlp.router", count, hidden, 0.3, True) | {
                "mlp.experts.gate_up_proj": self.normal((count, hidden, 2 * inner), 0.2),
                "mlp.experts.gate_up_proj_bias": self.normal((count, 2 * inner), 0.5),
                "mlp.experts.down_proj": self.normal((count, inner, hidden), 0.2),
                "mlp.experts.down_proj_bias": self.normal((count, hidden), 0.3),
            }
        scope, names = ("block_sparse_moe", ["w1", "w3", "w2"]) if kind == "mixtral" else ("mlp", ["gate_proj", "up_proj", "down_proj"])
        tensors = self.linear(f"{scope}.gate", count, hidden, 0.3, False)
        if kind.startswith("qwen3_5_moe"):
            tensors["mlp.experts.gate_up_proj"] = self.normal((count, 2 * inner, hidden), 0.2)
            tensors["mlp.experts.down_proj"] = self.normal((count, hidden, inner), 0.2)
        else:
            for expert in range(count):
                for name, rows, columns in zip(names, [inner, inner, hidden], [hidden, hidden, inner]):
                    tensors |= self.linear(f"{scope}.experts.{expert}.{name}", rows, columns, 0.2, False)
        if shared := config.get("shared_expert_intermediate_size"):
            for name, rows, columns in [("gate", shared, hidden), ("up", shared, hidden), ("down", hidden, shared)]:
                tensors |= self.linear(f"mlp.shared_expert.{name}_proj", rows, columns, 0.2, False)
            tensors |= self.linear("mlp.shared_expert_gate", 1, hidden, 0.3, False)
        return tensors

    def next_tokens(self, config):
        """A head that predicts further tokens: a layer like the model's last, which is one of attention."""
        hidden = config["hidden_size"]
        tensors = {f"mtp.layers.0.{name}": tensor for name, tensor in self.layer(config, config["num_hidden_layers"] - 1).items()}
        for name in ("pre_fc_norm_embedding", "pre_fc_norm_hidden", "norm"):
            tensors[f"mtp.{name}.weight"] = self.norm(config, hidden)
        return tensors | self.linear("mtp.fc", hidden, 2 * hidden, 0.16, False)

    def feed_forward(self, config):
        hidden, inner = config["hidden_size"], config["intermediate_size"]
        biased = config.get("mlp_bias", False)
        tensors = {}
        for name, rows, columns in [("gate", inner, hidden), ("up", inner, hidden), ("down", hidden, inner)]:
            tensors |= self.linear(f"mlp.{name}_proj", rows, columns, 0.14, biased)
        if config["model_type"] in ("phi3", "glm4"):
            parts = [tensors.pop(f"mlp.{name}_proj.weight") for name in ("gate", "up")]
            tensors["mlp.gate_up_proj.weight"] = torch.cat(parts)
        return tensors

    def linear(self, name, rows, columns, std, biased):
        tensors = {f"{name}.weight": self.normal((rows, columns), std)}
        if biased:
            tensors[f"{name}.bias"] = self.normal((rows,), 0.3)
        return tensors


AROUND = ["input_layernorm", "post_attention_layernorm", "pre_feedforward_layernorm", "post_feedforward_layernorm"]
NORMS = {
    "gemma2": AROUND,
    "gemma3_text": AROUND,
    "olmo2": ["post_attention_layernorm", "post_feedforward_layernorm"],
    "glm4": ["input_layernorm", "post_self_attn_layernorm", "post_attention_layernorm", "post_mlp_layernorm"],
}
HYBRIDS = ("qwen3_next", "qwen3_5_text", "qwen3_5_moe_text")
HEAD_NORMED = ("gemma3_text", "qwen3", "qwen3_moe") + HYBRIDS


def is_gemma(config):
    return config["model_type"] in ("gemma2", "gemma3_text")


def is_hybrid(config):
    return config["model_type"] in HYBRIDS


def norms_lack_one(config):
    return is_gemma(config) or is_hybrid(config)


def is_recurrent(config, layer):
    """Whether a layer of a hybrid is a delta rule; the config lists the kinds."""
    return is_hybrid(config) and config["layer_types"][layer] == "linear_attention"


def has_experts(config, layer):
    if not (config.get("num_experts") or config.get("num_local_experts")):
        return False
    dense, step = config.get("mlp_only_layers") or [], config.get("decoder_sparse_step", 1)
    return layer not in dense and (layer + 1) % step == 0


def stored(tensors, storage):
    """The tensors in their storage dtype. The 16-bit ones hold values that both 16-bit formats hold exactly, so
    that a twin in the other format is the same model."""
    if storage == "f32":
        return tensors
    both = {name: tensor.bfloat16().half().bfloat16() for name, tensor in tensors.items()}
    return {name: tensor.to(DTYPES[storage]) for name, tensor in both.items()}


def nested_names(config, tensors):
    """Config and tensors as a text-and-vision checkpoint has them: the text config one level down, the text
    tensors under a prefix, and tensors of the other parts, which a text engine passes over."""
    if is_hybrid(config):
        return nested_hybrid(config, tensors)
    outer = {
        "architectures": ["Gemma3ForConditionalGeneration"],
        "model_type": "gemma3",
        "bos_token_id": config["bos_token_id"],
        "eos_token_id": [config["eos_token_id"], 106],
        "text_config": {key: value for key, value in config.items() if key != "architectures"},
        "vision_config": {"model_type": "siglip_vision_model", "hidden_size": 32},
    }
    renamed = {f"language_model.{name}": tensor for name, tensor in tensors.items()}
    renamed["multi_modal_projector.mm_soft_emb_norm.weight"] = torch.zeros(32)
    renamed["vision_tower.vision_model.post_layernorm.bias"] = torch.zeros(32)
    return outer, renamed


def nested_hybrid(config, tensors):
    """The same for a hybrid: the head is at the top, and the text tensors lie beside the vision ones."""
    kind = config["model_type"].removesuffix("_text")
    names = {"qwen3_5": "Qwen3_5ForConditionalGeneration", "qwen3_5_moe": "Qwen3_5MoeForConditionalGeneration"}
    outer = {
        "architectures": [names[kind]],
        "model_type": kind,
        "tie_word_embeddings": config["tie_word_embeddings"],
        "text_config": {key: value for key, value in config.items() if key not in ("architectures", "tie_word_embeddings")},
        "vision_config": {"model_type": f"{kind}_vision", "hidden_size": 32},
    }
    inner = ("model.embed_tokens.", "model.layers.", "model.norm.")
    renamed = {name.replace("model.", "model.language_model.", 1) if name.startswith(inner) else name: tensor for name, tensor in tensors.items()}
    renamed["model.visual.patch_embed.proj.weight"] = torch.zeros(32, 4)
    renamed["model.visual.merger.norm.bias"] = torch.zeros(32)
    return outer, renamed
