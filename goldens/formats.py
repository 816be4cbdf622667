"""Writes what the readers and decoders are held against, as the Python package `gguf` sees it.

`formats.safetensors`: for each weight format random blocks (`NAME.bytes`, u8) and their values (`NAME.values`, float32).
`small.gguf`: every metadata type and three tensors; `small.json` says what is in it.

Run: python goldens/formats.py (needs gguf, numpy and safetensors). The seed is fixed, the files come out the same.
"""

import json
from pathlib import Path

import gguf
import numpy as np
from gguf import GGMLQuantizationType as Type
from safetensors.numpy import save_file

HERE = Path(__file__).parent
SEED = 20251117

# For each format: how many blocks, and the byte offsets of its half-precision numbers.
FORMATS = {
    Type.F32: (1024, []),
    Type.F16: (2048, [0]),
    Type.BF16: (1024, []),
    Type.Q4_0: (48, [0]),
    Type.Q4_1: (48, [0, 2]),
    Type.Q5_0: (48, [0]),
    Type.Q5_1: (48, [0, 2]),
    Type.Q8_0: (48, [0]),
    Type.Q4_K: (16, [0, 2]),
    Type.Q5_K: (16, [0, 2]),
    Type.Q6_K: (16, [208]),
}

# Half-precision numbers that every format meets: zeros, subnormals, the least normal, the largest.
EDGES = np.array([0x0000, 0x8000, 0x0001, 0x83FF, 0x0400, 0x7BFF, 0xFBFF], dtype=np.uint16)


def finite_halves(random, count):
    """Random half-precision bits that are neither infinite nor no number, the edge cases first."""
    bits = random.integers(0, 1 << 16, count, dtype=np.uint16)
    bits = np.where((bits & 0x7C00) == 0x7C00, bits & 0xBFFF, bits).astype(np.uint16)
    bits[: len(EDGES)] = EDGES
    return bits


def random_blocks(random, kind, count, halves):
    _, block_bytes = gguf.GGML_QUANT_SIZES[kind]
    blocks = random.integers(0, 256, (count, block_bytes), dtype=np.uint8)
    for offset in halves:
        blocks[:, offset : offset + 2] = finite_halves(random, count).reshape(-1, 1).view(np.uint8)
    return blocks


def write_formats(random):
    tensors = {}
    for kind, (count, halves) in FORMATS.items():
        blocks = random_blocks(random, kind, count, halves).reshape(-1)
        values = gguf.quants.dequantize(blocks, kind)
        name = kind.name.lower()
        tensors[f"{name}.bytes"] = blocks
        tensors[f"{name}.values"] = np.ascontiguousarray(values.reshape(-1), dtype=np.float32)
    save_file(tensors, HERE / "formats.safetensors")


def write_small(random):
    path = HERE / "small.gguf"
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
    writer.add_tensor("vector", np.arange(5, dtype=np.float32))
    writer.add_tensor("half", random.standard_normal((2, 3, 4)).astype(np.float16))
    blocks = random_blocks(random, Type.Q4_1, 8, [0, 2]).reshape(4, 40)
    writer.add_tensor("blocks", blocks, raw_dtype=Type.Q4_1)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    describe(path)


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
    random = np.random.default_rng(SEED)
    write_formats(random)
    write_small(random)
