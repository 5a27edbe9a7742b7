"""Training with our optimisers beside the optimisers of PyTorch and of publications, on any device."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from lion_common import Published

from flashcliff import optim

KINDS = [optim.AdamW, optim.Lion]
KIND = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
DTYPES = [torch.float64, torch.float32]
THEIRS = {optim.AdamW: torch.optim.AdamW, optim.Lion: Published}
SHAPES = [(3, 4), (5,), (), (0,), (7, 2, 2), (2049,), (1,)]
# Of the largest number: some roundings of the type in each step.
LIMIT = {torch.float64: 1e-12, torch.float32: 2e-6}


class Pair:
    """Equal parameters with the same gradients: ``ours`` for our optimiser, ``theirs`` for the one that it is compared with."""

    def __init__(self, dtype, device, shapes=SHAPES, seed=0):
        self.generator = torch.Generator().manual_seed(seed)
        self.dtype, self.device = dtype, device
        drawn = [self._drawn(shape) for shape in shapes]
        self.ours = [torch.nn.Parameter(x.clone()) for x in drawn]
        self.theirs = [torch.nn.Parameter(x.clone()) for x in drawn]

    def _drawn(self, shape):
        return torch.randn(shape, generator=self.generator, dtype=self.dtype).to(self.device)

    def draw(self, skipped=lambda at: False, scale=1.0):
        """New gradients, of some parameters none."""
        for at, (ours, theirs) in enumerate(zip(self.ours, self.theirs)):
            gradient = None if skipped(at) else scale * self._drawn(ours.shape)
            ours.grad = gradient
            theirs.grad = None if gradient is None else gradient.clone()

    def made(self, kind, split=None, **options):
        """Our optimiser and the other with the same groups, by default the groups of :func:`groups`."""
        split = partial(groups, kind=kind) if split is None else split
        theirs = THEIRS[kind](split(self.theirs), lr=1e-2)
        return kind(split(self.ours), lr=1e-2, **options), theirs

    def update(self, ours, theirs, max_norm=None):
        """A step of both, which gives the same. Returns the norm of the gradients if there is a bound."""
        norm = None if max_norm is None else torch.nn.utils.clip_grad_norm_(self.theirs, max_norm)
        ours.step()
        theirs.step()
        self.compare(ours, theirs)
        return norm

    def step(self, ours, theirs, skipped=lambda at: False, max_norm=None):
        """An update with new gradients, of some parameters none."""
        self.draw(skipped)
        self.update(ours, theirs, max_norm)

    def compare(self, ours, theirs):
        """Parameters, moments and step counts."""
        for p, q in zip(self.ours, self.theirs, strict=True):
            close(p, q)
            assert ours.state.get(p, {}).keys() - {"average"} == theirs.state.get(q, {}).keys()
            for name, value in theirs.state.get(q, {}).items():
                got = ours.state[p][name]
                assert got.shape == value.shape
                if name == "step":
                    assert got.item() == value.item()
                else:
                    close(got, value)


def close(got, want):
    assert got.dtype == want.dtype and got.shape == want.shape
    if got.numel():
        assert (got - want).abs().max() <= LIMIT[got.dtype] * want.abs().max().clamp(min=1e-3)


def groups(parameters, kind=optim.AdamW):
    """Three groups, each with its own options."""
    eps = {} if kind is optim.Lion else {"eps": 1e-3}
    return [
        {"params": parameters[:2], "weight_decay": 0.3},
        {"params": parameters[2:4], "lr": 3e-2, "betas": (0.7, 0.95), **eps},
        {"params": parameters[4:], "weight_decay": 0.0, "maximize": True},
    ]


def bits(parameters, optimiser):
    states = [value for state in optimiser.state.values() for value in state.values()]
    return [t.detach().clone() for t in (*parameters, *states)]


def parameter(**options):
    """A parameter with a gradient."""
    made = torch.nn.Parameter(torch.ones(2, **options))
    made.grad = torch.ones_like(made)
    return made
