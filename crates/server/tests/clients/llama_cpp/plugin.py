"""A pytest plugin: which of llama.cpp's server tests are run, and what stands in for its models.

`cases.toml` names every test: those that pass, and those that are left out, each with the reason. A test that it doesn't
name is an error, so that a newer tree brings nothing in or out unseen.
"""

import pathlib
import tomllib

import pytest
import utils

CASES = tomllib.loads((pathlib.Path(__file__).parent / "cases.toml").read_text())


def names(item):
    """A test's file, its name there, and the name with its parameters."""
    file = pathlib.Path(item.location[0]).stem.removeprefix("test_")
    return file, f"{file}.{item.originalname}", f"{file}.{item.name}"


def pytest_collection_modifyitems(config, items):
    left_out = {name: why for why, entries in CASES["left_out"].items() for name in entries}
    run, seen = [], set()
    for item in items:
        known = [name for name in names(item) if name in CASES["run"] or name in left_out]
        if not known:
            raise pytest.UsageError(f"cases.toml doesn't know {names(item)[2]}")
        seen.update(known)
        # The longest name decides.
        if known[-1] in CASES["run"]:
            run.append(item)
    unseen = (set(CASES["run"]) | set(left_out)) - seen
    if unseen:
        raise pytest.UsageError(f"cases.toml names tests that are not there: {sorted(unseen)}")
    config.hook.pytest_deselected(items=[item for item in items if item not in run])
    items[:] = run


def named(request):
    """llama.cpp has one model, whatever a request calls it; ours are asked for by name."""

    def with_model(self, method, path, data=None, *more, **options):
        if method == "POST" and isinstance(data, dict):
            data = {**data, "model": self.model_alias or "model"}
        return request(self, method, path, data, *more, **options)

    return with_model


utils.ServerProcess.make_request = named(utils.ServerProcess.make_request)
utils.ServerProcess.make_stream_request = named(utils.ServerProcess.make_stream_request)
# There is nothing to download.
utils.ServerPreset.load_all = staticmethod(lambda: None)
