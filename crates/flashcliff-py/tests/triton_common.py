"""Calls of operators by Triton kernels, and by kernels of the extension."""

from __future__ import annotations

import reference
import torch
from cases import CASES, Case, relative_error

import flashcliff

LANES = [
    case
    for case in CASES
    if case.name not in ("fcgp_norm", "mv_linear", "mv_linear_sgp_norm")
]
"""Every operator that is a program of lanes, with the options of its cases."""


def both_passes(case: Case, tensors, grad):
    """The output and the gradients of all inputs."""
    tensors = {name: tensor.detach().clone().requires_grad_() for name, tensor in tensors.items()}
    output = case.run(**tensors)
    return [output.detach(), *torch.autograd.grad(output, list(tensors.values()), grad)]


def by_triton(call, *arguments):
    """What a call gives with Triton kernels."""
    with flashcliff.backend("triton"):
        return call(*arguments)


def compare(found, wanted, tolerance):
    """The largest relative difference of some tensors, which must be small."""
    for at, (got, expected) in enumerate(zip(found, wanted, strict=True)):
        assert got.shape == expected.shape
        assert relative_error(got, expected) <= tolerance, f"tensor {at}"


def sgp(channels, batch, signature=(3, 0, 0), dtype=torch.float32):
    """A call of ``sgp_norm``: the case, its tensors, and a gradient of the output."""
    algebra = flashcliff.Algebra(*signature)
    generator = torch.Generator().manual_seed(channels + batch)
    shape = (algebra.blade_count, batch, channels)
    count = len(reference.paths(signature))
    x, y, grad = (torch.randn(shape, generator=generator).to(dtype) for _ in range(3))
    weight = torch.randn(channels, count, generator=generator).to(dtype)
    case = Case("sgp_norm", signature, {})
    return case, {"x": x, "y": y, "weight": weight}, grad
