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


def under_autocast(net, given, dtype):
    """Results and gradients of a step under autocast, and the bytes that wait for the backward pass."""
    net.zero_grad()
    before = torch.cuda.memory_allocated()
    with torch.autocast("cuda", dtype=dtype, enabled=dtype is not None):
        out = net(*given)
    kept = torch.cuda.memory_allocated() - before
    # Gradients of a sum would be larger than numbers of float16.
    sum(x.square().mean() for x in out).backward()
    return [*(x.detach() for x in out), *(p.grad for p in net.parameters())], kept


def error(got, want):
    """The norm of the difference of lists of tensors, by the norm of one of them."""
    squares = [(g.double() - w).square().sum() for g, w in zip(got, want, strict=True)]
    return (sum(squares) / sum(w.square().sum() for w in want)).sqrt().item()


@pytest.mark.parametrize(("dtype", "roundings"), [(torch.bfloat16, 8), (torch.float16, 2)], ids=str)
@pytest.mark.parametrize("signature", [(3, 0, 1), (1, 3, 0), (3, 0, 0)], ids=str)
def test_steps_hand_tokens_of_16_bits_to_each_other_under_autocast(
    signature, dtype, roundings
):
    torch.manual_seed(0)
    algebra, blades = flashcliff.Algebra(*signature), flashcliff.Algebra(*signature).blade_count
    options = {"blocks": 2, "attention": {"heads": 2, "multi_query": True}}
    net = disturb(gt.GATransformer(algebra, 2, 2, 8, 3, 3, 16, **options)).cuda().float()
    given = [random(blades, 30, 40, 2).cuda().float(), random(30, 40, 3, seed=1).cuda().float()]
    want, _ = under_autocast(copy.deepcopy(net).double(), [x.double() for x in given], None)
    torch.backends.cuda.matmul.allow_tf32 = True
    try:
        wide, of_wide = under_autocast(net, given, None)
        narrow, of_narrow = under_autocast(net, given, dtype)
        again, _ = under_autocast(net, given, dtype)
        with torch.no_grad():
            evaluated = net(*given)
            with torch.autocast("cuda", dtype=dtype):
                assert all(torch.equal(g, w) for g, w in zip(net(*given), evaluated, strict=True))
    finally:
        torch.backends.cuda.matmul.allow_tf32 = False
    assert {t.dtype for t in narrow} == {torch.float32}
    # TF32 has as large errors, but for the digits of the type.
    assert error(wide, want) < 5e-3
    assert error(narrow, want) < roundings * max(error(wide, want), 1e-3)
    assert not torch.equal(narrow[0], wide[0])
    assert all(torch.equal(g, w) for g, w in zip(again, narrow, strict=True))
    assert of_narrow < 0.8 * of_wide


def test_few_items_keep_float32_under_autocast():
    """Matrix products of few rows have no kernels for 16 bits, and their memory does not matter."""
    net = network((1, 3, 0), torch.float32).cuda()
    given = [x.cuda() for x in inputs((1, 3, 0), torch.float32, 2, 5)]
    torch.backends.cuda.matmul.allow_tf32 = True
    try:
        want, _ = under_autocast(net, given, None)
        got, _ = under_autocast(net, given, torch.bfloat16)
    finally:
        torch.backends.cuda.matmul.allow_tf32 = False
    assert all(torch.equal(g, w) for g, w in zip(got, want, strict=True))
