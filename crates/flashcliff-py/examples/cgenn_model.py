"""Makes an existing model of CGENN's layers faster with `flashcliff.accelerate`, and trains on.

A model written for CGENN is not rewritten: its layers are replaced in place, and keep their parameters, so the optimiser goes
on. CGENN is not a package that can be installed, so this file has plain layers with its names, attributes and arithmetic; in a
checkout of CGENN they come from `models.modules`. Runs in a few seconds on two cores.

    python examples/cgenn_model.py
"""

import math
import time

import torch
from torch import nn

import flashcliff
from flashcliff.compat.cgenn import CliffordAlgebra


class Plain(nn.Module):
    """A layer as CGENN has it: `[batch, channels, blades]`, dense tables."""

    def __init__(self, algebra):
        super().__init__()
        self.algebra = algebra


def spread(algebra, by_grade):
    """A number for each grade, for each blade."""
    return by_grade.repeat_interleave(algebra.subspaces, dim=-1)


class MVLinear(Plain):
    def __init__(self, algebra, in_features, out_features, subspaces=True, bias=True):
        super().__init__(algebra)
        self.in_features, self.out_features, self.subspaces = in_features, out_features, subspaces
        shape = (out_features, in_features, algebra.n_subspaces)
        self.weight = nn.Parameter(torch.randn(shape) / math.sqrt(in_features))
        bias = nn.Parameter(torch.zeros(1, out_features, 1)) if bias else None
        self.register_parameter("bias", bias)

    def forward(self, x):
        y = torch.einsum("bni,mni->bmi", x, spread(self.algebra, self.weight))
        if self.bias is None:
            return y
        return torch.cat((y[..., :1] + self.bias, y[..., 1:]), dim=-1)


class SteerableGeometricProductLayer(Plain):
    def __init__(self, algebra, features, include_first_order=True, normalization_init=None):
        super().__init__(algebra)
        self.features, self.include_first_order = features, include_first_order
        self.normalization = nn.Identity()
        self.linear_right = MVLinear(algebra, features, features, bias=False)
        self.linear_left = MVLinear(algebra, features, features)
        paths = int(algebra.geometric_product_paths.sum())
        self.weight = nn.Parameter(torch.randn(features, paths) / math.sqrt(algebra.dim + 1))

    def forward(self, x):
        paths = self.algebra.geometric_product_paths
        table = self.weight.new_zeros(self.features, *paths.shape)
        table[:, paths] = self.weight
        for axis in (1, 2, 3):
            table = table.repeat_interleave(self.algebra.subspaces, dim=axis)
        table = table * self.algebra.cayley
        product = torch.einsum("bni,nijk,bnk->bnj", x, table, self.linear_right(x))
        return (self.linear_left(x) + product) / math.sqrt(2)


class SignedVolume(nn.Module):
    """The signed volume between three vectors, which the network must learn: it turns with reflections."""

    def __init__(self, channels=16):
        super().__init__()
        self.algebra = CliffordAlgebra((1.0, 1.0, 1.0))
        self.net = nn.Sequential(
            MVLinear(self.algebra, 3, channels),
            SteerableGeometricProductLayer(self.algebra, channels),
            SteerableGeometricProductLayer(self.algebra, channels),
            MVLinear(self.algebra, channels, 1),
        )

    def forward(self, vectors):
        # The pseudoscalar is the last blade.
        return self.net(self.algebra.embed_grade(vectors, 1))[:, 0, -1]


def train(model, optimiser, steps, batch=128):
    """Losses of steps, and the milliseconds that one takes."""
    losses, times = [], []
    for _ in range(steps):
        vectors = torch.randn(batch, 3, 3)
        start = time.perf_counter()
        loss = (model(vectors) - torch.linalg.det(vectors)).square().mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        times.append(time.perf_counter() - start)
        losses.append(loss.item())
    return losses, 1e3 * sorted(times)[steps // 2]


def main(before=15, after=185):
    torch.manual_seed(0)
    model = SignedVolume()
    optimiser = torch.optim.Adam(model.parameters(), lr=3e-3)
    losses, slow = train(model, optimiser, before)
    vectors = torch.randn(64, 3, 3)
    expected = model(vectors).detach()

    found = flashcliff.accelerate(model)
    print(found)
    difference = (model(vectors) - expected).abs().max().item()
    print(f"same results, to {difference:.0e}")

    # The optimiser and its state stay.
    more, fast = train(model, optimiser, after)
    print(
        f"loss {losses[0]:.3f}, {losses[-1]:.3f} when it was accelerated, {more[-1]:.1e} at the end"
    )
    print(f"a step took {slow:.1f} ms, and takes {fast:.1f} ms")
    return found, difference, losses[-1], sum(more[-10:]) / 10


if __name__ == "__main__":
    main()
