"""Layers on grids on CUDA: as on the CPU, in CUDA graphs, and with kernels that are kept only in evaluation."""

import copy

import pytest
import torch
from nn_common import random
from test_nn_convolution import SUBJECTS, kernels_of
from test_transformer_cuda import LIMITS, check

import flashcliff

pytestmark = pytest.mark.cuda


def step(layer, x):
    """The result and the gradients of the input and of all parameters."""
    x = x.detach().requires_grad_()
    out = layer(x)
    own = [p for p in layer.parameters() if p.requires_grad]
    found = torch.autograd.grad(out.square().sum(), [x, *own])
    return [out.detach(), *found]


@pytest.mark.parametrize("dtype", LIMITS, ids=str)
@pytest.mark.parametrize("name", SUBJECTS)
def test_layers_are_those_on_the_cpu(name, dtype):
    layer, shape = SUBJECTS[name]()
    layer, x = layer.to(dtype), random(*shape, seed=3).to(dtype)
    before = torch.backends.cudnn.allow_tf32
    torch.backends.cudnn.allow_tf32 = False
    try:
        got = step(copy.deepcopy(layer).cuda(), x.cuda())
    finally:
        torch.backends.cudnn.allow_tf32 = before
    # A norm divides by what float32 rounds.
    check(got, step(layer, x), LIMITS[dtype] * (50 if "norm" in name else 1))


@pytest.mark.parametrize("name", SUBJECTS)
def test_captured_steps_are_those_of_calls(name):
    layer, shape = SUBJECTS[name]()
    layer, x = layer.float().cuda(), random(*shape).float().cuda()

    def train():
        layer.zero_grad(set_to_none=True)
        loss = layer(x).square().mean()
        loss.backward()
        return loss.detach()

    captured = flashcliff.capture(train, modules=layer, fallback="error")
    captured()
    with torch.no_grad():
        for p in layer.parameters():
            p.mul_(1.5)
    assert torch.allclose(captured(), train(), rtol=1e-5)


def test_kernels_are_kept_in_evaluation_alone(monkeypatch):
    layer, shape = SUBJECTS["conv2d"]()
    layer, x = layer.cuda(), random(*shape).cuda()
    calls = kernels_of(layer, monkeypatch)
    with torch.no_grad():
        layer(x), layer(x)
        assert len(calls) == 2
        layer.eval()
        layer(x), layer(x)
        assert len(calls) == 3
        layer.weight[0].mul_(2)
        layer(x)
        assert len(calls) == 4
