"""Attention by our kernel on CUDA: beside the formula in float64, with gradients."""

import math

import pytest
import torch

from flashcliff._ops import attention as kernels
from flashcliff.nn.transformer import Sequences, attend, kernel

pytestmark = pytest.mark.cuda
# Relative to the largest number. 16-bit results round to 8 and 11 bits; TF32 has 11.
LIMITS = {"exact": 1e-5, "tf32": 3e-3, torch.bfloat16: 2e-2, torch.float16: 3e-3}
# Items of queries and of keys, heads, heads of keys, features of queries and of values.
SHAPES = [
    (1, 1, 1, 1, 4, 4),
    (4, 4, 8, 1, 80, 96),
    (17, 17, 3, 3, 40, 40),
    (54, 54, 8, 8, 40, 40),
    (100, 33, 2, 1, 12, 48),
    (33, 100, 2, 2, 96, 20),
    (128, 128, 2, 1, 48, 52),
]


@pytest.fixture(params=["exact", "tf32", torch.bfloat16, torch.float16], ids=str)
def kind(request):
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high" if request.param == "tf32" else "highest")
    yield request.param
    torch.set_float32_matmul_precision(before)


@pytest.fixture(autouse=True)
def all_lengths(monkeypatch):
    monkeypatch.setattr(kernel, "_LONGEST", {4: 256, 2: 256})


def tensors(kind, *shapes, seed=0):
    generator = torch.Generator("cuda").manual_seed(seed)
    dtype = kind if isinstance(kind, torch.dtype) else torch.float32
    return [
        torch.randn(shape, generator=generator, device="cuda").to(dtype).requires_grad_()
        for shape in shapes
    ]


def formula(query, key, value, scale, same=None):
    """In float64, without a kernel; ``same`` says who may attend to whom."""
    query, key, value = (x.double() for x in (query, key, value))
    scores = query @ key.transpose(-1, -2) * scale
    if same is not None:
        scores = scores.masked_fill(~same, -math.inf)
    return scores.softmax(-1).nan_to_num(0.0) @ value


def check(kind, got, want):
    largest = max(w.abs().max() for w in want)
    for g, w in zip(got, want, strict=True):
        assert (g.double() - w).abs().max() <= LIMITS[kind] * largest


