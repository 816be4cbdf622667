"""Load and aborts against a running server: `soak.py BASE_URL MODEL [SECONDS]`.

64 clients stream for so many seconds, then 500 streams are left at random moments. Nothing may fail, and when all is over
the engine has no sequence and no page in use. It is not part of the continuous checks: it takes minutes.
"""

import asyncio
import random
import sys
import urllib.request

import openai

BASE, MODEL = sys.argv[1:3]
SECONDS = float(sys.argv[3]) if len(sys.argv) > 3 else 120
CLIENTS, ABORTS, AT_ONCE = 64, 500, 16


def metric(name):
    with urllib.request.urlopen(BASE + "/metrics") as answer:
        lines = answer.read().decode().splitlines()
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(name + "{"))


async def stream(client, number, tokens):
    messages = [{"role": "user", "content": f"Tell me a story about the number {number}."}]
    more = {"ignore_eos": True}
    return await client.chat.completions.create(
        model=MODEL, messages=messages, max_tokens=tokens, stream=True, seed=number, extra_body=more
    )


async def one_client(client, number, end):
    loop, answers, chunks = asyncio.get_running_loop(), 0, 0
    while loop.time() < end:
        async for chunk in await stream(client, number, 48):
            chunks += 1
            reason = chunk.choices[0].finish_reason
        assert reason == "length", reason
        answers += 1
    return answers, chunks


async def abort(client, number, turn):
    async with turn:
        left = await stream(client, number, 400)
        for _ in range(random.Random(number).randrange(6)):
            await anext(left)
        await left.close()


async def main():
    async with openai.AsyncOpenAI(base_url=BASE + "/v1", api_key="none", max_retries=0, timeout=600) as client:
        end = asyncio.get_running_loop().time() + SECONDS
        done = await asyncio.gather(*(one_client(client, number, end) for number in range(CLIENTS)))
        print(f"{CLIENTS} clients: {sum(a for a, _ in done)} answers, {sum(c for _, c in done)} chunks, no error")
        turn = asyncio.Semaphore(AT_ONCE)
        await asyncio.gather(*(abort(client, number, turn) for number in range(ABORTS)))
        print(f"{ABORTS} streams left")
    for _ in range(100):
        if metric("vllm:num_requests_running") == metric("vllm:num_requests_waiting") == 0:
            break
        await asyncio.sleep(0.1)
    for name in ("vllm:num_requests_running", "vllm:num_requests_waiting", "vllm:kv_cache_usage_perc"):
        assert metric(name) == 0, (name, metric(name))
    print("nothing is left behind")


asyncio.run(main())
