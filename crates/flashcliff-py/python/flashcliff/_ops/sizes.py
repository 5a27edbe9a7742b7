"""Sizes of operators, which may be symbols of a host."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .. import _core

Sizes = dict[Any, Any]


def bind(operator: _core.Operator, shapes: Sequence[Sequence[Any]]) -> Sizes:
    """The sizes that ``batch``, ``in``, ``out`` and ``scalars`` stand for."""
    sizes: Sizes = {}
    for (name, axes), shape in zip(operator.inputs, shapes):
        fits = len(axes) == len(shape)
        if fits:
            for axis, size in zip(axes, shape):
                wanted = sizes.setdefault(axis, size) if isinstance(axis, str) else axis
                if wanted != size:
                    fits = False
        if not fits:
            expected = ", ".join(
                f"{axis} = {sizes[axis]}" if axis in sizes else str(axis) for axis in axes
            )
            raise ValueError(
                f"{operator.name}: tensor `{name}` must be [{expected}], got {list(shape)}"
            )
    if "in" in sizes:
        sizes.setdefault("out", sizes["in"])
    return sizes


def shape_of(axes: Sequence[int | str], sizes: Sizes) -> list[Any]:
    """The shape of a tensor with some axes."""
    return [sizes.get(axis, axis) for axis in axes]
