"""Helpers for the tests of layers as one function."""

import torch
from nn_common import alike, disturb

from flashcliff.nn import transformer as gt
from flashcliff.nn.transformer import described
from flashcliff.nn.transformer.described import choice, draws

LIMIT = 1e-12


def network(signature=(1, 3, 0), scalars=8, **options):
    """A small network in float64."""
    torch.manual_seed(0)
    settings = {"blocks": 2, "attention": {"heads": 2}, **options}
    some = 3 if scalars else 0
    return disturb(gt.GATransformer(signature, 2, 3, 4, some, some, scalars, **settings).double())


def count_functions(monkeypatch):
    """A list that grows with each function that stands for calls of layers: its class, and how many parts it has."""
    counts, attempt = [], choice._attempt

    def counted(owner, parts, start, *more):
        found = attempt(owner, parts, start, *more)
        if found is not None:
            counts.append((type(owner).__name__, found[0] - start))
        return found

    monkeypatch.setattr(choice, "_attempt", counted)
    return counts


def by_layers(function):
    """The result of a function in which layers are called."""
    with described.by_layers():
        return function()


def by_layers_that_drop(number, function):
    """The result of a function in which layers are called, and drop what a function with this number drops."""
    with described.by_layers(), draws.drawing(number):
        return function()


def results(module, *given, second=False, **options):
    """Outputs and gradients, and with ``second`` the gradients of a function of these."""
    nested = [t for own in options.values() if isinstance(own, dict) for t in own.values()]
    leaves = [t for t in (*given, *options.values(), *nested, *module.parameters())]
    leaves = [t for t in leaves if isinstance(t, torch.Tensor) and t.requires_grad]
    out = module(*given, **options)
    out = [out] if isinstance(out, torch.Tensor) else [t for t in out if t is not None]
    total = sum((t * t.detach().cos()).sum() + t.pow(3).sum() for t in out)
    found = torch.autograd.grad(total, leaves, create_graph=second, allow_unused=True)
    if second:
        squares = sum(g.pow(2).sum() for g in found if g is not None)
        found = [*found, *torch.autograd.grad(squares, leaves, allow_unused=True)]
    return [*out, *(g for g in found if g is not None)]


def same(module, *given, limit=LIMIT, **options):
    """Compares a module with its layers, by values and all gradients. Some gradients are zero but for rounding."""
    got = results(module, *given, **options)
    want = by_layers(lambda: results(module, *given, **options))
    assert len(got) == len(want)
    least = 1e-3 * max(w.abs().max() for w in want if w.numel())
    for g, w in zip(got, want, strict=True):
        assert g.shape == w.shape
        assert not w.numel() or (g - w).abs().max() <= limit * torch.maximum(w.abs().max(), least)
    return got, want


def check_dropout(monkeypatch, module, *given):
    """Compares results and gradients with the results of layers that drop the same. Evaluation gives other results."""
    monkeypatch.setattr(choice, "draw_on", lambda device: 12345)
    got = results(module, *given)
    alike(got, by_layers_that_drop(12345, lambda: results(module, *given)), 1e-12)
    assert not torch.equal(got[0], module.eval()(*given)[0])
