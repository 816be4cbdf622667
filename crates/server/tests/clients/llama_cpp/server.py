#!/usr/bin/env python3
"""Gannet behind the flags of llama.cpp's server, as far as its tests use them: `LLAMA_SERVER_BIN_PATH` names this file.

`GANNET` is the binary, `GANNET_MODEL` the model that stands for all of llama.cpp's. A flag that is not known here ends the
program, so that the test that gives it fails.
"""

import os
import sys

# Batches, threads and the like change no answer; templates, caches and drafts have no counterpart and are not among these.
IGNORED = {"--temp": 1, "--offline": 0, "--hf-repo": 1, "--hf-file": 1, "--batch-size": 1, "--ubatch-size": 1,
           "--threads": 1, "--n-gpu-layers": 1, "--cont-batching": 0, "--metrics": 0, "--no-slots": 0, "--n-predict": 1,
           "--kv-unified": 0, "-fa": 1, "--no-jinja": 0, "--jinja": 0, "--verbose": 0, "--model": 1, "--model-url": 1}
TAKEN = {"--port": 1, "--host": 1, "--alias": 1, "--ctx-size": 1, "--parallel": 1, "--seed": 1, "--api-key": 1, "--embedding": 0,
         "--pooling": 1, "--cors-origins": 1}
# What the tests with the official client call the model.
NAMES = ["gpt-3.5-turbo-instruct", "gpt-3.5-turbo", "gpt-4.1", "text-embedding-3-small"]


def flags(arguments):
    given, rest = {}, list(arguments)
    while rest:
        flag = rest.pop(0)
        if flag not in IGNORED and flag not in TAKEN:
            sys.exit(f"`{flag}` has no counterpart")
        count = IGNORED.get(flag, TAKEN.get(flag))
        values = [rest.pop(0) for _ in range(count)]
        if flag in TAKEN:
            given[flag] = values[0] if values else True
    return given


def main():
    given = flags(sys.argv[1:])
    model, slots = os.environ["GANNET_MODEL"], int(given.get("--parallel", 1))
    kind = "--embedding-model" if "--embedding" in given else "--model"
    command = [os.environ["GANNET"], "serve", "--port", given["--port"], "--host", given["--host"], "--log-level", "warn"]
    for name in dict.fromkeys([given.get("--alias", "model"), *NAMES]):
        command += [kind, f"{name}={model}"]
    if "--embedding" in given:
        # The model's files name no pooling; those of llama.cpp's tests do.
        command += ["--pooling", given.get("--pooling", "mean")]
    if "--ctx-size" in given:
        command += ["--context", str(int(given["--ctx-size"]) // slots)]
    command += ["--max-sequences", str(slots), "--max-loaded-models", "2", "--memory", "1GiB"]
    command += ["--seed", given.get("--seed", "1")]
    if "--cors-origins" in given:
        command += ["--cors-origin", given["--cors-origins"]]
    environment = dict(os.environ)
    if "--api-key" in given:
        environment["GANNET_API_KEYS"] = given["--api-key"]
    os.execve(command[0], command, environment)


main()