def compare(kind, given, scale, attended, same=None):
    """Results and gradients of a call beside the formula's."""
    assert kernels.serves(*given)
    out = attended(*given)
    assert "_AttentionBackward" in str([out.grad_fn, *(edge[0] for edge in out.grad_fn.next_functions)])
    want = formula(*given, scale, same)
    check(kind, [out], [want])
    (weights,) = tensors(kind, out.shape, seed=1)
    got = torch.autograd.grad(out, given, weights)
    of_formula = torch.autograd.grad(want, given, weights.double())
    check(kind, got, [x.double() for x in of_formula])
    return [out, *got]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_results_and_gradients(kind, shape):
    items, keys, heads, of_keys, width, width_v = shape
    sizes = (2, 3, heads, items, width), (2, 3, of_keys, keys, width), (2, 3, of_keys, keys, width_v)
    given = tensors(kind, *sizes)
    first = compare(kind, given, 0.3, lambda *x: attend(*x, scale=0.3))
    again = compare(kind, given, 0.3, lambda *x: attend(*x, scale=0.3))
    for a, b in zip(first, again, strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize("given_longest", [True, False])
@pytest.mark.parametrize("of_keys", [1, 3])
def test_ragged_batches(kind, of_keys, given_longest):
    lengths, lengths_k = [3, 0, 70, 16, 1], [5, 2, 33, 64, 9]
    bounds, bounds_k = (
        torch.tensor([0, *torch.tensor(x).cumsum(0)], device="cuda") for x in (lengths, lengths_k)
    )
    longest = (max(lengths), max(lengths_k)) if given_longest else (None, None)
    of_query, of_key = Sequences(bounds, longest[0]), Sequences(bounds_k, longest[1])
    given = tensors(kind, (3, 90, 20), (of_keys, 113, 20), (of_keys, 113, 24))
    own, own_k = (
        torch.repeat_interleave(torch.arange(5), torch.tensor(x)).cuda() for x in (lengths, lengths_k)
    )
    same = own[:, None] == own_k

    def attended(*x):
        return attend(*x, scale=0.5, cu_seqlens=of_query, cu_seqlens_key=of_key)

    compare(kind, given, 0.5, attended, same)


def test_ragged_batches_have_the_bits_of_their_sequences(kind):
    lengths = [50, 7, 128]
    bounds = torch.tensor([0, 50, 57, 185], device="cuda")
    given = tensors(kind, (2, 185, 40), (2, 185, 40), (2, 185, 40))
    out = attend(*given, cu_seqlens=bounds)
    for start, length in zip(bounds.tolist(), lengths):
        parts = [x[:, start : start + length].detach().clone() for x in given]
        assert torch.equal(out[:, start : start + length], attend(*parts))


def test_queries_without_keys_get_zeros(kind):
    of_query = torch.tensor([0, 2, 5], device="cuda")
    of_key = torch.tensor([0, 0, 3], device="cuda")
    given = tensors(kind, (2, 5, 8), (2, 3, 8), (2, 3, 8))
    out = attend(*given, cu_seqlens=Sequences(of_query, 3), cu_seqlens_key=Sequences(of_key, 3))
    assert (out[:, :2] == 0).all() and out.isfinite().all()
    grads = torch.autograd.grad(out.square().sum(), given)
    assert (grads[0][:, :2] == 0).all() and all(g.isfinite().all() for g in grads)


def test_large_logits():
    """The largest logit of a row is subtracted from all."""
    given = tensors("exact", (2, 40, 8), (2, 40, 8), (2, 40, 8))
    out = attend(*given, scale=40.0)
    # Logits are some hundreds, and their rounding is a factor of the weights.
    assert (out - formula(*given, 40.0)).abs().max() < 1e-3


def test_strides_and_odd_places():
    """Heads among the channels are read where they lie; what lies at an odd place is copied."""
    rows = torch.randn(3, 6, 2 * 3 * 8, device="cuda", requires_grad=True)
    rows = rows.unflatten(-1, (2, 3, 8)).movedim(-3, 0)
    query, key = (x.movedim(-2, -3) for x in rows)
    assert kernels._regular(query) is query
    compare("exact", [query, key, key], 0.5, lambda *x: attend(*x, scale=0.5))
    odd = torch.randn(3, 3, 6, 9, device="cuda")[..., 1:].requires_grad_()
    assert kernels._regular(odd) is not odd
    compare("exact", [odd, key, key], 0.5, lambda *x: attend(*x, scale=0.5))


def test_gradients_of_gradients():
    given = tensors("exact", (2, 5, 8), (1, 5, 8), (1, 5, 8))

    def second(function):
        out = function(*given)
        first = torch.autograd.grad(out.pow(3).sum(), given, create_graph=True)
        return torch.autograd.grad(sum(g.square().sum() for g in first), given)

    want = second(lambda *x: formula(*x, 0.5))
    check("exact", second(lambda *x: attend(*x, scale=0.5)), [x.double() for x in want])


def test_masks_and_causal_attention_are_those_of_pytorch():
    given = tensors("exact", (2, 6, 8), (2, 6, 8), (2, 6, 8))
    below = torch.ones(6, 6, dtype=torch.bool, device="cuda").tril()
    want = formula(*given, 8**-0.5, below)
    check("exact", [attend(*given, mask=below), attend(*given, is_causal=True)], [want, want])


def test_graphs():
    given = tensors("exact", (2, 4, 30, 8), (2, 1, 30, 8), (2, 1, 30, 8))

    def step():
        return torch.autograd.grad(attend(*given).square().sum(), given)

    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(2):
            want = step()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        got = step()
    graph.replay()
    for g, w in zip(got, want, strict=True):
        assert torch.equal(g, w)


def placed(x, offset):
    """The same numbers, so many elements after the start of memory."""
    return x.new_zeros(x.numel() + offset)[offset:].view(x.shape).copy_(x)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32], ids=str)
