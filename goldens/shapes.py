"""Holds the built binary against transformers on a checkpoint of a true shape: scores and greedy tokens.

    cargo xtask soak                       all of it
    python shapes.py GANNET FOLDER         one checkpoint (needs torch, transformers, safetensors)

The checkpoint is a folder of float32 tensors. Eight seeded lists of 7 to 600 ids go through both. The scores of every
position have to agree to 1e-4 of the position's largest, and the 32 greedy tokens after each list have to be the same.
The model of the reference is gone from memory before the binary runs.
"""

import gc
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
import transformers
from safetensors import safe_open

LENGTHS = [7, 20, 33, 64, 100, 257, 400, 600]
GREEDY_TOKENS = 32
TOLERANCE = 1e-4  # Of the largest score of a position.
ROWS = 25  # Positions of each list whose scores are kept, evenly spaced, the last one among them.


def id_lists(vocabulary):
    rng = np.random.default_rng(20)
    return [rng.integers(3, vocabulary, length).tolist() for length in LENGTHS]


def kept_rows(length):
    return sorted({length - 1 - place * length // ROWS for place in range(min(ROWS, length))})


def expected(folder):
    """For each list: the ids, the scores of the kept rows, and the greedy continuation."""
    config = json.loads((folder / "config.json").read_text())
    model_class = getattr(transformers, config["architectures"][0])
    model = model_class.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
    found = []
    for ids in id_lists(model.config.get_text_config().vocab_size):
        with torch.no_grad():
            output = model(torch.tensor([ids]), use_cache=True)
            scores = output.logits[0, kept_rows(len(ids))].numpy().copy()
            greedy = [int(output.logits[0, -1].argmax())]
            while len(greedy) < GREEDY_TOKENS:
                output = model(torch.tensor([greedy[-1:]]), cache=output.cache, use_cache=True)
                greedy.append(int(output.logits[0, -1].argmax()))
        found.append((ids, scores, greedy))
        print(f"  the reference has read {len(ids)} ids", flush=True)
    return found


def gannet(binary, *arguments):
    return subprocess.run([binary, *map(str, arguments)], check=True, stdout=subprocess.PIPE).stdout


def check(binary, folder, ids, scores, greedy):
    """The largest error of a row, as a part of its largest score; fails where anything is off."""
    listed = ",".join(map(str, ids))
    with tempfile.TemporaryDirectory(dir=folder) as place:
        path = Path(place) / "logits.safetensors"
        gannet(binary, "eval", "logits", folder, "--ids", listed, "--output", path)
        with safe_open(path, "np") as file:
            rows = file.get_slice("logits")
            found = np.stack([rows[row] for row in kept_rows(len(ids))])
    errors = np.abs(found - scores).max(axis=1) / np.abs(scores).max(axis=1)
    if not errors.max() <= TOLERANCE:
        row = kept_rows(len(ids))[int(errors.argmax())]
        raise SystemExit(f"{folder}: position {row} of {len(ids)} is off by {errors.max():.2e} of its largest score")
    length = ("--max-tokens", GREEDY_TOKENS, "--context", len(ids) + GREEDY_TOKENS)
    answer = json.loads(gannet(binary, "run", folder, "--ids", listed, *length, "--temperature", 0, "--ignore-end", "--json"))
    if answer["token_ids"] != greedy:
        place = next(place for place, pair in enumerate(zip(answer["token_ids"], greedy)) if pair[0] != pair[1])
        raise SystemExit(f"{folder}: greedy token {place} after {len(ids)} ids is {answer['token_ids'][place]}, not {greedy[place]}")
    return errors.max()


def main():
    binary, folder = sys.argv[1], Path(sys.argv[2])
    cases = expected(folder)
    gc.collect()
    for ids, scores, greedy in cases:
        error = check(binary, folder, ids, scores, greedy)
        print(f"  {len(ids)} ids: scores within {error:.1e} of the largest, {len(greedy)} greedy tokens equal", flush=True)


if __name__ == "__main__":
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    main()
