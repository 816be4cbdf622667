"""Makes the goldens: tiny random checkpoints of every family and rope variant, and what transformers computes.

    cargo xtask goldens            all of them
    python make.py NAME ...        some of them (needs torch, transformers, safetensors, gguf)

A case `NAME` (see cases.py) becomes a folder as a hub checkpoint has it, config.json and *.safetensors, with

    golden.safetensors   ids     int32    [tokens]
                         logits  float32  [tokens, vocabulary]   for every position, or the last ones
                         greedy  int32    [40]                   what follows the prompt, end-of-text ignored

and GGUF twins beside the folder. A twin without loss shares the folder's golden; a quantised one has its own,
computed from the dequantised weights. index.json lists every (model, golden) pair.

The reference is float32 with eager attention, whole passes without a key-value store. Seeds are tried in order
until the greedy tokens are decided by more than float noise.
"""

import json
import sys
from pathlib import Path

import numpy as np
import torch
import transformers
from safetensors.torch import save_file

import float4
import twins
from cases import CASES, PROMPT
from weights import Maker, nested_names, stored

HERE = Path(__file__).parent
GREEDY_TOKENS = 40
MARGIN_MIN = 0.02  # Nats between the first and the second token, at every greedy step.
DISTINCT_MIN = 10  # A continuation that only repeats itself shows little.
SEEDS = 400


def run(model, ids):
    """Logits [tokens, vocabulary] of one whole pass."""
    with torch.no_grad():
        return model(torch.tensor([ids]), use_cache=False).logits[0].float()


def continue_greedily(model, ids):
    """The greedy continuation and its smallest margin."""
    ids, margins = list(ids), []
    for _ in range(GREEDY_TOKENS):
        top = run(model, ids)[-1].topk(2)
        margins.append(float(top.values[0] - top.values[1]))
        ids.append(int(top.indices[0]))
        if margins[-1] < MARGIN_MIN:
            return ids[-len(margins):], 0.0
    return ids[-GREEDY_TOKENS:], min(margins)


def prompt_ids(case, tokens, seed):
    """Random ids above the special ones."""
    rng = np.random.default_rng([seed, tokens])
    return rng.integers(3, case.config["vocab_size"], tokens).tolist()


def load(folder, config):
    """The reference model of a plain (not nested) checkpoint folder; every tensor has to find its place."""
    model_class = getattr(transformers, config["architectures"][0])
    model, info = model_class.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager", output_loading_info=True
    )
    wrong = {kind: found for kind, found in info.items() if found}
    if wrong:
        raise SystemExit(f"{folder}: the reference does not agree with the tensors: {wrong}")
    return model.eval()


def save(path, tensors, metadata):
    """A safetensors file that everybody may read (the library makes it private)."""
    save_file(tensors, path, metadata=metadata)
    path.chmod(0o644)


