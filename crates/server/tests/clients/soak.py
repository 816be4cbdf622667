"""What a running server must survive: `soak.py BASE_URL MODEL PROCESS`. It takes minutes.

1,000 connections that say nothing are closed by the server while others are served. 500 streams are left at random moments,
twice. Nothing fails; when all is over the engine has no sequence and no page in use, and the second round left the process
as the first did: its threads, its open files, and its memory to a few MiB.
"""

import asyncio
import pathlib
import random
import resource
import sys
import urllib.parse
import urllib.request

import openai

BASE, MODEL, PROCESS = sys.argv[1:4]
SILENT, PATIENCE = 1000, 40
ABORTS, AT_ONCE, ROUNDS = 500, 16, 2
GROWTH_KIB = 8 << 10


def metric(name):
    with urllib.request.urlopen(BASE + "/metrics") as answer:
        lines = answer.read().decode().splitlines()
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(name + "{"))


def held():
    """Threads, open files and resident KiB of the server."""
    process = pathlib.Path("/proc") / PROCESS
    status = dict(line.split(":", 1) for line in (process / "status").read_text().splitlines())
    return int(status["Threads"]), len(list((process / "fd").iterdir())), int(status["VmRSS"].split()[0])


async def stream(client, number, tokens):
    messages = [{"role": "user", "content": f"Tell me a story about the number {number}."}]
    return await client.chat.completions.create(
        model=MODEL, messages=messages, max_tokens=tokens, stream=True, seed=number, extra_body={"ignore_eos": True}
    )


async def silent(host, port):
    """Says nothing; the server closes the connection."""
    reader, writer = await asyncio.open_connection(host, port)
    await asyncio.wait_for(reader.read(), PATIENCE)
    writer.close()


async def silent_ones(client):
    address = urllib.parse.urlparse(BASE)
    waiting = [asyncio.create_task(silent(address.hostname, address.port)) for _ in range(SILENT)]
    served = 0
    while not all(task.done() for task in waiting):
        async for _ in await stream(client, served, 16):
            pass
        served += 1
    await asyncio.gather(*waiting)
    assert served > 0
    print(f"{SILENT} silent connections were closed; {served} streams were served meanwhile")


async def abort(client, number, turn):
    async with turn:
        left = await stream(client, number, 400)
        for _ in range(random.Random(number).randrange(6)):
            await anext(left)
        await left.close()


async def settled():
    """Waits until nothing runs; then nothing is in use."""
    for _ in range(100):
        if metric("vllm:num_requests_running") == metric("vllm:num_requests_waiting") == 0:
            break
        await asyncio.sleep(0.1)
    for name in ("vllm:num_requests_running", "vllm:num_requests_waiting", "vllm:kv_cache_usage_perc"):
        assert metric(name) == 0, (name, metric(name))


async def main():
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 8192), hard))
    async with openai.AsyncOpenAI(base_url=BASE + "/v1", api_key="none", max_retries=0, timeout=600) as client:
        await silent_ones(client)
    seen = []
    for _ in range(ROUNDS):
        async with openai.AsyncOpenAI(base_url=BASE + "/v1", api_key="none", max_retries=0, timeout=600) as client:
            turn = asyncio.Semaphore(AT_ONCE)
            await asyncio.gather(*(abort(client, number, turn) for number in range(ABORTS)))
        await settled()
        # Threads of the pool for work that blocks leave when they had none for ten seconds.
        await asyncio.sleep(12)
        seen.append(held())
        print(f"{ABORTS} streams left; threads, files, KiB: {seen[-1]}")
    (threads, files, memory), (threads_after, files_after, memory_after) = seen
    assert threads_after <= threads + 1 and files_after <= files + 1, seen
    assert memory_after - memory < GROWTH_KIB, seen
    print("nothing is left behind")


asyncio.run(main())
