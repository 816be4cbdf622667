"""Changes of a prefix cache in the form of the wire, written by Python's msgpack: `python golden.py` makes the .hex files again."""

import pathlib

import msgpack

STORED = {"lora_id": None, "medium": "GPU", "lora_name": None, "extra_keys": None, "group_idx": 0}
CHANGES = [
    1.5,
    [
        {
            "type": "BlockStored",
            "block_hashes": [1, 2**64 - 1],
            "parent_block_hash": None,
            "token_ids": [7, 70007, 8, 70008],
            "block_size": 64,
            **STORED,
        },
        {
            "type": "BlockStored",
            "block_hashes": [3],
            "parent_block_hash": 9,
            "token_ids": [1, 70001],
            "block_size": 64,
            **STORED,
            "extra_keys": [["00000000000000ab"]],
        },
        {"type": "BlockRemoved", "block_hashes": [1, 300], "medium": "GPU", "group_idx": 0},
    ],
    0,
]
CLEARED = [0.25, [{"type": "AllBlocksCleared"}], 0]

if __name__ == "__main__":
    folder = pathlib.Path(__file__).parent
    for name, value in [("changes", CHANGES), ("cleared", CLEARED)]:
        (folder / f"{name}.hex").write_text(msgpack.packb(value).hex() + "\n")
