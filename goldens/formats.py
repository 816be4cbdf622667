"""Writes what the readers and decoders are held against, as the Python package `gguf` and others see it.

`formats.safetensors`: for each format random blocks (`NAME.bytes`, u8) and their values (`NAME.values`, float32).
`small.gguf`: every metadata type and three tensors; `small.json` says what is in it.
`little-endian.gguf`: the same metadata, and a tensor of each type whose byte order the package can turn around;
`big-endian.gguf`: that file after the package did.

The values are those of the package `gguf` where it decodes a format; of the ggml library in `llama-cpp-python` for
Q1_0, Q2_0 and Q8_K; of torch for the floats of 8 bits; of numpy for F64, integers and Q8_1, whose blocks ggml itself
quantised. Formats of our own (`q4_z` and the like) have their formulas here.

Run: python goldens/formats.py (needs gguf, llama-cpp-python, numpy, safetensors and torch). The seed is fixed, the
files come out the same.
"""

import argparse
import builtins
import ctypes
import json
import shutil
from unittest import mock
from pathlib import Path

import gguf
import llama_cpp
import numpy as np
import torch
from gguf import GGMLQuantizationType as Type
from gguf.scripts.gguf_convert_endian import convert_byteorder
from safetensors.numpy import save_file

HERE = Path(__file__).parent
SEED = 20251117
GGML = ctypes.CDLL(str(Path(llama_cpp.__file__).parent / "lib" / "libggml-base.so"))

# Blocks of each format that the package decodes, and the byte offsets of their half-precision numbers.
FORMATS = {
    Type.F32: (1024, []),
    Type.F16: (2048, [0]),
    Type.BF16: (1024, []),
    Type.Q4_0: (48, [0]),
    Type.Q4_1: (48, [0, 2]),
    Type.Q5_0: (48, [0]),
    Type.Q5_1: (48, [0, 2]),
    Type.Q8_0: (48, [0]),
    Type.Q2_K: (8, [80, 82]),
    Type.Q3_K: (8, [108]),
    Type.Q4_K: (16, [0, 2]),
    Type.Q5_K: (16, [0, 2]),
    Type.Q6_K: (16, [208]),
    Type.IQ4_NL: (48, [0]),
    Type.IQ4_XS: (8, [0]),
    Type.TQ1_0: (8, [52]),
    Type.TQ2_0: (8, [64]),
    Type.MXFP4: (48, []),
    Type.NVFP4: (64, []),
}

# As above for formats with a grid, and how many places the grid has. There are enough blocks to name each place.
GRIDS = {
    Type.IQ1_S: (64, [0], 2048),
    Type.IQ1_M: (64, [], 2048),
    Type.IQ2_XXS: (12, [0], 256),
    Type.IQ2_XS: (20, [0], 512),
    Type.IQ2_S: (36, [0], 1024),
    Type.IQ3_XXS: (8, [0], 256),
    Type.IQ3_S: (12, [0], 512),
}

# Half-precision numbers that every format meets: zeros, subnormals, the least normal, the largest.
EDGES = np.array([0x0000, 0x8000, 0x0001, 0x83FF, 0x0400, 0x7BFF, 0xFBFF], dtype=np.uint16)


def finite_halves(random, count):
    """Random half-precision bits that are neither infinite nor no number, the edge cases first."""
    bits = random.integers(0, 1 << 16, count, dtype=np.uint16)
    bits = np.where((bits & 0x7C00) == 0x7C00, bits & 0xBFFF, bits).astype(np.uint16)
    bits[: min(len(EDGES), count)] = EDGES[:count]
    return bits


def put(blocks, offset, values):
    """Writes a number into each block."""
    as_bytes = values.reshape(-1, 1).view(np.uint8)
    blocks[:, offset : offset + as_bytes.shape[1]] = as_bytes


def random_blocks(random, block_bytes, count, halves):
    blocks = random.integers(0, 256, (count, block_bytes), dtype=np.uint8)
    for offset in halves:
        put(blocks, offset, finite_halves(random, count))
    return blocks


def put_bits(numbers, index, shift, width, value):
    mask = ((1 << width) - 1) << shift
    numbers[index] = (int(numbers[index]) & ~mask) | value << shift


