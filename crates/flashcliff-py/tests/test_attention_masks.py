"""Masks of every shape that broadcasts, of every type, with and without later items, against softmax in float64."""

import pytest
import torch

from flashcliff import Algebra
from flashcliff.nn.transformer import SelfAttention, attend

SHAPES = [(), (1,), (5,), (1, 5), (4, 1), (4, 5), (3, 4, 5), (3, 1, 5), (1, 1, 1, 5), (2, 1, 4, 1), (2, 3, 4, 5)]
KINDS = [torch.bool, torch.float64, torch.float32, torch.float16, torch.bfloat16]

shapes = pytest.mark.parametrize("shape", SHAPES, ids=str)
kinds = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: str(kind)[6:])
causal = pytest.mark.parametrize("is_causal", [False, True], ids=["all", "causal"])


def mask_of(shape, kind):
    numbers = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    return numbers > 0 if kind is torch.bool else numbers.to(kind)


def reference(query, key, value, mask, is_causal):
    """Each query alone: the mean of the values that it may see, by exponentials."""
    scores = query @ key.transpose(-1, -2) / query.shape[-1] ** 0.5
    sees = torch.ones_like(scores, dtype=torch.bool)
    if is_causal:
        rows, columns = (torch.arange(n) for n in scores.shape[-2:])
        sees = sees & (columns <= rows[:, None])
    if mask.dtype is torch.bool:
        sees = sees & mask
    else:
        scores = scores + mask.double()
    weights = scores.exp() * sees
    return weights / weights.sum(-1, keepdim=True).clamp_min(1e-300) @ value


@shapes
@kinds
@causal
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=["f64", "f32"])
def test_masks(shape, kind, is_causal, dtype):
    torch.manual_seed(0)
    given = [torch.randn(2, 3, n, 8).to(dtype).requires_grad_() for n in (4, 5, 5)]
    exact = [x.detach().double().requires_grad_() for x in given]
    mask = mask_of(shape, kind)
    out, want = attend(*given, mask=mask, is_causal=is_causal), reference(*exact, mask, is_causal)
    limit = 1e-12 if dtype is torch.float64 else 1e-5
    assert (out - want).abs().max() < limit
    with torch.no_grad():
        assert (attend(*given, mask=mask, is_causal=is_causal) - want).abs().max() < limit
    weights = torch.randn_like(want)
    got = torch.autograd.grad(out, given, weights.to(dtype))
    for g, w in zip(got, torch.autograd.grad(want, exact, weights), strict=True):
        assert (g - w).abs().max() < 10 * limit


def test_a_mask_that_is_not_seen_fails():
    """The comparison above sees whether later items are hidden, and whether a mask is read."""
    given = [torch.randn(2, 3, n, 8, dtype=torch.float64) for n in (4, 5, 5)]
    mask = mask_of((5,), torch.bool)
    for other in ((mask, False), (torch.ones(5).bool(), True)):
        assert (reference(*given, mask, True) - reference(*given, *other)).abs().max() > 1e-3


@kinds
@pytest.mark.parametrize("grad", [True, False], ids=["training", "evaluation"])
def test_later_items_of_a_layer(kind, grad):
    """A layer with a mask of keys hides later items: its result at each item is that of the items up to it."""
    torch.manual_seed(0)
    layer = SelfAttention(Algebra(3, 0, 1), 2, 3, heads=2).double()
    mv, s = torch.randn(16, 2, 5, 2).double(), torch.randn(2, 5, 3).double()
    mask = mask_of((5,), kind)
    with torch.set_grad_enabled(grad):
        out = layer(mv, s, mask=mask, is_causal=True)
        for stop in range(1, 6):
            alone = layer(mv[:, :, :stop], s[:, :stop], mask=mask[:stop])
            for got, want in zip(out, alone, strict=True):
                assert (got[..., stop - 1, :] - want[..., stop - 1, :]).abs().max() < 1e-12
