"""Calls that find no memory say what they need, and the largest batch that fits."""

from __future__ import annotations

import re
import sys
from types import SimpleNamespace

import pytest
import torch
from processes_common import printed

from flashcliff._ops import room, run

pytestmark = pytest.mark.filterwarnings("ignore")

HEAD = """
import resource, re, sys
import torch
import flashcliff
from flashcliff import functional as F, nn

torch.set_num_threads(1)
R3 = flashcliff.Algebra(3, 0, 0)
MIB = 1 << 20

def leave(mib):
    \"\"\"Leaves so many MiB of addresses to this process.\"\"\"
    used = int(re.search(r"VmSize:\\s+(\\d+)", open("/proc/self/status").read())[1]) << 10
    resource.setrlimit(resource.RLIMIT_AS, (used + mib * MIB, resource.RLIM_INFINITY))

def tensor(mib, **options):
    \"\"\"A multivector of so many MiB, in 128 channels.\"\"\"
    return torch.zeros(8, mib * MIB // (8 * 128 * 4), 128, **options)

def refused(call):
    try:
        call()
    except MemoryError as error:
        print(error)
        return int(re.search(r"fits is (\\d+)", str(error))[1])
    raise AssertionError("expected a MemoryError")

# Threads and pages that a first call takes come before the limit.
F.reverse(tensor(1), R3)
F.geometric_product(tensor(1), tensor(1), R3)
"""


def limited(code: str) -> list[str]:
    """What a process prints that runs code with its own limit."""
    return printed(HEAD + code).splitlines()


linux = pytest.mark.skipif(sys.platform != "linux", reason="limits addresses of a process")


@linux
def test_a_forward_pass_without_room_on_the_cpu():
    lines = limited("""
x = tensor(256)
leave(200)
batch = refused(lambda: F.reverse(x, R3))
assert 0 < batch < x.shape[1], batch
# That batch fits, but for the memory that Python takes meanwhile.
few = x.flatten()[: 8 * int(0.9 * batch) * 128].view(8, -1, 128)
assert F.reverse(few, R3).shape == few.shape
""")
    assert re.match(
        r"reverse: the forward pass with a batch of 65536, 128 channels in and 128 out in f32 \(output 256 MiB, workspace 1 MiB\) "
        r"needs 257 MiB of memory: expected that much to be available, got \d+ MiB; "
        r"the largest batch that fits is \d+$",
        lines[0],
    ), lines


@linux
def test_gradients_without_room_on_the_cpu():
    """Gradients count if they are wanted, and no others."""
    lines = limited("""
x, weight = tensor(128, requires_grad=True), torch.zeros(128, 20, requires_grad=True)
y = tensor(128)
output, of_weight = F.sgp_norm(x, y, weight, R3), F.sgp_norm(y, y, weight, R3)
gradient = tensor(128)
leave(120)
torch.autograd.grad(of_weight, weight, gradient)
refused(lambda: torch.autograd.grad(output, (x, weight), gradient))
""")
    assert "sgp_norm: the backward pass with a batch of 32768" in lines[0], lines
    assert re.search(r"\(gradients 129 MiB", lines[0]), lines


@linux
def test_layers_of_transformers_without_room_on_the_cpu():
    lines = limited("""
pga = flashcliff.Algebra(3, 0, 1)
from flashcliff.nn import transformer
layer = transformer.EquiLinear(pga, 8, 64)
x = torch.zeros(16, 40_000, 8)
layer(x[:, :10])
leave(60)
refused(lambda: layer(x))
""")
    assert re.search(r"a network of layers of 40000 rows, torch.float32 needs", lines[0]), lines


@linux
def test_arrays_without_room_on_the_cpu():
    lines = limited("""
import numpy as np
from flashcliff import arrays
x = np.zeros((8, 65536, 128), dtype=np.float32)
arrays.reverse(x[:, :10], R3)
leave(200)
refused(lambda: arrays.reverse(x, R3))
""")
    assert "reverse: the forward pass with a batch of 65536" in lines[0], lines


class OnGpu(SimpleNamespace):
    """The parts of a tensor on a GPU that the explanation reads."""

    def get_device(self):
        return 0


def tensors():
    return [OnGpu(shape=(8, 100, 16), dtype=torch.float32) for _ in range(2)]


def test_the_error_of_the_allocator_gets_the_numbers_of_the_call(monkeypatch):
    asked = []

    def no_room(*arguments):
        asked.append(arguments)
        return "product: 2 GiB, and 7 fit"

    monkeypatch.setattr(room, "available", lambda device: 1 << 30)
    operator = SimpleNamespace(name="product", no_room=no_room)
    error = torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
    found = room.explained(error, operator, tensors(), [True, False])
    assert type(found) is torch.OutOfMemoryError
    assert str(found).splitlines() == ["product: 2 GiB, and 7 fit", str(error)]
    views = [(0, (8, 100, 16), "f32")] * 2
    assert asked == [(views, True, (0, 0, False), [True, False], 1 << 30)]


def test_a_call_that_is_wrong_too_keeps_the_error_of_the_allocator(monkeypatch):
    def no_room(*_):
        raise ValueError("shapes differ")

    monkeypatch.setattr(room, "available", lambda device: None)
    operator = SimpleNamespace(name="product", no_room=no_room)
    error = torch.OutOfMemoryError("CUDA out of memory.")
    assert room.explained(error, operator, tensors(), None) is error


def test_memory_of_the_failed_call_is_free_when_it_is_counted(monkeypatch):
    """Else the largest batch would be too small."""
    import weakref

    kept = []

    class Large:
        pass

    def fails():
        large = Large()
        kept.append(weakref.ref(large))
        raise torch.OutOfMemoryError("CUDA out of memory.")

    def available(device):
        assert kept[0]() is None
        return 5

    monkeypatch.setattr(room, "available", available)
    operator = SimpleNamespace(name="product", no_room=lambda *_: "numbers")
    try:
        fails()
    except torch.OutOfMemoryError as error:
        found = room.explained(error, operator, tensors(), None)
    assert str(found).startswith("numbers")


@pytest.mark.parametrize("phase", ["forward", "backward"])
def test_both_passes_explain(monkeypatch, phase):
    def fails(*_):
        raise torch.OutOfMemoryError("CUDA out of memory.")

    def explained(error, operator, tensors, wanted):
        return type(error)(f"explained {operator} {wanted}")

    monkeypatch.setattr(run, f"_{phase}", fails)
    monkeypatch.setattr(room, "explained", explained)
    x = torch.ones(1)
    calls = {
        "forward": (lambda: run.forward("op", [x], True), "None"),
        "backward": (lambda: run.backward("op", [x], None, None, x, [True]), r"\[True\]"),
    }
    call, wanted = calls[phase]
    with pytest.raises(torch.OutOfMemoryError, match=f"explained op {wanted}"):
        call()
