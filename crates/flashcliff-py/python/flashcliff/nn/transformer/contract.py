"""The equivariant linear map by operations of PyTorch, which have derivatives of every order and change nothing in place.

A network of layers (:mod:`.described`) does without it: gradients of gradients, transforms, traces and calls that something
follows need it.
"""

from __future__ import annotations

import functools

import torch
from torch import Tensor

from ..._ops.releases import padded
from .geometry import Geometry, constant, rows_by


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
        parts.append(padded(part, (0, 0, 0, 0, run.output, behind)))
    return functools.reduce(torch.add, parts)
