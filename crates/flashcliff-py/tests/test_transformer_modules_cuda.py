"""Networks as one function on CUDA: dropout, captured steps, and 16 bits."""

import copy

import pytest
import torch
from described_common import by_layers_that_drop, results
from modules_common import subject_on
from nn_common import alike

import flashcliff
from flashcliff.nn import transformer as gt
from flashcliff.nn.transformer.described import choice

pytestmark = pytest.mark.cuda


def test_dropout_drops_what_layers_drop(monkeypatch):
    """Results, gradients and gradients of gradients, with a number on the device."""
    torch.manual_seed(0)
    net = gt.GATransformer((1, 3, 0), 2, 3, 4, 3, 2, 8, blocks=2, attention={"heads": 2}, dropout=0.3).cuda().double()
    given = torch.randn(16, 2, 3, 2).cuda().double().requires_grad_(), torch.randn(2, 3, 3).cuda().double().requires_grad_()
    number = torch.tensor([2**31 - 7], dtype=torch.int32, device="cuda")
    monkeypatch.setattr(choice, "draw_on", lambda device: number)
    got = results(net, *given, second=True)
    alike(got, by_layers_that_drop(number, lambda: results(net, *given, second=True)), 1e-9)


def test_captured_steps_drop_others_each_time():
    net = gt.GATransformer((1, 3, 0), 2, 3, 4, 3, 2, 8, blocks=2, attention={"heads": 2}, dropout=0.3).cuda()
    x, s = torch.randn(16, 2, 3, 2).cuda(), torch.randn(2, 3, 3).cuda()
    step = flashcliff.capture(lambda: net(x, s)[0].clone(), modules=net, fallback="error")
    found = [step().clone() for _ in range(6)]
    assert step.graph_count == 1
    assert all(not torch.equal(a, b) for at, a in enumerate(found) for b in found[:at])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_16_bits_are_computed_in_float32(dtype):
    """A network in 16 bits, and one under autocast, compute what the network of float32 does with products in TF32."""
    one = subject_on("cuda", "network (1, 3, 0)")
    net, given = one.module.to(dtype), [x.to(dtype) for x in one.given]
    wide, of_wide = copy.deepcopy(net).float(), [x.float() for x in given]
    out = net(*given)
    with torch.autocast("cuda", dtype=dtype):
        under = wide(*of_wide)
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    want = wide(*of_wide)
    torch.set_float32_matmul_precision(before)
    for got, low, x in zip(under, out, want, strict=True):
        assert torch.equal(got, x) and torch.equal(low, x.to(dtype))
