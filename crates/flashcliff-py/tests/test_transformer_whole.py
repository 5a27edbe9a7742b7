"""Blocks as one function of autograd: what layers give, and where layers must be called."""

import contextlib
import copy

import items_reference
import pytest
import torch
from nn_common import disturb, random

import flashcliff
from flashcliff.nn import transformer as gt
from flashcliff.nn.transformer import block as blocks
from flashcliff.nn.transformer import packed, whole
from flashcliff.nn.transformer.whole import structure

SIGNATURES = [(3, 0, 1), (1, 3, 0), (2, 0, 1)]


@pytest.fixture
def kernels(monkeypatch):
    """The kernels are their references, and the layers dense products. Counts blocks that are one function."""
    items_reference.install(monkeypatch)
    items_reference.install_attention(monkeypatch)
    monkeypatch.setattr(packed, "serves", lambda layers, x: True)
    # Features of float64 have the counts that CUDA wants of float32.
    counted = structure.padded_counts
    monkeypatch.setattr(
        structure, "padded_counts", lambda *counts: counted(*counts[:2], torch.float32, True)
    )
    counts = []

    def attempt(*arguments):
        found = whole.attempt(*arguments)
        counts.append(found is not None)
        return found

    monkeypatch.setattr(blocks, "attempt", attempt)
    return counts


def by_layers(monkeypatch, function):
    with monkeypatch.context() as patch:
        patch.setattr(blocks, "attempt", lambda *_: None)
        return function()


def network(signature, scalars=8, **options):
    torch.manual_seed(0)
    settings = {"blocks": 2, "attention": {"heads": 2}, **options}
    some = 3 if scalars else 0
    net = gt.GATransformer(signature, 2, 3, 4, some, some, scalars, **settings)
    return disturb(net.double())


def inputs(net, *batch):
    x = random(net.geometry.algebra.blade_count, *batch, 2).requires_grad_()
    some = net.linear_in.in_scalars
    s = random(*batch, some, seed=1).requires_grad_() if some else None
    # A reference that needs a gradient is not for the kernels of products.
    reference = random(*batch[:1], *[1] * (len(batch) - 1), 1, seed=2)
    return x, s, {"reference": reference} if net.geometry.join else {}


def results(net, x, s, options, second=False):
    """Outputs and gradients, and with ``second`` the gradients of a function of these."""
    leaves = [t for t in (x, s, *net.parameters()) if t is not None]
    out = [t for t in net(x, s, **options) if t is not None]
    total = sum((t * t.detach().cos()).sum() + t.pow(3).sum() for t in out)
    found = torch.autograd.grad(total, leaves, create_graph=second)
    if second:
        more = torch.autograd.grad(sum(g.pow(2).sum() for g in found), leaves, allow_unused=True)
        found = [*found, *(g for g in more if g is not None)]
    return [*out, *found]


def alike(got, want, limit=1e-11):
    assert len(got) == len(want)
    for g, w in zip(got, want, strict=True):
        assert g.shape == w.shape
        assert (g - w).abs().max() <= limit * max(w.abs().max().item(), 1)


@pytest.mark.parametrize("scalars", [0, 8])
@pytest.mark.parametrize("batch", [(2, 5), (2, 1, 3)], ids=str)
@pytest.mark.parametrize("multi_query", [False, True])
@pytest.mark.parametrize("signature", SIGNATURES, ids=str)
def test_blocks_are_their_layers(signature, multi_query, batch, scalars, kernels, monkeypatch):
    net = network(signature, scalars, attention={"heads": 2, "multi_query": multi_query})
    given = inputs(net, *batch)
    want = by_layers(monkeypatch, lambda: results(net, *given))
    alike(results(net, *given), want)
    assert kernels == [True, True]
    with torch.no_grad():
        alike([t for t in net(*given[:2], **given[2]) if t is not None], want[: 2 if scalars else 1])
