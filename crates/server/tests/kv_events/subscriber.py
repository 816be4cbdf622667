"""Follows the events of a prefix cache as a router does: `python subscriber.py ENDPOINT`.

Says `listening` when the subscription stands, then a line of JSON for each message, until its input ends. The types are
those of vLLM's own subscribers: what doesn't fit them is an error.
"""

import json
import sys

import msgspec
import zmq


class BlockStored(msgspec.Struct, tag="BlockStored", forbid_unknown_fields=True):
    block_hashes: list[int]
    parent_block_hash: int | None
    token_ids: list[int]
    block_size: int
    lora_id: int | None
    medium: str | None
    lora_name: str | None
    extra_keys: list[list[str] | None] | None
    group_idx: int | None


class BlockRemoved(msgspec.Struct, tag="BlockRemoved", forbid_unknown_fields=True):
    block_hashes: list[int]
    medium: str | None
    group_idx: int | None


class AllBlocksCleared(msgspec.Struct, tag="AllBlocksCleared", forbid_unknown_fields=True):
    pass


class Batch(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    ts: float
    events: list[BlockStored | BlockRemoved | AllBlocksCleared]
    data_parallel_rank: int | None = None


def main() -> None:
    context = zmq.Context()
    socket = context.socket(zmq.SUB)
    monitor = socket.get_monitor_socket(zmq.EVENT_HANDSHAKE_SUCCEEDED)
    socket.setsockopt_string(zmq.SUBSCRIBE, "kv@")
    socket.connect(sys.argv[1])
    monitor.recv_multipart()
    print("listening", flush=True)
    while True:
        topic, number, payload = socket.recv_multipart()
        batch = msgspec.msgpack.decode(payload, type=Batch)
        line = {
            "topic": topic.decode(),
            "number": int.from_bytes(number, "big"),
            "bytes": len(number),
            "ts": batch.ts,
            "rank": batch.data_parallel_rank,
            "events": [msgspec.to_builtins(event) for event in batch.events],
        }
        print(json.dumps(line), flush=True)


main()
