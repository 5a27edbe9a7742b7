"""Plain layers in local frames on CUDA: as on the CPU, with gradients by frames, and without waiting for the GPU."""

import copy

import pytest
import torch
from nn_common import random
from test_frames import inputs, momenta, network
from test_transformer_cuda import LIMITS, check

from flashcliff.nn import transformer as gt

pytestmark = pytest.mark.cuda


def step(net, given):
    """Outputs and gradients of inputs and parameters."""
    leaves = [x.detach().requires_grad_() for x in given]
    out = net(*leaves)
    total = sum(x.square().sum() for x in out)
    found = torch.autograd.grad(total, [*leaves, *net.parameters()])
    return [*(x.detach() for x in out), *found]


@pytest.mark.parametrize("dtype", LIMITS, ids=str)
@pytest.mark.parametrize("multi_query", [True, False])
def test_networks_are_those_on_the_cpu(dtype, multi_query):
    net = network(attention={"heads": 2, "multi_query": multi_query}).to(dtype)
    given = [x.detach().to(dtype) for x in inputs(2, 5)]
    got = step(copy.deepcopy(net).cuda(), [x.cuda() for x in given])
    check(got, step(net, given), LIMITS[dtype])


def test_models_do_not_wait():
    torch.manual_seed(0)
    predict, net = gt.FramePredictor(3).cuda(), network().float().cuda()
    p, s = momenta(2, 6).float().cuda(), random(2, 6, 3).float().cuda()
    x = torch.stack((p, p), dim=-1)

    def run():
        net(x, s, predict(p, s))[1].square().sum().backward()

    run()
    before = torch.cuda.get_sync_debug_mode()
    torch.cuda.set_sync_debug_mode("error")
    try:
        run()
    finally:
        torch.cuda.set_sync_debug_mode(before)
