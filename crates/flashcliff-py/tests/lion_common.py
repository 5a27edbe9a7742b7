"""Lion by the formulas of its publication, and by wrong ones."""

from __future__ import annotations

import torch


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


class Published(torch.optim.Optimizer):
    """An optimiser of a formula, which computes in float64."""

    def __init__(self, params, lr=1e-4, betas=(0.9, 0.99), weight_decay=0.0, formula=published):
        options = {"lr": lr, "betas": betas, "weight_decay": weight_decay, "maximize": False}
        super().__init__(params, options)
        self.formula = formula

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            options = float(group["lr"]), group["betas"], group["weight_decay"]
            for p in group["params"]:
                if p.grad is None:
                    continue
                state, gradient = self.state[p], -p.grad if group["maximize"] else p.grad
                mean = state.setdefault("exp_avg", torch.zeros_like(p))
                made = self.formula(p.double(), mean.double(), gradient.double(), *options)
                for old, new in zip((p, mean), made):
                    old.copy_(new)
