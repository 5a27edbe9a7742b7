"""Geometric algebra transformers on CUDA: as on the CPU, without waiting for the GPU, and in CUDA graphs."""

import copy

import pytest
import torch
from nn_common import difference, disturb, random

import flashcliff
from flashcliff.nn import transformer as gt

pytestmark = pytest.mark.cuda
LENGTHS = [3, 1, 6, 2]
LIMITS = {torch.float64: 1e-11, torch.float32: 2e-5}


def network(signature, dtype, multi_query=True):
    torch.manual_seed(0)
    attention = {"heads": 2, "multi_query": multi_query}
    algebra = flashcliff.Algebra(*signature)
    net = gt.GATransformer(
        algebra,
        2,
        3,
        4,
        3,
        2,
        8,
        blocks=2,
        attention=attention,
        reinsert_channels=(-1,),
        affine=True,
    )
    return disturb(net).to(dtype)


def inputs(signature, dtype, *batch):
    blades = flashcliff.Algebra(*signature).blade_count
    return random(blades, *batch, 2).to(dtype), random(*batch, 3, seed=1).to(dtype)


def step(net, given, **options):
    """Outputs, and gradients of parameters, without their graph: a later capture must not meet it."""
    net.zero_grad()
    out = net(*given, **options)
    sum(x.square().sum() for x in out).backward()
    return [
        *(x.detach() for x in out),
        *(p.grad for p in net.parameters() if p.grad is not None),
    ]


def check(got, want, limit):
    largest = max(w.abs().max().item() for w in want)
    for g, w in zip(got, want, strict=True):
        assert (g.cpu() - w.cpu()).abs().max() < limit * largest


@pytest.mark.parametrize("multi_query", [True, False])
@pytest.mark.parametrize("dtype", LIMITS, ids=str)
@pytest.mark.parametrize("signature", [(3, 0, 1), (1, 3, 0), (3, 0, 0)], ids=str)
def test_networks_are_those_on_the_cpu(signature, dtype, multi_query):
    net, given = network(signature, dtype, multi_query), inputs(signature, dtype, 2, 5)
    want = step(net, given)
    got = step(copy.deepcopy(net).cuda(), [x.cuda() for x in given])
    check(got, want, LIMITS[dtype])


@pytest.mark.parametrize("signature", [(3, 0, 1), (1, 3, 0), (3, 0, 0)], ids=str)
def test_attention_is_one_kernel(signature):
    """Of several sets with several heads, whose features could be in an order that fused kernels do not take."""
    net = network(signature, torch.float32, multi_query=False).cuda()
    given = [x.cuda() for x in inputs(signature, torch.float32, 4, 5)]
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.EFFICIENT_ATTENTION):
        step(net, given)


@pytest.mark.parametrize("longest", [None, max(LENGTHS)])
@pytest.mark.parametrize("dtype", LIMITS, ids=str)
@pytest.mark.parametrize("signature", [(3, 0, 1), (1, 3, 0)], ids=str)
def test_ragged_batches(signature, dtype, longest):
    net, given = network(signature, dtype), inputs(signature, dtype, sum(LENGTHS))
    bounds = torch.tensor([0, *LENGTHS]).cumsum(0)
    want = step(net, given, cu_seqlens=bounds)
    sequences = gt.Sequences(bounds.cuda(), longest)
    got = step(copy.deepcopy(net).cuda(), [x.cuda() for x in given], cu_seqlens=sequences)
    check(got, want, LIMITS[dtype])


@pytest.mark.parametrize("ragged", [False, True])
@pytest.mark.parametrize("signature", [(3, 0, 1), (1, 3, 0)], ids=str)
def test_graphs_without_waiting(signature, ragged):
    """A step neither waits nor copies to the host, so a graph captures it."""
    net = network(signature, torch.float32).cuda()
    batch = (sum(LENGTHS),) if ragged else (2, 5)
    given = [x.cuda() for x in inputs(signature, torch.float32, *batch)]
    options = {}
    if ragged:
        bounds = torch.tensor([0, *LENGTHS], device="cuda").cumsum(0)
        options = {"cu_seqlens": gt.Sequences(bounds, max(LENGTHS))}
    step(net, given, **options)
    before = torch.cuda.get_sync_debug_mode()
    torch.cuda.set_sync_debug_mode("error")
    try:
        want = [x.clone() for x in step(net, given, **options)]
    finally:
        torch.cuda.set_sync_debug_mode(before)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        step(net, given, **options)
    torch.cuda.current_stream().wait_stream(side)
    net.zero_grad(set_to_none=True)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        got = step(net, given, **options)
    for x in given:
        x.add_(1)
    graph.replay()
    assert difference(got[0], want[0]) > 1e-3
    for x in given:
        x.sub_(1)
    graph.replay()
    check(got, want, 2e-5)
