"""Calls that find no memory on a GPU, by the compiled call path and by Python, with a planted limit."""

from __future__ import annotations

import gc
import re

import pytest
import torch

import flashcliff
from flashcliff import arrays
from flashcliff import functional as F

pytestmark = pytest.mark.cuda

R3 = flashcliff.Algebra(3, 0, 0)
CHANNELS = 128
ROW = 8 * CHANNELS * 4
"""The bytes of a row of a multivector."""


@pytest.fixture
def limit():
    """Lets PyTorch have 512 MiB more than it has."""
    # Errors of tests before hold tensors until they are collected.
    gc.collect()
    torch.cuda.empty_cache()
    total = torch.cuda.mem_get_info()[1]
    torch.cuda.set_per_process_memory_fraction(
        (torch.cuda.memory_allocated() + (512 << 20)) / total
    )
    yield
    torch.cuda.set_per_process_memory_fraction(1.0)
    torch.cuda.empty_cache()


def operands(mib, **options):
    batch = (mib << 20) // ROW
    x = torch.zeros(8, batch, CHANNELS, device="cuda", **options)
    return x, torch.zeros(CHANNELS, 20, device="cuda", **options)


def refused(call):
    with pytest.raises(torch.OutOfMemoryError) as caught:
        call()
    assert type(caught.value) is torch.OutOfMemoryError
    message = str(caught.value)
    # What PyTorch says stays: programs look for it.
    assert "\nCUDA out of memory." in message, message
    return message


def batch_of(message):
    found = re.search(r"got (\d+) MiB; the largest batch that fits is (\d+)", message)
    assert found, message
    return int(found[2])


def test_a_forward_pass(limit, path):
    x, weight = operands(300)
    message = refused(lambda: F.sgp_norm(x, x, weight, R3))
    assert "sgp_norm: the forward pass with a batch of 76800, 128 channels in" in message
    assert "(output 300 MiB, saved " in message
    batch = batch_of(message)
    assert 0.6 * x.shape[1] < batch < 0.75 * x.shape[1], message
    # That batch runs, in the memory of `x`; the allocator rounds to pages. `isfinite` would take as much memory again.
    few = x.flatten()[: 8 * int(0.95 * batch) * CHANNELS].view(8, -1, CHANNELS)
    assert F.sgp_norm(few, few, weight, R3).amax() == 0


def test_a_backward_pass(limit, path):
    x, weight = operands(120, requires_grad=True)
    output = F.sgp_norm(x, x.detach(), weight, R3)
    gradient = torch.zeros_like(output)
    kept = torch.zeros(120 << 20, dtype=torch.uint8, device="cuda")
    message = refused(lambda: torch.autograd.grad(output, (x, weight), gradient, retain_graph=True))
    assert "sgp_norm: the backward pass with a batch of 30720" in message
    assert "(gradients 121 MiB" in message, message
    batch_of(message)
    del kept
    assert all(g.amax() == 0 for g in torch.autograd.grad(output, (x, weight), gradient))


def test_the_dispatcher(limit, path):
    x, _ = operands(300)
    message = refused(lambda: torch.ops.flashcliff.reverse(x, "cl300"))
    batch_of(message)


def test_a_compiled_graph(limit, path):
    x, _ = operands(300)

    @torch.compile(fullgraph=True)
    def step(x):
        return F.reverse(F.reverse(x, R3), R3)

    batch_of(refused(lambda: step(x)))
    few = x[:, :50].contiguous()
    assert torch.equal(step(few), few)


def test_arrays():
    x = torch.zeros(8, 1 << 20, 1, device="cuda")
    weight = torch.zeros(20, 1, 1 << 17, device="cuda")
    with pytest.raises(MemoryError, match="the largest batch that fits is") as caught:
        arrays.fcgp_norm(x, x, weight, R3)
    assert "output 4096 GiB" in str(caught.value)