def name_every_place(kind, blocks, places):
    """Writes places 0, 1, 2 ... into the codes of blocks, until each was there."""
    side = 4 if kind.name.startswith("IQ3") else 8
    for place in range(places):
        block, code = blocks[place * side // 256], place % (256 // side)
        high = place >> 8
        if kind == Type.IQ2_XXS:
            block[2 + 8 * (code // 4) + code % 4] = place
        elif kind == Type.IQ2_XS:
            put_bits(block[2:66].view(np.uint16), code, 0, 9, place)
        elif kind == Type.IQ1_M:
            block[code] = place & 255
            put_bits(block, 32 + code // 2, 4 * (code % 2), 3, high)
        else:
            block[2 + code] = place & 255
        if kind == Type.IQ2_S:
            put_bits(block, 66 + code // 4, 2 * (code % 4), 2, high)
        elif kind == Type.IQ3_S:
            put_bits(block, 66 + code // 8, code % 8, 1, high)
        elif kind == Type.IQ1_S:
            put_bits(block[34:50].view(np.uint16), code // 4, 3 * (code % 4), 3, high)


def by_ggml(name, blocks, elements):
    """The values of blocks as a function of the ggml library finds them."""
    values = np.zeros(elements, dtype=np.float32)
    function = getattr(GGML, name)
    function.restype = None
    pointer = ctypes.c_void_p
    function(blocks.ctypes.data_as(pointer), values.ctypes.data_as(pointer), ctypes.c_int64(elements))
    return values


def finite_singles(random, count):
    return (random.standard_normal(count) * 2.0 ** random.integers(-40, 40, count)).astype(np.float32)


def formats_of_ggml(random):
    """Q1_0, Q2_0 and Q8_K by ggml's decoders; Q8_1, for which it has none, from what its quantiser writes."""
    for name, (block_bytes, elements) in {"q1_0": (18, 128), "q2_0": (18, 64)}.items():
        blocks = random_blocks(random, block_bytes, 16, [0])
        yield name, blocks, by_ggml(f"dequantize_row_{name}", blocks, 16 * elements)
    blocks = random_blocks(random, 292, 8, [])
    put(blocks, 0, finite_singles(random, 8))
    yield "q8_k", blocks, by_ggml("dequantize_row_q8_K", blocks, 8 * 256)
    blocks = np.zeros((8, 36), dtype=np.uint8)
    wanted = finite_singles(random, 8 * 32)
    GGML.quantize_row_q8_1_ref.restype = None
    pointer = ctypes.c_void_p
    GGML.quantize_row_q8_1_ref(wanted.ctypes.data_as(pointer), blocks.ctypes.data_as(pointer), ctypes.c_int64(256))
    scales = blocks[:, :2].copy().view(np.float16).astype(np.float32)
    yield "q8_1", blocks, scales * blocks[:, 4:].view(np.int8).astype(np.float32)


def plain_formats(random):
    doubles = random.standard_normal(64) * 10.0 ** random.integers(-50, 50, 64)
    yield "f64", doubles, doubles.astype(np.float32)
    for kind in (np.uint8, np.int8, np.int16, np.int32, np.int64):
        limits = np.iinfo(kind)
        numbers = random.integers(limits.min, limits.max, 64, dtype=kind, endpoint=True)
        yield np.dtype(kind).name.replace("uint", "u").replace("int", "i"), numbers, numbers.astype(np.float32)
    every = np.arange(256, dtype=np.uint8)
    floats = {"f8_e4m3": torch.float8_e4m3fn, "f8_e5m2": torch.float8_e5m2, "f8_e8m0": torch.float8_e8m0fnu}
    for name, kind in floats.items():
        yield name, every, as_float32(every, kind)
    yield "f4_e2m1", every, e2m1(np.stack([every & 15, every >> 4], axis=-1))


def as_float32(bytes_, kind):
    return torch.from_numpy(bytes_.copy()).view(kind).to(torch.float32).numpy()


def e2m1(codes):
    """Floats of 4 bits, from the table of the OCP specification."""
    values = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6], dtype=np.float32)
    return np.where(codes & 8, -values[codes & 7], values[codes & 7])


def own_formats(random):
    for name, code_bytes in {"q4_z": 16, "q8_z": 32}.items():
        blocks = random_blocks(random, 4 + code_bytes, 48, [])
        scales = finite_halves(random, 48).view(np.float16).astype(np.float32)
        # The second half has scales of bfloat16.
        scales[24:] = (finite_singles(random, 24).view(np.uint32) & 0xFFFF0000).view(np.float32)
        zeros = blocks[:, 0].astype(np.uint32)
        put(blocks, 0, scales.view(np.uint32) | zeros)
        codes = blocks[:, 4:]
        if name == "q4_z":
            codes = np.concatenate([codes & 15, codes >> 4], axis=1)
        yield name, blocks, scales[:, None] * (codes.astype(np.float32) - zeros[:, None].astype(np.float32))
    blocks = random_blocks(random, 36, 48, [])
    scales = finite_singles(random, 48)
    put(blocks, 0, scales)
    yield "f8_scaled", blocks, scales[:, None] * as_float32(blocks[:, 4:], torch.float8_e4m3fn)
    blocks = random_blocks(random, 40, 32, [])
    scales = finite_singles(random, 32)
    put(blocks, 0, scales)
    own = scales[:, None] * as_float32(blocks[:, 4:8], torch.float8_e4m3fn)
    codes = e2m1(np.stack([blocks[:, 8:] & 15, blocks[:, 8:] >> 4], axis=-1)).reshape(32, 4, 16)
    yield "nvfp4_scaled", blocks, own[:, :, None] * codes


def formats_of_the_package(random):
    for kind, (count, halves) in FORMATS.items():
        blocks = random_blocks(random, gguf.GGML_QUANT_SIZES[kind][1], count, halves)
        yield kind.name.lower(), blocks, gguf.quants.dequantize(blocks.reshape(-1), kind)
    for kind, (count, halves, places) in GRIDS.items():
        blocks = random_blocks(random, gguf.GGML_QUANT_SIZES[kind][1], count, halves)
        name_every_place(kind, blocks, places)
        yield kind.name.lower(), blocks, gguf.quants.dequantize(blocks.reshape(-1), kind)


def write_formats(random):
    tensors = {}
    for source in (formats_of_the_package, formats_of_ggml, plain_formats, own_formats):
        for name, blocks, values in source(random):
            tensors[f"{name}.bytes"] = np.ascontiguousarray(blocks).reshape(-1).view(np.uint8)
            tensors[f"{name}.values"] = np.ascontiguousarray(values.reshape(-1), dtype=np.float32)
    save_file(tensors, HERE / "formats.safetensors")


def writer_of_every_type(path):
    writer = gguf.GGUFWriter(path, "toy")
    writer.add_uint8("toy.u8", 200)
    writer.add_int8("toy.i8", -100)
    writer.add_uint16("toy.u16", 60000)
    writer.add_int16("toy.i16", -30000)
    writer.add_uint32("toy.u32", 4000000000)
    writer.add_int32("toy.i32", -2000000000)
    writer.add_float32("toy.f32", 0.15625)
    writer.add_uint64("toy.u64", 1 << 60)
    writer.add_int64("toy.i64", -(1 << 60))
    writer.add_float64("toy.f64", 0.1)
    writer.add_bool("toy.bool", True)
    writer.add_string("toy.string", "gannet, Baßtölpel, 鰹鳥, 🐦")
    writer.add_array("toy.strings", ["", "a", "ü", "三", "line\nbreak"])
    writer.add_array("toy.i32s", [-1, 0, 1, 2147483647])
    writer.add_array("toy.f32s", [0.5, -1.25, 3.0])
    writer.add_array("toy.bools", [True, False, True])
    return writer


def write_small(random):
    path = HERE / "small.gguf"
    writer = writer_of_every_type(path)
    writer.add_tensor("vector", np.arange(5, dtype=np.float32))
    writer.add_tensor("half", random.standard_normal((2, 3, 4)).astype(np.float16))
    blocks = random_blocks(random, 20, 8, [0, 2]).reshape(4, 40)
    writer.add_tensor("blocks", blocks, raw_dtype=Type.Q4_1)
    finish(writer)
    describe(path)


def finish(writer):
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def write_byte_orders(random):
    little, big = HERE / "little-endian.gguf", HERE / "big-endian.gguf"
    writer = writer_of_every_type(little)
    for kind in (Type.F32, Type.F16, Type.BF16, Type.Q4_0, Type.Q8_0, Type.Q4_K, Type.Q6_K, Type.MXFP4, Type.NVFP4):
        block, block_bytes = gguf.GGML_QUANT_SIZES[kind]
        row = 256 // block * block_bytes
        writer.add_tensor(kind.name.lower(), random_blocks(random, row, 2, []), raw_dtype=kind)
    finish(writer)
    shutil.copy(little, big)
    with mock.patch.object(builtins, "input", lambda _: "YES"):
        convert_byteorder(gguf.GGUFReader(big, "r+"), argparse.Namespace(order="big", dry_run=False))


def describe(path):
    reader = gguf.GGUFReader(path)
    metadata = {
        name: {"types": [t.name.lower() for t in field.types], "value": field.contents()}
        for name, field in reader.fields.items()
        if not name.startswith("GGUF.")
    }
    tensors = [
        {
            "name": tensor.name,
            "format": tensor.tensor_type.name.lower(),
            "shape": [int(n) for n in reversed(tensor.shape)],
            "bytes": int(tensor.n_bytes),
            "offset": int(tensor.data_offset),
        }
        for tensor in reader.tensors
    ]
    text = json.dumps({"metadata": metadata, "tensors": tensors}, indent=1, ensure_ascii=False)
    path.with_suffix(".json").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    np.seterr(all="ignore")
    write_formats(np.random.default_rng(SEED))
    write_small(np.random.default_rng(SEED))
    write_byte_orders(np.random.default_rng(SEED))
