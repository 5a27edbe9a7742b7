"""Gradients by masks of attention on CUDA: layers as one function, beside their calls, and from run to run."""

import pytest
import test_described_masks as cpu
import torch
from described_common import count_functions, results, same

pytestmark = pytest.mark.cuda


@pytest.fixture
def functions(monkeypatch):
    return count_functions(monkeypatch)


def on_cuda(*tensors):
    return [t.detach().cuda().requires_grad_() for t in tensors]


@pytest.mark.parametrize("multi_query", [False, True])
@pytest.mark.parametrize("shape", cpu.SHAPES, ids=str)
@pytest.mark.parametrize("signature", [cpu.GATR, cpu.LGATR], ids=str)
def test_masks_of_any_shape(signature, shape, multi_query, functions):
    net = cpu.network(signature, attention={"heads": 2, "multi_query": multi_query})
    x, s, mask = on_cuda(*cpu.inputs(net, 3, 5), cpu.bias(*shape))
    same(net.cuda(), x, s, mask=mask, limit=1e-11)
    assert functions == [("GATransformer", 4)]


@pytest.mark.parametrize("shape", [(2, 40, 40), (70, 1, 40, 40), (70, 2, 40, 40), (1, 40)], ids=str)
def test_bits_are_those_of_every_run(shape, functions):
    net = cpu.network(cpu.GATR).float().cuda()
    given = on_cuda(*cpu.inputs(net, 70, 40), cpu.bias(*shape))
    x, s, mask = (t.detach().float().requires_grad_() for t in given)
    first = results(net, x, s, mask=mask)
    for _ in range(5):
        for a, b in zip(results(net, x, s, mask=mask), first, strict=True):
            assert torch.equal(a, b)
    assert len(functions) == 6
