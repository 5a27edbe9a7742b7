"""Training with Lion beside the formulas of its publication, on any device."""

from __future__ import annotations

import torch
from optim_common import LIMIT, SHAPES

from flashcliff.optim import Lion


def published(p, m, g, lr, betas, decay):
    """Algorithm 2 of arXiv 2302.06675, for one parameter in float64."""
    c = betas[0] * m + (1 - betas[0]) * g
    return p - lr * (torch.sign(c) + decay * p), betas[1] * m + (1 - betas[1]) * g


def betas_swapped(p, m, g, lr, betas, decay):
    return published(p, m, g, lr, betas[::-1], decay)


def sign_without_momentum(p, m, g, lr, betas, decay):
    return p - lr * (torch.sign(g) + decay * p), betas[1] * m + (1 - betas[1]) * g


def mean_before_the_step(p, m, g, lr, betas, decay):
    m = betas[1] * m + (1 - betas[1]) * g
    return p - lr * (torch.sign(m) + decay * p), m


def decay_within_the_sign(p, m, g, lr, betas, decay):
    return published(p, m, g + decay * p, lr, betas, 0.0)


def no_decay(p, m, g, lr, betas, decay):
    return published(p, m, g, lr, betas, 0.0)


def step_without_sign(p, m, g, lr, betas, decay):
    c = betas[0] * m + (1 - betas[0]) * g
    return p - lr * (c + decay * p), betas[1] * m + (1 - betas[1]) * g


WRONG = [
    betas_swapped,
    sign_without_momentum,
    mean_before_the_step,
    decay_within_the_sign,
    no_decay,
    step_without_sign,
]


class Beside:
    """Parameters with Lion, and the same ones in float64 with a formula."""

    def __init__(self, dtype, device, formula=published, shapes=SHAPES, seed=0):
        self.generator = torch.Generator().manual_seed(seed)
        self.dtype, self.device, self.formula = dtype, device, formula
        self.wanted = [self._drawn(shape) for shape in shapes]
        self.means = [torch.zeros_like(p) for p in self.wanted]
        made = (p.to(dtype=dtype, device=device) for p in self.wanted)
        self.ours = [torch.nn.Parameter(p.clone()) for p in made]

    def _drawn(self, shape):
        drawn = torch.randn(shape, generator=self.generator, dtype=torch.float64)
        return drawn.to(self.dtype).double()

    def step(self, optimiser, skipped=lambda at: False, max_norm=None, scale=1.0):
        """A step with new gradients, of some parameters none."""
        drawn = [None if skipped(at) else scale * self._drawn(p.shape) for at, p in enumerate(self.wanted)]
        for p, g in zip(self.ours, drawn):
            p.grad = None if g is None else g.to(dtype=self.dtype, device=self.device)
        optimiser.step()
        norm = sum(float(g.square().sum()) for g in drawn if g is not None) ** 0.5
        clip = 1.0 if max_norm is None else min(1.0, max_norm / (norm + 1e-6))
        at = 0
        for group in optimiser.param_groups:
            for _ in group["params"]:
                g = drawn[at]
                if g is not None:
                    g = clip * (-g if group["maximize"] else g)
                    self.wanted[at], self.means[at] = self.formula(
                        self.wanted[at], self.means[at], g, float(group["lr"]), group["betas"], group["weight_decay"]
                    )
                at += 1
        return norm

    def compare(self, optimiser):
        for p, want, mean in zip(self.ours, self.wanted, self.means, strict=True):
            close(p, want)
            if p in optimiser.state:
                assert optimiser.state[p].keys() - {"average"} == {"exp_avg"}
                close(optimiser.state[p]["exp_avg"], mean)


def close(got, want):
    """``want`` is in float64 on the CPU."""
    assert got.shape == want.shape
    if got.numel():
        off = (got.detach().double().cpu() - want).abs().max()
        assert off <= LIMIT[got.dtype] * want.abs().max().clamp(min=1e-3)


def groups(parameters):
    """Three groups with options of their own."""
    return [
        {"params": parameters[:2], "weight_decay": 0.3},
        {"params": parameters[2:4], "lr": 3e-2, "betas": (0.7, 0.95), "weight_decay": 0.1},
        {"params": parameters[4:], "maximize": True},
    ]


def trains_as_published(dtype, device, formula=published):
    """Several groups, and parameters without a gradient in some steps, one of them in the first ones."""
    beside = Beside(dtype, device, formula)
    ours = Lion(groups(beside.ours), lr=1e-2)
    before = [p.detach().clone() for p in beside.ours]
    for step in range(12):
        beside.step(ours, lambda at, step=step: (step + at) % 5 == 0 or (at == 5 and step < 4))
        beside.compare(ours)
    assert all((p != b).any() for p, b in zip(beside.ours, before) if p.numel() > 1)
