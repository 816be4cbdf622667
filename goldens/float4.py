"""Blocks of 32 floats of 4 bits with one power of two as their scale (MXFP4), as hub checkpoints store experts."""

import torch

# The values of the codes 0 to 7; the fourth bit is the sign.
MAGNITUDES = torch.tensor([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0])
CONFIG = {"quant_method": "mxfp4", "modules_to_not_convert": ["model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens", "lm_head"]}


def blocks(tensor):
    """A stack of transposed matrices [experts, in, out] -> the same from its blocks, and the tensors of those: codes
    [experts, out, in / 32, 16], two in a byte, the first in its lower half, and exponents [experts, out, in / 32]."""
    rows = tensor.float().transpose(1, 2)
    experts, outs, ins = rows.shape
    groups = rows.reshape(experts, outs, ins // 32, 32)
    exponent = torch.floor(torch.log2(groups.abs().amax(-1, keepdim=True))) - 2
    scaled = groups / 2**exponent
    codes = (scaled.abs().unsqueeze(-1) - MAGNITUDES).abs().argmin(-1)
    values = torch.sign(scaled) * MAGNITUDES[codes] * 2**exponent
    codes = codes + 8 * (scaled < 0)
    packed = (codes[..., ::2] + 16 * codes[..., 1::2]).to(torch.uint8)
    parts = {"blocks": packed.contiguous(), "scales": (exponent.squeeze(-1) + 127).to(torch.uint8).contiguous()}
    return values.reshape(experts, outs, ins).transpose(1, 2).contiguous().to(tensor.dtype), parts