def write_checkpoint(folder, config, tensors, shards):
    """config.json and one safetensors file, or several with their index."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    for old in folder.glob("model*"):
        old.unlink()
    if shards == 1:
        save(folder / "model.safetensors", tensors, {"format": "pt"})
        return
    names, places = sorted(tensors), {}
    for shard in range(shards):
        file = f"model-{shard + 1:05d}-of-{shards:05d}.safetensors"
        part = {name: tensors[name] for name in names[shard::shards]}
        save(folder / file, part, {"format": "pt"})
        places |= dict.fromkeys(part, file)
    size = sum(tensor.nbytes for tensor in tensors.values())
    index = {"metadata": {"total_size": size}, "weight_map": dict(sorted(places.items()))}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index, indent=2) + "\n")


def write_golden(path, case, model, seed, tokens, greedy):
    """One golden file."""
    ids = prompt_ids(case, tokens, seed)
    logits = run(model, ids)[-(case.rows or tokens):].contiguous()
    tensors = {"ids": torch.tensor(ids, dtype=torch.int32), "logits": logits}
    facts = {"seed": str(seed), "reference": f"transformers {transformers.__version__}, float32, eager"}
    if greedy is not None:
        tensors["greedy"] = torch.tensor(greedy[0], dtype=torch.int32)
        facts["margin_min"] = f"{greedy[1]:.4f}"
    save(path, tensors, {"facts": json.dumps(facts)})  # One key: the library keeps no order of several.


def good_greedy(case, models, seed):
    """The continuation if it is decided clearly for every model (the checkpoint and its lossy twins)."""
    found = []
    for model in models:
        ids, margin = continue_greedily(model, prompt_ids(case, case.prompts["golden"], seed))
        if margin < MARGIN_MIN or len(set(ids)) < DISTINCT_MIN or min(ids) < 3:
            return None
        found.append((ids, margin))
    return found


def attempt(case, seed):
    """Writes the case with this seed; the (model, golden) pairs, or nothing if the seed is a poor one."""
    folder = HERE / case.name
    maker = Maker(seed)
    tensors = stored(maker.checkpoint(case.config), case.storage)
    blocks = {}
    if case.blocks:
        for name in [name for name in tensors if name.endswith(("experts.gate_up_proj", "experts.down_proj"))]:
            tensors[name], parts = float4.blocks(tensors[name])
            blocks |= {f"{name}_{part}": values for part, values in parts.items()}
    if case.config["architectures"][0].endswith("TextModel"):
        write_headless(folder, case, tensors)
    else:
        write_checkpoint(folder, case.config | {"dtype": str(tensors["model.norm.weight"].dtype)[6:]}, tensors, case.shards)
    model = load(folder, case.config)
    if case.next_tokens:
        tensors |= stored(maker.next_tokens(case.config), case.storage)
        write_checkpoint(folder, case.config | {"dtype": str(tensors["model.norm.weight"].dtype)[6:]}, tensors, case.shards)
    if case.pooling:
        return attempt_pooled(case, folder, model, tensors, maker)
    lossy = [twins.write(HERE, case, tensors, format) for format in case.gguf]
    lossy = [(stem, load_tensors(model, values)) for stem, values in lossy if values is not None]
    greedy = good_greedy(case, [model] + [twin for _, twin in lossy], seed) if case.greedy else None
    if case.greedy and greedy is None:
        return []
    pairs = []
    for stem, tokens in case.prompts.items():
        write_golden(folder / f"{stem}.safetensors", case, model, seed, tokens, greedy and greedy[0])
        models = [case.name] + [f"{case.name}-{format}.gguf" for format in case.gguf]
        pairs += [(name, f"{case.name}/{stem}.safetensors") for name in models]
    for number, (stem, twin) in enumerate(lossy):
        golden = f"{stem}.golden.safetensors"
        write_golden(HERE / golden, case, twin, seed, case.prompts["golden"], greedy[number + 1])
        pairs = [(m, golden if m == f"{stem}.gguf" else g) for m, g in pairs]
    if case.blocks:
        kept = {name: tensor for name, tensor in tensors.items() if f"{name}_blocks" not in blocks}
        write_checkpoint(folder, case.config | {"quantization_config": float4.CONFIG}, kept | blocks, case.shards)
    if case.nested:
        write_checkpoint(folder, *nested_names(case.config, tensors), case.shards)
    return pairs


def write_headless(folder, case, tensors):
    """A checkpoint without a head has no prefix before its names."""
    plain = {name.removeprefix("model."): tensor for name, tensor in tensors.items()}
    write_checkpoint(folder, case.config | {"dtype": str(plain["norm.weight"].dtype)[6:]}, plain, case.shards)


def attempt_pooled(case, folder, model, tensors, maker):
    """The modules of an embedding model beside the checkpoint, and its vector of a prompt."""
    write_module(folder / "1_Pooling", {"pooling_mode_mean_tokens": case.pooling == "mean", "pooling_mode_lasttoken": case.pooling == "lasttoken"})
    dense, width = [], case.config["hidden_size"]
    for number, rows in enumerate(case.projections):
        weight = stored({"w": maker.normal((rows, width), 0.3)}, case.storage)["w"]
        facts = {"in_features": width, "out_features": rows, "bias": False, "activation_function": "torch.nn.modules.linear.Identity"}
        write_module(folder / f"{number + 2}_Dense", facts)
        save(folder / f"{number + 2}_Dense" / "model.safetensors", {"linear.weight": weight}, {"format": "pt"})
        dense.append(weight)
        width = rows
    twins.POOLING = (case.pooling, dense)
    for format in case.gguf:
        twins.write(HERE, case, tensors, format)
    twins.POOLING = None
    ids = prompt_ids(case, PROMPT, 0)
    with torch.no_grad():
        body = getattr(model, "model", model)
        hidden = body(torch.tensor([ids]), use_cache=False).last_hidden_state[0].float()
        vector = hidden.mean(0) if case.pooling == "mean" else hidden[-1]
        for weight in dense:
            vector = weight.float() @ vector
        vector = vector / vector.norm()
    golden = {"ids": torch.tensor(ids, dtype=torch.int32), "pooled": vector.contiguous()}
    save(folder / "golden.safetensors", golden, {"facts": json.dumps({"reference": f"transformers {transformers.__version__}, float32, eager"})})
    models = [case.name] + [f"{case.name}-{format}.gguf" for format in case.gguf]
    return [(name, f"{case.name}/golden.safetensors") for name in models]


def write_module(folder, config):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")


def load_tensors(model, values):
    """A copy of the model with other weights."""
    twin = type(model)(model.config).eval()
    twin.load_state_dict(model.state_dict() | values)
    return twin


def make(case):
    """The first seed that gives a clear golden."""
    for seed in range(SEEDS):
        pairs = attempt(case, seed)
        if pairs:
            print(f"{case.name}: seed {seed}")
            return pairs
    raise SystemExit(f"{case.name}: none of {SEEDS} seeds decides every greedy token by {MARGIN_MIN}")


def write_index(case, pairs):
    """index.json with the entries of one case replaced, in the order of the table."""
    path = HERE / "index.json"
    known = json.loads(path.read_text()) if path.exists() else []
    order = [case.name for case in CASES]
    entries = [entry for entry in known if entry["name"] in order and entry["name"] != case.name]
    family = case.config["model_type"].removesuffix("_text")
    for model, golden in pairs:
        entry = {"name": case.name, "family": family, "model": model, "golden": golden, "greedy": case.greedy}
        entries.append(entry | ({"long": True} if case.rows else {}))
    entries.sort(key=lambda entry: order.index(entry["name"]))
    lines = ",\n".join("  " + json.dumps(entry) for entry in entries)
    path.write_text(f"[\n{lines}\n]\n")


def main():
    torch.set_num_threads(1)
    wanted = sys.argv[1:] or [case.name for case in CASES]
    for case in CASES:
        if case.name in wanted:
            write_index(case, make(case))


if __name__ == "__main__":
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    main()
