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
        spread = 0.15 if is_gemma(config) else 0.4
        tensors = {"model.embed_tokens.weight": self.normal((config["vocab_size"], config["hidden_size"]), spread)}
        for layer in range(config["num_hidden_layers"]):
            for name, tensor in self.layer(config).items():
                tensors[f"model.layers.{layer}.{name}"] = tensor
        tensors["model.norm.weight"] = self.norm(config, config["hidden_size"])
        if is_gemma(config):  # As varied logits as in the other families, from smaller embeddings.
            tensors["model.norm.weight"] += 1.0
        if not config["tie_word_embeddings"]:
            tensors["lm_head.weight"] = self.normal((config["vocab_size"], config["hidden_size"]), 0.4)
        return tensors

    def norm(self, config, width):
        """Norm weights: around one, or around zero where the family adds one."""
        centre = 0.0 if is_gemma(config) else 1.0
        return centre + self.normal((width,), 0.3)

    def layer(self, config):
        """The tensors of one layer, without their prefix."""
        hidden = config["hidden_size"]
        names = ["input_layernorm", "post_attention_layernorm"]
        if is_gemma(config):
            names += ["pre_feedforward_layernorm", "post_feedforward_layernorm"]
        tensors = {f"{name}.weight": self.norm(config, hidden) for name in names}
        if is_gemma(config):  # Branches as strong as the scaled embeddings, or each token would predict itself.
            tensors["post_attention_layernorm.weight"] += 2.0
            tensors["post_feedforward_layernorm.weight"] += 2.0
        return tensors | self.attention(config) | self.feed_forward(config)

    def attention(self, config):
        hidden, heads = config["hidden_size"], config["num_attention_heads"]
        head_dim = config.get("head_dim") or hidden // heads
        queries, keys = heads * head_dim, config["num_key_value_heads"] * head_dim
        all_biased, always = config.get("attention_bias", False), config["model_type"] == "qwen2"
        tensors = {}
        for name, rows, columns in [("q", queries, hidden), ("k", keys, hidden), ("v", keys, hidden), ("o", hidden, queries)]:
            biased = all_biased or (always and name != "o")
            tensors |= self.linear(f"self_attn.{name}_proj", rows, columns, 0.16, biased)
        if is_gemma(config) or config["model_type"] == "qwen3":
            for name in ("q", "k"):
                tensors[f"self_attn.{name}_norm.weight"] = self.norm(config, head_dim)
        return tensors

    def feed_forward(self, config):
        hidden, inner = config["hidden_size"], config["intermediate_size"]
        biased = config.get("mlp_bias", False)
        tensors = {}
        for name, rows, columns in [("gate", inner, hidden), ("up", inner, hidden), ("down", hidden, inner)]:
            tensors |= self.linear(f"mlp.{name}_proj", rows, columns, 0.14, biased)
        return tensors

    def linear(self, name, rows, columns, std, biased):
        tensors = {f"{name}.weight": self.normal((rows, columns), std)}
        if biased:
            tensors[f"{name}.bias"] = self.normal((rows,), 0.3)
        return tensors


def is_gemma(config):
    return config["model_type"] == "gemma3_text"


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
