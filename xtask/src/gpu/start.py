"""Start to first token with a cold and a warm cache of kernels, over a bare context with an empty kernel; and the first request after /ready
beside later ones.

start.py MODEL
"""

import ctypes
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

from serve import Server

EMPTY_KERNEL = b".version 7.0\n.target sm_80\n.address_size 64\n.visible .entry empty() { ret; }\n"


def check(code):
    assert code == 0, f"the driver says {code}"


def bare():
    """Seconds of a process that makes a context and runs an empty kernel."""
    start = time.perf_counter()
    if os.fork() == 0:
        driver = ctypes.CDLL("libcuda.so.1")
        context, module, function = (ctypes.c_void_p() for _ in range(3))
        check(driver.cuInit(0))
        check(driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0))
        check(driver.cuCtxSetCurrent(context))
        check(driver.cuModuleLoadData(ctypes.byref(module), EMPTY_KERNEL))
        check(driver.cuModuleGetFunction(ctypes.byref(function), module, b"empty"))
        check(driver.cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, None, None, None))
        check(driver.cuCtxSynchronize())
        os._exit(0)
    assert os.wait()[1] == 0
    return time.perf_counter() - start


def first_token(model, cache):
    start = time.perf_counter()
    environment = os.environ | {"XDG_CACHE_HOME": cache, "GANNET_LOG": "error"}
    command = ["./gannet", "run", model, "--backend", "cuda", "--max-tokens", "1", "--raw", "Hello"]
    subprocess.run(command, env=environment, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    return time.perf_counter() - start


def first_request(model, cache):
    """Milliseconds of the first request after /ready, and the median of later ones."""
    os.environ["XDG_CACHE_HOME"] = cache
    times = []
    server = Server(model)
    with server as ask:
        # No model computes for this.
        name = server.name()
        for number in range(21):
            prompt = [1000 + number * 300 + place for place in range(128)]
            start = time.perf_counter()
            ask({"model": name, "prompt": prompt, "max_tokens": 16, "temperature": 0, "ignore_eos": True})
            times.append(1e3 * (time.perf_counter() - start))
    return times[0], statistics.median(times[1:])


def main(model):
    # Kernels that were brought along would hide what compiling takes.
    brought = os.path.exists("kernels") and shutil.move("kernels", "kernels.aside")
    cache = tempfile.mkdtemp()
    try:
        alone = [bare() for _ in range(3)]
        cold = first_token(model, cache)
        warm = [first_token(model, cache) for _ in range(3)]
        first, later = first_request(model, cache)
    finally:
        if brought:
            shutil.move("kernels.aside", "kernels")
        shutil.rmtree(cache)
    alone, warm = statistics.median(alone), statistics.median(warm)
    print(f"bare context {alone:.2f} s; first token {cold:.2f} s cold (+{cold - alone:.2f}), {warm:.2f} s warm (+{warm - alone:.2f})")
    print(f"first request after /ready {first:.1f} ms, later ones {later:.1f} ms: {first / later:.2f} times")


main(*sys.argv[1:])
