"""Training with our AdamW beside that of PyTorch, on any device."""

from __future__ import annotations

import torch

from flashcliff import optim

KINDS = [optim.AdamW, optim.Lion]
SHAPES = [(3, 4), (5,), (), (0,), (7, 2, 2), (2049,), (1,)]
# Of the largest number: some roundings of the type in each step.
LIMIT = {torch.float64: 1e-12, torch.float32: 2e-6}


class Pair:
    """Equal parameters with the same gradients: ``ours`` for our optimiser, ``theirs`` for PyTorch's."""

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

    def compare(self, ours, theirs):
        """Parameters, moments and step counts."""
        for p, q in zip(self.ours, self.theirs, strict=True):
            close(p, q)
            assert ours.state.get(p, {}).keys() == theirs.state.get(q, {}).keys()
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


def groups(parameters, **more):
    """Three groups with options of their own."""
    return [
        {"params": parameters[:2], "weight_decay": 0.3, **more},
        {"params": parameters[2:4], "lr": 3e-2, "betas": (0.7, 0.95), "eps": 1e-3, **more},
        {"params": parameters[4:], "weight_decay": 0.0, "maximize": True, **more},
    ]


def bits(parameters, optimiser):
    states = [value for state in optimiser.state.values() for value in state.values()]
    return [t.detach().clone() for t in (*parameters, *states)]
