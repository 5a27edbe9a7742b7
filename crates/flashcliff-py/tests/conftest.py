"""Settings for all tests: a fixed seed, threads that sleep while they wait, and a count of tests that need a GPU."""

from __future__ import annotations

import os

# PyTorch's threads else compute in a loop until they have work, which takes the processor from the thread that they wait for as soon
# as another program runs, and makes tests of small networks take several times as long.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

import pytest
import torch


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


def pytest_configure(config):
    config.addinivalue_line("markers", "cuda: needs an NVIDIA GPU and a build with CUDA kernels")


def _why_not():
    """The reason why tests on a GPU cannot run here, if there is one."""
    import flashcliff

    if not torch.cuda.is_available():
        return "PyTorch finds no GPU"
    if not flashcliff.build_info()["cuda"]:
        return "flashcliff was built without CUDA kernels"
    return None


def pytest_collection_modifyitems(items):
    why = _why_not()
    if why:
        for item in items:
            if item.get_closest_marker("cuda"):
                item.add_marker(pytest.mark.skip(reason=why))


def pytest_terminal_summary(terminalreporter):
    why = _why_not()
    skipped = [r for r in terminalreporter.stats.get("skipped", ()) if why and why in str(r.longrepr)]
    if skipped:
        terminalreporter.write_line(f"{len(skipped)} tests on a GPU did not run: {why}", yellow=True)
