"""The cost of a call besides its arithmetic: operators on tiny tensors, in microseconds, by both
ways into the extension.

python benches/overhead.py [cpu|cuda]
"""

from __future__ import annotations

import sys
import time

import torch

import flashcliff
from flashcliff import functional as F

ALGEBRA = flashcliff.Algebra(3, 0, 0)


def measure(call, repeats=400, calls=25):
    """The best of many short runs: other programs only add time."""
    for _ in range(100):
        call()
    best = float("inf")
    for _ in range(repeats):
        torch.cuda.synchronize() if torch.cuda.is_initialized() else None
        start = time.perf_counter()
        for _ in range(calls):
            call()
        best = min(best, (time.perf_counter() - start) / calls)
    return 1e6 * best


class Empty(torch.autograd.Function):
    """The least cost of an operator with a gradient in Python."""

    @staticmethod
    def forward(ctx, x, y, weight):
        ctx.save_for_backward(x, y, weight)
        return torch.empty_like(x)

    @staticmethod
    def backward(ctx, grad):
        return (*map(torch.empty_like, ctx.saved_tensors),)


def main(device):
    x, y = torch.randn(2, 8, 1, 4, device=device)
    weight = torch.randn(4, 20, device=device)
    cotangent = torch.ones(8, 1, 4, device=device)

    def eager(*tensors):
        return F.sgp_norm(*tensors, ALGEBRA)

    def dispatcher(*tensors):
        return torch.ops.flashcliff.sgp_norm(*tensors, "cl300")[0]

    print(f"sgp_norm, 8 x 1 x 4, {device}, us: forward / with gradients wanted / and backward")
    for name, call in (("functional", eager), ("torch.ops", dispatcher), ("empty", Empty.apply)):
        plain = (x, y, weight)
        wanted = tuple(tensor.clone().requires_grad_() for tensor in plain)
        times = (
            measure(lambda: call(*plain)),  # noqa: B023
            measure(lambda: call(*wanted)),  # noqa: B023
            measure(lambda: torch.autograd.grad(call(*wanted), wanted, cotangent)),  # noqa: B023
        )
        print(f"{name:12}" + " / ".join(f"{t:.1f}" for t in times))


if __name__ == "__main__":
    main(*sys.argv[1:] or ("cpu",))
