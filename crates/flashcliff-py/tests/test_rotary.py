"""Rotary positions in every type, beside the formula in float64."""

from __future__ import annotations

import copy

import pytest
import torch
from nn_common import difference, random

import flashcliff
from flashcliff.compat import gatr
from flashcliff.nn import transformer as gt

# Frequencies of float32 are off by 6e-8, and positions go to 4095.
LIMITS = {torch.float64: 1e-11, torch.float32: 1e-3, torch.bfloat16: 0.03, torch.float16: 4e-3}
types = pytest.mark.parametrize("dtype", LIMITS, ids=lambda dtype: str(dtype)[6:])
casts = pytest.mark.parametrize("cast", LIMITS, ids=lambda dtype: f"module_{str(dtype)[6:]}")


def turned(x, base=4096):
    """The formula; items are the axis before heads."""
    x = x.double()
    half = x.shape[-1] // 2
    frequencies = base ** (-torch.arange(half, dtype=torch.float64, device=x.device) / half)
    angles = torch.arange(x.shape[-3], device=x.device)[:, None, None] * frequencies
    first, second = x.chunk(2, -1)
    cos, sin = angles.cos(), angles.sin()
    return torch.cat((first * cos - second * sin, second * cos + first * sin), -1)


def largest(got, want):
    return (got.double() - want).abs().max().item()


@types
@casts
@pytest.mark.parametrize("inference", [False, True], ids=["grad", "inference"])
def test_every_type(device, dtype, cast, inference):
    x = random(2, 4096, 3, 16).to(device, dtype).clamp(-1, 1)
    layer = gt.RotaryEncoding(16).to(device, cast)
    with torch.inference_mode(inference):
        got = layer(x)
    assert got.dtype == dtype and largest(got, turned(x)) < LIMITS[dtype]
    x.requires_grad_()
    (gradient,) = torch.autograd.grad(layer(x).double().square().sum(), x)
    # A rotation keeps lengths.
    assert largest(gradient, 2 * x.detach().double()) < 4 * LIMITS[dtype]


@types
@casts
def test_a_state_dict_of_another_base(dtype, cast):
    x = random(1, 50, 1, 8).to(dtype).clamp(-1, 1)
    other, layer = gt.RotaryEncoding(8, base=10), gt.RotaryEncoding(8)
    layer(x)
    layer.load_state_dict(other.state_dict())
    if dtype != torch.float64:
        assert torch.equal(layer(x), other(x))
    assert largest(layer(x), turned(x, 10)) < max(LIMITS[dtype], 1e-5)
    copied = copy.deepcopy(layer).to(cast)
    assert copied(x).dtype == dtype
    layer.inv_freq.mul_(0)
    assert torch.equal(layer(x), x)


def test_the_state_dict_is_that_of_gatr():
    layer = gt.RotaryEncoding(8, base=100)
    assert list(layer.state_dict()) == ["inv_freq"]
    want = 100 ** (-torch.arange(0, 8, 2).float() / 8)
    assert layer.inv_freq.dtype == torch.float32 and torch.equal(layer.inv_freq, want)


@types
def test_neighbours_far_from_the_first(dtype):
    ones = torch.ones(1, 600, 1, 16, dtype=dtype)
    rows = gt.RotaryEncoding(16)(ones)[0, :, 0]
    assert not torch.equal(rows[512], rows[513])
    rows = gatr.ApplyRotaryPositionalEncoding(16, 1)(ones)[0, :, 0]
    assert not torch.equal(rows[512], rows[513])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=["bf16", "f16"])
@pytest.mark.parametrize("how", ["cast", "autocast"])
def test_attention_with_positions(device, dtype, how):
    """Items in 16 bits, some at positions beyond the integers that bfloat16 counts."""
    algebra = flashcliff.Algebra(3, 0, 0)
    torch.manual_seed(0)
    layer = gt.SelfAttention(algebra, 2, 8, heads=1, rotary=True, initialization="default")
    mv, s = random(8, 1, 700, 2), random(1, 700, 8, seed=1)
    narrow = copy.deepcopy(layer).to(device)
    if how == "cast":
        given = [x.to(device, dtype) for x in (mv, s)]
        exact = copy.deepcopy(layer).to(dtype).double()
        want = exact(*(x.double().cpu() for x in given))
        got = narrow.to(dtype)(*given)
    else:
        want = copy.deepcopy(layer).double()(mv, s)
        with torch.autocast(device, dtype):
            got = narrow(*(x.float().to(device) for x in (mv, s)))
    for g, w in zip(got, want, strict=True):
        assert difference(g.double().cpu(), w) < 0.05


def test_compiled_positions():
    layer = gt.RotaryEncoding(8)
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    for dtype in LIMITS:
        x = random(1, 9, 2, 8).to(dtype)
        assert torch.equal(compiled(x), layer(x))


def test_no_items():
    assert gt.RotaryEncoding(8)(torch.zeros(2, 0, 3, 8)).shape == (2, 0, 3, 8)
    assert gatr.ApplyRotaryPositionalEncoding(8, 1)(torch.zeros(2, 0, 3, 8)).shape == (2, 0, 3, 8)
