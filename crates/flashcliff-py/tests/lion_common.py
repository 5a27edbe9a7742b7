"""Training with Lion beside the formulas of its publication, on any device."""

from __future__ import annotations

import copy

import torch
from optim_common import LIMIT, SHAPES, bits

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


def clips_as_published(dtype, device):
    """Norms above the bound and below it."""
    beside = Beside(dtype, device)
    ours = Lion(groups(beside.ours), lr=1e-2, max_norm=2.0)
    assert ours.grad_norm is None
    norms = []
    for step in range(6):
        scale = (1.0, 0.01)[step % 2]
        norms.append(beside.step(ours, lambda at, step=step: at == step, 2.0, scale))
        assert abs(float(ours.grad_norm) - norms[-1]) <= LIMIT[dtype] * norms[-1]
        beside.compare(ours)
    assert min(norms) < 2 < max(norms)


def schedules(dtype, device):
    """A scheduler writes to a learning rate that is a tensor."""
    beside = Beside(dtype, device)
    ours = Lion(beside.ours, lr=torch.tensor(1e-2, dtype=torch.float64, device=device))
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(ours, 8)
    seen = set()
    for _ in range(8):
        beside.step(ours)
        beside.compare(ours)
        seen.add(float(ours.param_groups[0]["lr"]))
        schedule.step()
    assert len(seen) == 8


def takes_strides(device):
    """Parameters and gradients that lie in another order."""
    beside = Beside(torch.float64, device, shapes=[(4, 6), (3, 5, 2)])
    beside.ours[0].data = beside.ours[0].data.t().contiguous().t()
    ours = Lion(beside.ours, lr=1e-2)
    for _ in range(4):
        beside.step(ours)
        beside.compare(ours)


def signs_of_special_numbers(device):
    """Nothing moves where the direction is 0; what is not a number, or too large for one, is not hidden."""
    inf, nan = torch.inf, torch.nan
    p = torch.nn.Parameter(torch.ones(5, dtype=torch.float64, device=device))
    ours = Lion([p], lr=0.5)
    p.grad = torch.tensor([0.0, -0.0, nan, inf, -inf], dtype=torch.float64, device=device)
    ours.step()
    assert p[:2].tolist() == [1.0, 1.0] and p[2].isnan() and p[3:].tolist() == [0.5, 1.5]


def repeats(device):
    """Two runs give the same bits."""
    runs = []
    for _ in range(2):
        beside = Beside(torch.float32, device)
        ours = Lion(groups(beside.ours), max_norm=0.5, average_decay=0.9)
        for _ in range(5):
            beside.step(ours)
        runs.append(bits(beside.ours, ours))
    assert all(torch.equal(a, b) for a, b in zip(*runs, strict=True))


def goes_on_with_a_state(dtype, device):
    """An optimiser with a loaded state gives the bits of the one that it is of."""
    beside = Beside(dtype, device)
    ours = Lion(groups(beside.ours), lr=1e-2, average_decay=0.9)
    for step in range(3):
        beside.step(ours, lambda at, step=step: at == step)
    twins = [torch.nn.Parameter(p.detach().clone()) for p in beside.ours]
    again = Lion(groups(twins), lr=5.0)
    again.load_state_dict(copy.deepcopy(ours.state_dict()))
    assert [g["lr"] for g in again.param_groups] == [g["lr"] for g in ours.param_groups]
    for _ in range(3):
        beside.step(ours)
        for p, q in zip(beside.ours, twins):
            q.grad = p.grad
        again.step()
        assert all(map(torch.equal, bits(beside.ours, ours), bits(twins, again)))
        beside.compare(ours)