@pytest.mark.parametrize("how", ["plain", "causal", "mask", "ragged", "cross"])
@pytest.mark.parametrize("odd", ["inputs", "gradient", "both"])
def test_odd_addresses(dtype, how, odd, monkeypatch):
    """Inputs, masks and gradients of PyTorch's kernels."""
    monkeypatch.setattr(kernel, "_LONGEST", {})
    width, items = 64, 40
    batch = () if how in ("ragged", "cross") else (2,)
    given = tensors(dtype, *[(*batch, 3, items, width)] * 3)
    options = {"is_causal": True} if how == "causal" else {}
    bounds = torch.tensor([0, 17, items], device="cuda")
    if how in ("ragged", "cross"):
        options["cu_seqlens"] = bounds
    if how == "cross":
        options["cu_seqlens_key"] = bounds.clone()
    mask = tensors(dtype, (1, 1, items, items), seed=3)[0].detach() if how == "mask" else None
    found = []
    for is_odd in (False, True):
        inputs, behind = (offset * is_odd for offset in (odd != "gradient", odd != "inputs"))
        own = [placed(x.detach(), inputs).requires_grad_() for x in given]
        if mask is not None:
            options["mask"] = placed(mask, inputs)
        out = attend(*own, **options)
        weights = placed(tensors(dtype, out.shape, seed=4)[0].detach(), behind)
        found.append([out, *torch.autograd.grad(out, own, weights)])
    torch.cuda.synchronize()
    for got, want in zip(found[1], found[0], strict=True):
        limit = LIMITS["exact"] if dtype == torch.float32 else LIMITS[dtype]
        assert (got - want).abs().max() <= limit * want.abs().max()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("width", [8, 104])
@pytest.mark.parametrize("batch, heads", [((), 65_537), ((2,), 65_537), ((65_537,), 2)], ids=str)
@pytest.mark.parametrize("ragged", [False, True])
def test_many_heads_and_batch_elements(dtype, width, batch, heads, ragged):
    if ragged and batch:
        pytest.skip("a ragged batch has one element")
    given = tensors(dtype, *[(*batch, heads, 20, width)] * 3)
    if ragged:
        bounds = torch.tensor([0, 3, 20], device="cuda")
        out = attend(*given, cu_seqlens=bounds)
    elif not batch:
        out = attend(*(x[None] for x in given))[0]
    else:
        out = attend(*given)
    weights = tensors(dtype, out.shape, seed=1)[0].detach()
    gradients = torch.autograd.grad(out, given, weights)
    for at in (0, 32_766, 32_767, heads - 1) if heads > 2 else (0, 1):
        own = [x.detach()[..., at : at + 1, :, :].clone().requires_grad_() for x in given]
        if batch and heads == 2:
            own = [x[-1:].detach().requires_grad_() for x in own]
        same = None
        if ragged:
            of = torch.arange(20, device="cuda") >= 3
            same = of[:, None] == of
        want = formula(*own, 1 / math.sqrt(width), same)

        def part(x, at=at):
            x = x[..., at : at + 1, :, :]
            return x[-1:] if batch and heads == 2 else x

        wanted = torch.autograd.grad(want, own, part(weights).double())
        limit = LIMITS["exact"] if dtype == torch.float32 else LIMITS[dtype]
        for g, w in zip((out, *gradients), (want, *wanted), strict=True):
            assert (part(g).double() - w).abs().max() <= limit * w.abs().max()


@pytest.mark.parametrize("width", [8, 104])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("longest", [None, 17])
def test_many_sequences(dtype, width, longest):
    """65,537 sequences, of 17 items the last, with gradients."""
    count = 65_537
    bounds = torch.arange(count + 1, device="cuda")
    bounds[-1] += 16
    given = tensors(dtype, *[(2, count + 16, width)] * 3)
    out = attend(*given, cu_seqlens=Sequences(bounds, longest))
    weights = tensors(dtype, out.shape, seed=1)[0].detach()
    gradients = torch.autograd.grad(out, given, weights)
    # An item alone attends to itself.
    limit = LIMITS["exact"] if dtype == torch.float32 else LIMITS[dtype]
    for got, want in ((out, given[2]), (gradients[2], weights)):
        assert (got - want)[:, :-17].abs().max() <= limit * want.abs().max()
    own = [x.detach()[:, -17:].clone().requires_grad_() for x in given]
    want = formula(*own, 1 / math.sqrt(width))
    wanted = torch.autograd.grad(want, own, weights[:, -17:].double())
    for g, w in zip((out, *gradients), (want, *wanted), strict=True):
        assert g.isfinite().all()
        assert (g[:, -17:].double() - w).abs().max() <= limit * w.abs().max()


def test_gradients_of_gradients_where_a_query_has_no_keys():
    of_query = torch.tensor([0, 2, 5], device="cuda")
    of_key = torch.tensor([0, 0, 3], device="cuda")
    given = tensors("exact", (2, 5, 8), (2, 3, 8), (2, 3, 8))
    out = attend(*given, cu_seqlens=of_query, cu_seqlens_key=of_key)
    first = torch.autograd.grad(out.square().sum(), given, create_graph=True)
    second = torch.autograd.grad(sum(x.square().sum() for x in first), given)
    assert all(x.isfinite().all() for x in (*first, *second))
    assert (second[0][:, :2] == 0).all()
