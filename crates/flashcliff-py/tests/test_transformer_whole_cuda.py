"""Blocks as one function of autograd on CUDA: the bits of their layers, with no more kernels, and in CUDA graphs."""

import pytest
import torch
from nn_common import disturb
from torch.profiler import ProfilerActivity, profile
from whole_common import by_layers, count_whole

import flashcliff
from flashcliff._ops import calls
from flashcliff.nn import transformer as gt
from flashcliff.nn.transformer.whole import function, listed

pytestmark = pytest.mark.cuda
LENGTHS = [3, 1, 6, 2]


@pytest.fixture
def count(monkeypatch):
    """Whether each block that was called was one function."""
    return count_whole(monkeypatch)


@pytest.fixture
def tf32():
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    yield
    torch.set_float32_matmul_precision(before)


def network(signature, multi_query=False, channels=8, **options):
    torch.manual_seed(0)
    # Four channels a head: attention of wider heads has no kernel.
    attention = {"heads": channels // 4, "multi_query": multi_query}
    algebra = flashcliff.Algebra(*signature)
    net = gt.GATransformer(
        algebra, 2, 3, channels, 3, 2, 16, blocks=2, attention=attention, affine=True, **options
    )
    return disturb(net).cuda()


def inputs(net, *batch):
    blades = net.geometry.algebra.blade_count
    return torch.randn(blades, *batch, 2).cuda(), torch.randn(*batch, 3).cuda()


def step(net, given, options):
    net.zero_grad()
    out = net(*given, **options)
    sum(x.square().sum() for x in out).backward()
    return [x.detach().clone() for x in out], [p.grad for p in net.parameters()]


def check(net, given, options, count, monkeypatch):
    want, want_gradients = by_layers(monkeypatch, lambda: step(net, given, options))
    got, gradients = step(net, given, options)
    assert count == [True, True]
    assert all(map(torch.equal, got, want))
    largest = max(g.abs().max().item() for g in want_gradients)
    for g, w in zip(gradients, want_gradients, strict=True):
        assert (g - w).abs().max() <= 1e-6 * largest
    with torch.no_grad():
        assert all(map(torch.equal, net(*given, **options), want))
    again = step(net, given, options)[1]
    assert all(map(torch.equal, again, gradients))


@pytest.mark.parametrize("ragged", [False, True])
@pytest.mark.parametrize("multi_query", [False, True])
@pytest.mark.parametrize("signature", [(3, 0, 1), (1, 3, 0), (3, 0, 0)], ids=str)
def test_blocks_are_their_layers(signature, multi_query, ragged, count, monkeypatch):
    net = network(signature, multi_query)
    options = {}
    if ragged:
        bounds = torch.tensor([0, *LENGTHS], device="cuda").cumsum(0)
        options = {"cu_seqlens": gt.Sequences(bounds, max(LENGTHS))}
    given = inputs(net, 1, sum(LENGTHS)) if ragged else inputs(net, 2, 5)
    check(net, given, options, count, monkeypatch)


@pytest.mark.parametrize("multi_query", [False, True])
@pytest.mark.parametrize("signature", [(3, 0, 1), (1, 3, 0)], ids=str)
def test_block_sparse_products_and_long_sequences(signature, multi_query, tf32, count, monkeypatch):
    net = network(signature, multi_query, 16)
    check(net, inputs(net, 128, 129), {}, count, monkeypatch)


@pytest.mark.parametrize("items", [5, 300, 3000])
@pytest.mark.parametrize("multi_query", [False, True])
@pytest.mark.parametrize("signature", [(3, 0, 1), (1, 3, 0)], ids=str)
def test_block_sparse_products_of_few_rows(signature, multi_query, items, tf32, count, monkeypatch):
    net = network(signature, multi_query, 16)
    check(net, inputs(net, 2, items), {}, count, monkeypatch)


@pytest.mark.parametrize("ragged", [False, True])
@pytest.mark.parametrize("signature", [(3, 0, 1), (1, 3, 0)], ids=str)
def test_lists_are_the_kernels_one_by_one(signature, ragged, tf32, monkeypatch):
    used = []

    def lists_of(given, taken):
        used.append(listed.lists_of(given, taken))
        return used[-1]

    monkeypatch.setattr(function, "lists_of", lists_of)
    net = network(signature, channels=16)
    options = {}
    if ragged:
        bounds = torch.tensor([0, *LENGTHS], device="cuda").cumsum(0)
        options = {"cu_seqlens": gt.Sequences(bounds, max(LENGTHS))}
    given = inputs(net, 1, sum(LENGTHS)) if ragged else inputs(net, 2, 5)

    def run():
        with torch.no_grad():
            inference = [x.clone() for x in net(*given, **options)]
        out, gradients = step(net, given, options)
        return [*inference, *out, *gradients]

    with calls.paused():
        want = run()
    assert not any(used)
    used.clear()
    for at in range(3):
        assert all(map(torch.equal, run(), want))
        assert all((x is not None) == (at > 0) for x in used) and len(used) == 4
        used.clear()
    # Replays read parameters and inputs anew.
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        assert all(map(torch.equal, run(), want))
    torch.cuda.current_stream().wait_stream(side)
    net.zero_grad(set_to_none=True)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        got = run()
    with torch.no_grad():
        for p in net.parameters():
            p.mul_(1.01)
    graph.replay()
    with calls.paused():
        assert all(map(torch.equal, got, run()))
    assert not torch.equal(got[0], want[0])


def kernels_of(call):
    call()
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as found:
        call()
        torch.cuda.synchronize()
    on_gpu = [e for e in found.events() if e.device_type == torch.autograd.DeviceType.CUDA]
    return sum(not e.is_user_annotation for e in on_gpu)


@pytest.mark.parametrize("multi_query", [False, True])
@pytest.mark.parametrize("signature", [(3, 0, 1), (1, 3, 0)], ids=str)
def test_there_are_no_more_kernels(signature, multi_query, monkeypatch):
    net = network(signature, multi_query)
    given = inputs(net, 2, 5)

    def run():
        step(net, given, {})

    whole_ones = kernels_of(run)
    assert 0 < whole_ones <= by_layers(monkeypatch, lambda: kernels_of(run))


@pytest.mark.parametrize("signature", [(3, 0, 1), (1, 3, 0)], ids=str)
def test_graphs_without_waiting(signature, count):
    net = network(signature)
    given = inputs(net, 2, 5)
    step(net, given, {})
    assert count == [True, True]
    before = torch.cuda.get_sync_debug_mode()
    torch.cuda.set_sync_debug_mode("error")
    try:
        want = step(net, given, {})[0]
    finally:
        torch.cuda.set_sync_debug_mode(before)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        step(net, given, {})
    torch.cuda.current_stream().wait_stream(side)
    net.zero_grad(set_to_none=True)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        got = step(net, given, {})[0]
    for x in given:
        x.add_(1)
    graph.replay()
    assert not torch.equal(got[0], want[0])
    for x in given:
        x.sub_(1)
    graph.replay()
    # Adding and subtracting 1 rounds.
    assert all((g - w).abs().max() < 1e-4 * w.abs().max() for g, w in zip(got, want, strict=True))
