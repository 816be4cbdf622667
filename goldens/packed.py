"""Writes small weights as quantised checkpoints hold them in parts, and their values.

`packed.json` lists the cases: the `quantization_config`, the names of the parts, and for each weight its name, the
format that it becomes and, where the order of the arithmetic differs, how far off a value may be. `packed.safetensors`
holds part NAME of a case as `CASE/NAME` and the values of a weight as `CASE=NAME`, float32.

Integer codes are drawn and packed as the writers of GPTQ, AWQ and compressed-tensors pack them; what they mean is
scale x (code - zero). Floats of 8 bits in blocks and the MXFP4 of gpt-oss are decoded by the package `transformers`.

Run: python goldens/packed.py (needs torch, transformers, safetensors). The seed is fixed, the files come out the same.
"""

import json
from pathlib import Path

import torch
from safetensors.torch import save_file
from transformers.integrations.finegrained_fp8 import Fp8Dequantize
from transformers.integrations.mxfp4 import convert_moe_packed_tensors

HERE = Path(__file__).parent
GENERATOR = torch.Generator().manual_seed(20251129)
CASES = []
TENSORS = {}


def case(name, config, parts, weights):
    """Adds a case; `weights` are (name, format, values) or (name, format, values, relative tolerance)."""
    for part, tensor in parts.items():
        TENSORS[f"{name}/{part}"] = tensor.contiguous().clone()
    for weight, _, values, *_ in weights:
        TENSORS[f"{name}={weight}"] = values.to(torch.float32).contiguous().clone()
    listed = [dict(zip(("name", "format", "tolerance"), (w[0], w[1], *w[3:]))) for w in weights]
    CASES.append({"name": name, "quantization_config": config, "parts": list(parts), "weights": listed})


def integers(high, *shape):
    return torch.randint(0, high, shape, generator=GENERATOR)


def scales(dtype, *shape):
    return (torch.rand(shape, generator=GENERATOR) * 0.1 - 0.02).to(dtype)


def to_int32(words):
    """Words of 32 bits, kept in 64, as signed ones."""
    return torch.where(words >= 1 << 31, words - (1 << 32), words).to(torch.int32)


def pack(codes, bits, dim, order=None):
    """Codes side by side in `dim`, the first one lowest; `order` says which one comes at which place of a word."""
    per = 32 // bits
    codes = codes.movedim(dim, -1)
    short = -codes.shape[-1] % per
    codes = torch.nn.functional.pad(codes, (0, short)).unflatten(-1, (-1, per))
    if order:
        codes = codes[..., order]
    return (codes << (torch.arange(per) * bits)).sum(-1).movedim(-1, dim)


def pack_bits(codes, bits, dim):
    """Codes of any width without gaps: bit k of the run is bit k % 32 of word k // 32."""
    codes = codes.movedim(dim, -1)
    run = ((codes.unsqueeze(-1) >> torch.arange(bits)) & 1).flatten(-2)
    return (run.unflatten(-1, (-1, 32)) << torch.arange(32)).sum(-1).movedim(-1, dim)


def values(codes, zeros, own_scales, group_of):
    """[rows, columns] from codes like it and zeros and scales [rows, groups]."""
    difference = codes - zeros[:, group_of]
    return own_scales.to(torch.float32)[:, group_of] * difference.to(torch.float32)


def gptq(name, form, bits=4, version=1, zeros=None, dtype=torch.float16, act_order=False):
    rows, columns, group = 24, 256, 64
    groups = columns // group
    codes = integers(1 << bits, rows, columns)
    zeros = integers(1 << bits, rows, groups) if zeros is None else torch.full((rows, groups), zeros)
    own = scales(dtype, rows, groups)
    g_idx = torch.arange(columns) // group
    if act_order:
        g_idx = g_idx[torch.randperm(columns, generator=GENERATOR)]
    words = pack(zeros.T, bits, 1)
    if version == 1:
        words = (words - (0x11111111 if bits == 4 else 0x01010101)) % (1 << 32)
    parts = {
        "a.qweight": to_int32(pack(codes.T, bits, 0)),
        "a.qzeros": to_int32(words),
        "a.scales": own.T,
        "a.g_idx": g_idx.to(torch.int32),
    }
    config = {"quant_method": "gptq", "bits": bits, "group_size": group, "desc_act": act_order}
    if version == 2:
        config["checkpoint_format"] = "gptq_v2"
        del parts["a.g_idx"]
    case(name, config, parts, [("a.weight", form, values(codes, zeros, own, g_idx))])


