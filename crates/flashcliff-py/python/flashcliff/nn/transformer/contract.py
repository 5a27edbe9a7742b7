"""The equivariant linear map by operations of PyTorch, which have derivatives of every order and change nothing in place.

A network of layers (:mod:`.described`) does without it: gradients of gradients, transforms, traces and calls that something follows need it.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from .geometry import Geometry, constant, rows_by


class Parameters(NamedTuple):
    """The parameters of a layer."""

    weight: Tensor
    """``[outputs, inputs, maps]``"""
    to_blades: Tensor | None = None
    """``[outputs * mixed, scalars]``, the invariant blade innermost"""
    to_scalars: Tensor | None = None
    """``[out_scalars, inputs * mixed]``, the invariant blade innermost"""
    scalars: Tensor | None = None
    """``[out_scalars, scalars]``"""
    blade_bias: Tensor | None = None
    """``[outputs * mixed]``"""
    scalar_bias: Tensor | None = None
    """``[out_scalars]``"""


def output(
    geometry: Geometry, out_scalars: int, x: Tensor, s: Tensor | None, p: Parameters
) -> tuple[Tensor, Tensor | None]:
    """Multivectors ``[blades, rows, outputs]`` and scalars ``[rows, out_scalars]`` from ``x`` ``[blades, rows, inputs]`` and ``s``."""
    mixed = geometry.scalar_blades
    y = mapped(geometry, x, p.weight)
    more = p.blade_bias
    if s is not None and p.to_blades is not None:
        more = F.linear(s, p.to_blades, p.blade_bias)
    if more is not None:
        # The invariant blade is the innermost index.
        added = more.unflatten(-1, (-1, len(mixed)))
        for at, blade in enumerate(mixed):
            one = y[blade : blade + 1] + added[..., at]
            y = torch.cat((y[:blade], one, y[blade + 1 :]))
    if not out_scalars:
        return y, None
    t = x.new_zeros(x.shape[1], out_scalars)
    if p.scalar_bias is not None:
        t = t + p.scalar_bias
    if p.to_scalars is not None:
        read = torch.stack([x[blade] for blade in mixed], -1).flatten(-2)
        t = t + F.linear(read, p.to_scalars)
    if s is not None and p.scalars is not None:
        t = t + F.linear(s, p.scalars)
    return y, t


def mapped(geometry: Geometry, x: Tensor, weight: Tensor) -> Tensor:
    """The maps of multivectors ``[blades, rows, inputs]`` by weights ``[outputs, inputs, maps]``."""
    plan, blades = geometry.plan, x.shape[0]
    # A matrix for each entry of the maps: [entries, inputs, outputs].
    matrices = rows_by(weight.permute(2, 1, 0), plan.map_of)
    if not plan.is_plain:
        matrices = matrices * constant(plan.factors, weight).view(-1, 1, 1)
    flipped = x.flip(0) if plan.is_reversed else x
    parts = []
    for run in plan.runs:
        source = (flipped if run.reversed else x)[run.input : run.input + run.length]
        part = torch.bmm(source, matrices[run.start : run.start + run.length])
        behind = blades - run.output - run.length
        parts.append(F.pad(part, (0, 0, 0, 0, run.output, behind)))
    return functools.reduce(torch.add, parts)
