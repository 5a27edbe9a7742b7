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