def awq():
    rows, columns, group = 16, 128, 32
    codes, zeros = integers(16, rows, columns), integers(16, rows, columns // group)
    own = scales(torch.float16, rows, columns // group)
    order = [0, 2, 4, 6, 1, 3, 5, 7]
    parts = {
        "a.qweight": to_int32(pack(codes.T, 4, 1, order)),
        "a.qzeros": to_int32(pack(zeros.T, 4, 1, order)),
        "a.scales": own.T,
        "a.bias": scales(torch.float16, rows),
    }
    config = {"quant_method": "awq", "bits": 4, "group_size": group, "zero_point": True, "version": "gemm"}
    expected = values(codes, zeros, own, torch.arange(columns) // group)
    case("awq", config, parts, [("a.weight", "q4_z", expected), ("a.bias", "f16", parts["a.bias"])])


def gptq_few_bits(name, form, bits, version, zeros=None, writer="auto_gptq", group=64):
    """Codes of 2 or 3 bits. Version 1 has zeros less 1: AutoGPTQ code by code, GPTQModel by words of its own for 3 bits."""
    rows, columns = 32, 128
    groups = columns // group
    codes = integers(1 << bits, rows, columns)
    zeros = integers(1 << bits, rows, groups) if zeros is None else torch.full((rows, groups), zeros)
    own = scales(torch.float16, rows, groups)
    stored = pack_bits(zeros.T, bits, 1)
    if version == 1 and writer == "auto_gptq":
        stored = pack_bits(zeros.T - 1, bits, 1)
    elif version == 1:
        less = torch.tensor([0x24924924, 0x92492492, 0x49249249]).repeat(stored.shape[1] // 3)
        stored = (stored - less) % (1 << 32)
    parts = {
        "a.qweight": to_int32(pack_bits(codes.T, bits, 0)),
        "a.qzeros": to_int32(stored),
        "a.scales": own.T,
    }
    config = {"quant_method": "gptq", "bits": bits, "group_size": group, "desc_act": False}
    if version == 2:
        config["checkpoint_format"] = "gptq_v2"
    group_of = torch.arange(columns) // group
    case(name, config, parts, [("a.weight", form, values(codes, zeros, own, group_of))])


def awq_gemv(name, group):
    """Rows side by side; scales and zeros of a row fill words whose number is a multiple of what the kernel reads at once."""
    rows, columns = 24, 256
    width = columns if group == -1 else group
    groups = columns // width
    codes, zeros = integers(16, rows, columns), integers(16, rows, groups)
    own = scales(torch.float16, rows, groups)
    at_once = {32: 4, 64: 2}.get(width, 1)
    words = -(-(-(-groups // 8)) // at_once) * at_once
    room = torch.nn.functional.pad
    parts = {
        "a.qweight": to_int32(pack(codes, 4, 1)),
        "a.qzeros": to_int32(pack(room(zeros, (0, 8 * words - groups)), 4, 1)),
        "a.scales": room(own, (0, 8 * words - groups)),
    }
    config = {"quant_method": "awq", "bits": 4, "group_size": group, "zero_point": True, "version": "gemv"}
    expected = values(codes, zeros, own, torch.arange(columns) // width)
    case(name, config, parts, [("a.weight", "q4_z", expected)])


COMPRESSED = {"quant_method": "compressed-tensors", "config_groups": {}}


def pack_quantized(name, form, bits, group, dtype, zeros=False, act_order=False):
    rows, columns = 20, 96
    groups = columns // group
    codes = integers(1 << bits, rows, columns)
    middle = torch.full((rows, groups), 1 << bits - 1)
    own_zeros = integers(1 << bits, rows, groups) if zeros else middle
    own = scales(dtype, rows, groups)
    group_of = torch.arange(columns) // group
    parts = {
        "m.a.weight_packed": to_int32(pack(codes, bits, 1)),
        "m.a.weight_scale": own,
        "m.a.weight_shape": torch.tensor([rows, columns]),
    }
    if zeros:
        parts["m.a.weight_zero_point"] = to_int32(pack(own_zeros, bits, 0))
    if act_order:
        group_of = group_of[torch.randperm(columns, generator=GENERATOR)]
        parts["m.a.weight_g_idx"] = group_of.to(torch.int32)
    case(name, COMPRESSED, parts, [("m.a.weight", form, values(codes, own_zeros, own, group_of))])


def int_quantized():
    rows, columns = 12, 64
    codes, own = integers(256, rows, columns) - 128, scales(torch.bfloat16, rows, 1)
    parts = {"a.weight": codes.to(torch.int8), "a.weight_scale": own, "a.input_scale": torch.ones(1)}
    case("int-quantized", COMPRESSED, parts, [("a.weight", "q8_z", own.to(torch.float32) * codes)])


def float8(rows, columns, dtype=torch.float8_e4m3fn):
    return torch.randn((rows, columns), generator=GENERATOR).to(dtype)


def by_transformers(weight, scale):
    return Fp8Dequantize(None)._dequantize_one(weight, scale, output_dtype=torch.float32)


def float8_cases():
    blocks = {"quant_method": "fp8", "weight_block_size": [128, 128]}
    small = blocks | {"weight_block_size": [32, 64]}
    weight, scale = float8(64, 192), scales(torch.float32, 2, 3)
    expected = by_transformers(weight, scale)
    case("fp8-blocks", small, {"a.weight": weight, "a.weight_scale_inv": scale}, [("a.weight", "f8_scaled", expected)])
    weight, scale = float8(130, 160), scales(torch.bfloat16, 2, 2)
    whole = scale.to(torch.float32).repeat_interleave(128, 0).repeat_interleave(128, 1)[:130, :160]
    expected = weight.to(torch.float32) * whole
    parts = {"a.weight": weight, "a.weight_scale_inv": scale}
    case("fp8-blocks-rounded-up", blocks, parts, [("a.weight", "f8_scaled", expected)])
    weight, exponents = float8(8, 64), 120 + integers(10, 8, 2).to(torch.uint8)
    parts = {"a.weight": weight, "a.weight_scale": exponents}
    expected = by_transformers(weight, exponents)
    case("fp8-powers-of-two", COMPRESSED, parts, [("a.weight", "f8_scaled", expected)])
    one = scales(torch.float32, 1).squeeze()
    for name, config, scale in [
        ("fp8-tensor", {"quant_method": "fp8", "activation_scheme": "static"}, one),
        ("fp8-rows", {"quant_method": "fbgemm_fp8"}, scales(torch.float32, 8, 1)),
        ("fp8-rows-compressed", COMPRESSED, scales(torch.bfloat16, 8, 1)),
        ("fp8-modelopt", {"quant_method": "modelopt", "quant_algo": "FP8"}, one),
    ]:
        weight = float8(8, 64)
        parts = {"a.weight": weight, "a.weight_scale": scale, "a.input_scale": torch.ones(1)}
        parts["norm.weight"] = scales(torch.bfloat16, 8)
        expected = weight.to(torch.float32) * scale.to(torch.float32)
        weights = [("a.weight", "f8_scaled", expected), ("norm.weight", "bf16", parts["norm.weight"])]
        case(name, config, parts, weights)
    for name, weight in [("fp8-odd-columns", float8(4, 40)), ("fp8-e5m2", float8(4, 64, torch.float8_e5m2))]:
        parts = {"a.weight": weight, "a.weight_scale": one}
        expected = weight.to(torch.float32) * one
        case(name, {"quant_method": "fp8"}, parts, [("a.weight", "f32", expected)])


def e2m1(packed):
    table = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6])
    return torch.stack([table[(packed & 15).long()], table[(packed >> 4).long()]], -1).flatten(-2)


def float4_cases():
    blocks = integers(256, 2, 6, 3, 16).to(torch.uint8)
    exponents = 110 + integers(20, 2, 6, 3).to(torch.uint8)
    parts = {"experts.up_blocks": blocks, "experts.up_scales": exponents, "experts.up_bias": scales(torch.bfloat16, 2, 6)}
    expected = convert_moe_packed_tensors(blocks, exponents, dtype=torch.float32).transpose(1, 2)
    case("mxfp4", {"quant_method": "mxfp4"}, parts, [("experts.up", "mxfp4", expected)])

    packed, exponents = integers(256, 6, 32).to(torch.uint8), 110 + integers(20, 6, 2).to(torch.uint8)
    expected = e2m1(packed) * (exponents.to(torch.float32) - 127).exp2().repeat_interleave(32, 1)
    parts = {"a.weight_packed": packed, "a.weight_scale": exponents}
    case("mxfp4-compressed", COMPRESSED, parts, [("a.weight", "mxfp4", expected)])

    for name, columns, form in [("nvfp4", 128, "nvfp4_scaled"), ("nvfp4-odd-columns", 48, "f32")]:
        packed = integers(256, 6, columns // 2).to(torch.uint8)
        own = (torch.rand((6, columns // 16), generator=GENERATOR) * 300).to(torch.float8_e4m3fn)
        wide = own.to(torch.float32).repeat_interleave(16, 1)
        second = torch.tensor(0.00012345)
        parts = {"a.weight": packed, "a.weight_scale": own, "a.weight_scale_2": second}
        config = {"quant_method": "modelopt", "quant_algo": "NVFP4"}
        case(f"{name}-modelopt", config, parts, [("a.weight", form, e2m1(packed) * (wide * second))])
        divisor = torch.tensor([8123.5])
        parts = {"a.weight_packed": packed, "a.weight_scale": own, "a.weight_global_scale": divisor}
        weights = [("a.weight", form, e2m1(packed) * (wide / divisor), 2.0**-22)]
        case(f"{name}-compressed", COMPRESSED, parts, weights)


if __name__ == "__main__":
    gptq("gptq-symmetric", "q4_0", zeros=8)
    gptq("gptq-zeros", "q4_z")
    gptq("gptq-v2-zeros", "q4_z", version=2)
    gptq("gptq-bf16", "q4_z", zeros=8, dtype=torch.bfloat16)
    gptq("gptq-f32", "f32", zeros=8, dtype=torch.float32)
    gptq("gptq-8-bits", "q8_0", bits=8, zeros=128)
    gptq("gptq-8-bits-zeros", "q8_z", bits=8)
    gptq("gptq-act-order", "f32", act_order=True)
    awq()
    pack_quantized("pack-quantized", "q4_z", 4, 32, torch.bfloat16)
    pack_quantized("pack-quantized-half", "q4_0", 4, 96, torch.float16)
    pack_quantized("pack-quantized-zeros", "q4_z", 4, 32, torch.float16, zeros=True)
    pack_quantized("pack-quantized-8-bits", "q8_z", 8, 96, torch.float16, zeros=True)
    pack_quantized("pack-quantized-small-groups", "f32", 4, 16, torch.float16)
    pack_quantized("pack-quantized-act-order", "f32", 4, 32, torch.float16, act_order=True)
    int_quantized()
    float8_cases()
    float4_cases()
    gptq_few_bits("gptq-2-bits", "q4_0", 2, 1, zeros=2)
    gptq_few_bits("gptq-2-bits-v2-zeros", "q4_z", 2, 2)
    gptq_few_bits("gptq-2-bits-small-groups", "f32", 2, 2, group=16)
    gptq_few_bits("gptq-3-bits-v2", "q4_0", 3, 2, zeros=4)
    gptq_few_bits("gptq-3-bits-v2-zeros", "q4_z", 3, 2)
    gptq_few_bits("gptq-3-bits-small-groups", "f32", 3, 2, group=16)
    gptq_few_bits("gptq-3-bits", "q4_0", 3, 1, zeros=4)
    gptq_few_bits("gptq-3-bits-other-writer", "q4_0", 3, 1, zeros=4, writer="gptqmodel")
    awq_gemv("awq-gemv", 64)
    awq_gemv("awq-gemv-small-groups", 32)
    awq_gemv("awq-gemv-rows", -1)
    save_file(TENSORS, HERE / "packed.safetensors")
    (HERE / "packed.safetensors").chmod(0o644)
    (HERE / "packed.json").write_text(json.dumps({"cases": CASES}, indent=1) + "\n", encoding="utf-8")
