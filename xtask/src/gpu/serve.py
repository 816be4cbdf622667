"""A Gannet server on a card, started and asked: what the scripts beside this one share."""

import json
import subprocess
import time
import urllib.request

PORT = 18480
ROOT = f"http://127.0.0.1:{PORT}"


class Server:
    """`with Server(model, ...) as ask`: `ask(body)` is the answer of a completion."""

    def __init__(self, model, *arguments):
        command = ["./gannet", "serve", model, "--backend", "cuda", "--port", str(PORT), *arguments]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)

    def __enter__(self):
        while True:
            if self.process.poll() is not None:
                raise SystemExit(f"the server ended: {self.process.stderr.read().decode()[-2000:]}")
            try:
                with urllib.request.urlopen(f"{ROOT}/ready", timeout=1):
                    return self.ask
            except OSError:
                time.sleep(0.002)

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait()

    @staticmethod
    def name():
        with urllib.request.urlopen(f"{ROOT}/v1/models", timeout=10) as answer:
            return json.load(answer)["data"][0]["id"]

    @staticmethod
    def ask(body):
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(f"{ROOT}/v1/completions", json.dumps(body).encode(), headers)
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.load(answer)
