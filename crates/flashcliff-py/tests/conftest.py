"""Settings for all tests: a fixed seed, threads that sleep while they wait, and a count of tests that need a GPU."""

from __future__ import annotations

import os
from collections import Counter

# PyTorch's threads else compute in a loop until they have work, which takes the processor from the thread that they wait for as soon
# as another program runs, and makes tests of small networks take several times as long.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

import pytest
import torch

if not torch.cuda.is_available():
    # Triton reads it when it is imported, which tests of torch.compile may do before the tests of Triton kernels.
    os.environ.setdefault("TRITON_INTERPRET", "1")


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=pytest.mark.cuda)])
def device(request):
    """The CPU, and a GPU where there is one."""
    return request.param


@pytest.fixture
def functions(monkeypatch):
    """The functions that stood for calls of layers: the class of each, and how many parts it has."""
    from described_common import count_functions

    return count_functions(monkeypatch)


@pytest.fixture
def loaded(tmp_path):
    """Saves a module in the file ``network.safetensors``, and loads it."""
    import flashcliff

    def load(module, *options, **more):
        flashcliff.save_network(module, tmp_path / "network.safetensors", **more)
        return flashcliff.load_network(tmp_path / "network.safetensors", *options)

    return load


@pytest.fixture
def python():
    """A function that makes a call by Python, without the compiled call path."""
    from flashcliff._ops import native

    loaded = native.loaded

    def by_python(function):
        native.use(None)
        try:
            return function()
        finally:
            native.use(loaded)

    return by_python


@pytest.fixture(params=["python", pytest.param("compiled", marks=pytest.mark.native)])
def path(request):
    """The call path in Python alone, and the compiled one where there is one."""
    from flashcliff._ops import native

    loaded = native.loaded
    if request.param == "python" and loaded is not None:
        native.use(None)
    yield request.param
    if native.loaded is not loaded:
        native.use(loaded)


@pytest.fixture
def alone(monkeypatch):
    """Makes calls that Python takes fail."""
    from flashcliff._ops import run

    def refuse(*_):
        raise AssertionError("this call went through Python")

    for name in ("forward", "backward", "_backward"):
        monkeypatch.setattr(run, name, refuse)


def pytest_configure(config):
    config.addinivalue_line("markers", "cuda: needs an NVIDIA GPU and a build with CUDA kernels")
    config.addinivalue_line("markers", "native: needs the compiled call path")
    config.addinivalue_line("markers", "fullgraph: needs a PyTorch that traces operators and layers whole")
    config.addinivalue_line("markers", "built: needs a call path that was compiled here")
    config.addinivalue_line("markers", "share(n): one in n cases of a test runs; all of them with FLASHCLIFF_EVERY_CASE=1")
    config.addinivalue_line("markers", "long: runs with FLASHCLIFF_EVERY_CASE=1 alone, as another test needs less time for most of what it says")


@pytest.fixture
def x64():
    """JAX has arrays of float64."""
    import jax

    before = jax.config.jax_enable_x64
    jax.config.update("jax_enable_x64", True)
    yield
    jax.config.update("jax_enable_x64", before)


@pytest.fixture
def double():
    """Tensors are made in float64 by default."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(before)


def _why_not():
    """The reason why tests on a GPU cannot run here, if there is one."""
    import flashcliff

    if not torch.cuda.is_available():
        return "PyTorch finds no GPU"
    if not flashcliff.build_info()["cuda"]:
        return "flashcliff was built without CUDA kernels"
    return None


def _take_shares(config, items):
    """Takes one in n cases of each test with a share, and no long test. Cases on a GPU are counted by themselves."""
    if os.environ.get("FLASHCLIFF_EVERY_CASE") == "1":
        return
    taken, left, counts = [], [], Counter()
    for item in items:
        share = item.get_closest_marker("share")
        case = item.path, item.originalname, item.get_closest_marker("cuda") is not None
        is_left = item.get_closest_marker("long") or (share and counts[case] % share.args[0])
        (left if is_left else taken).append(item)
        counts[case] += 1
    items[:] = taken
    if left:
        config.hook.pytest_deselected(items=left)


def pytest_collection_modifyitems(config, items):
    from releases import WHOLE

    from flashcliff import native

    _take_shares(config, items)
    reasons = {"cuda": _why_not()}
    if not native.is_active():
        reasons["native"] = "the compiled call path is not in use: python -m flashcliff.native"
    if not native._is_whole(native._built()):
        reasons["built"] = "no call path was compiled here: python -m flashcliff.native"
    if not WHOLE:
        reasons["fullgraph"] = "before PyTorch 2.9 traces end at operators"
    for name, why in reasons.items():
        for item in items:
            if why and item.get_closest_marker(name):
                item.add_marker(pytest.mark.skip(reason=why))


def pytest_terminal_summary(terminalreporter):
    why = _why_not()
    skipped = [r for r in terminalreporter.stats.get("skipped", ()) if why and why in str(r.longrepr)]
    if skipped:
        terminalreporter.write_line(f"{len(skipped)} tests on a GPU did not run: {why}", yellow=True)
