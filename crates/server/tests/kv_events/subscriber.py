"""Follows the events of a prefix cache as a router does: `python subscriber.py ENDPOINT`.

Says `listening` when the subscription stands, then a line of JSON for each message, until it is ended. A line of its input,
`ENDPOINT NUMBER`, has the messages from that number on sent again; they come as a list, behind the word `again`. The types
are those of vLLM's own subscribers: what doesn't fit them is an error.
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


def line(topic: bytes | None, number: bytes, payload: bytes) -> dict:
    batch = msgspec.msgpack.decode(payload, type=Batch)
    return {
        "topic": topic and topic.decode(),
        "number": int.from_bytes(number, "big"),
        "bytes": len(number),
        "ts": batch.ts,
        "rank": batch.data_parallel_rank,
        "events": [msgspec.to_builtins(event) for event in batch.events],
    }


def replayed(context: zmq.Context, endpoint: str, first: int, topic: bytes) -> list[dict]:
    socket = context.socket(zmq.DEALER)
    socket.connect(endpoint)
    socket.send_multipart([b"", first.to_bytes(8, "big")])
    lines = []
    while True:
        empty, number, payload = socket.recv_multipart()
        assert empty == b""
        if int.from_bytes(number, "big", signed=True) == -1:
            assert payload == b""
            socket.close()
            return lines
        lines.append(line(topic, number, payload))


def main() -> None:
    context = zmq.Context()
    socket = context.socket(zmq.SUB)
    monitor = socket.get_monitor_socket(zmq.EVENT_HANDSHAKE_SUCCEEDED)
    socket.setsockopt_string(zmq.SUBSCRIBE, "kv@")
    socket.connect(sys.argv[1])
    monitor.recv_multipart()
    print("listening", flush=True)
    poller, topic = zmq.Poller(), b""
    poller.register(socket, zmq.POLLIN)
    poller.register(sys.stdin, zmq.POLLIN)
    while True:
        ready = dict(poller.poll())
        if sys.stdin.fileno() in ready:
            asked = sys.stdin.readline().split()
            if not asked:
                return
            print("again " + json.dumps(replayed(context, asked[0], int(asked[1]), topic)), flush=True)
        if socket in ready:
            topic, number, payload = socket.recv_multipart()
            print(json.dumps(line(topic, number, payload)), flush=True)


main()
