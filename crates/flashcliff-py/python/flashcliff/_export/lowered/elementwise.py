"""A program as one operation for each expression: for hosts that fuse them, as PyTorch's compiler does."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from ..operations import Operations, Tensor
from . import functions
from .layout import Channels
from .program import Expression, Program

__all__ = ["evaluate"]

_PAIRS: dict[str, str] = {
    "add": "add",
    "sub": "subtract",
    "mul": "multiply",
    "div": "divide",
    "max": "maximum",
    "greater": "greater",
}

_ONE = Expression("constant", of=1.0)


def evaluate(
    ops: Operations,
    program: Program,
    lanes: Sequence[Tensor],
    parameters: Sequence[Tensor],
    row: Tensor | None,
    counts: Channels,
) -> list[Tensor]:
    """The outputs ``[components, rows, channels]`` for inputs of these axes, parameters ``[count, 1, channels]`` and numbers of rows
    ``[1, rows, 1]``."""
    widths = widths_of(program)
    values: list[Tensor] = []

    def value(at: int, own: Expression) -> Tensor:
        kind, operands, of = own
        given = [values[operand] for operand in operands]
        if kind == "mul" and _ONE in (known := [program.expressions[at] for at in operands]):
            return given[known[0] == _ONE]
        if kind in _PAIRS:
            pair: Callable[[Tensor, Tensor], Tensor] = getattr(ops, _PAIRS[kind])
            return pair(*given)
        match kind:
            case "constant":
                return np.asarray(float(of)).reshape(1, 1, 1)
            case "lane":
                return ops.slice(lanes[of[0]], 0, of[1], of[1] + 1)
            case "parameter":
                return ops.slice(parameters[of[0]], 0, of[1], of[1] + 1)
            case "row":
                return row
            case "channels" | "scalars" | "inverse":
                return np.asarray(uniform(kind, counts)).reshape(1, 1, 1)
            case "sum":
                width = widths[operands[0]]
                if width is None:
                    return functions.scaled(ops, given[0], counts.multivectors)
                return ops.sum(given[0], 2)
            case "same":
                return given[0]
            case "neg":
                return ops.function("negative", given[0])
            case "hypot":
                return functions.hypot(ops, *given)
        return functions.call(ops, of, given[0])

    needed = needed_by(program)
    for at, own in enumerate(program.expressions):
        values.append(value(at, own) if needed[at] else None)
    return [ops.concatenate([values[at] for at in own], 0) for own, _ in program.outputs]


def uniform(kind: str, counts: Channels) -> float:
    """The number of channels, or one over it."""
    count = counts.scalars if kind == "scalars" else counts.multivectors
    return 1 / max(count, 1) if kind == "inverse" else float(count)


def widths_of(program: Program) -> list[bool | None]:
    """For each expression whether it has a value for each scalar channel, for each channel, or (``None``) for each row."""
    found: list[bool | None] = []
    for own in program.expressions:
        if own.kind == "lane":
            found.append(program.inputs[own.of[0]][2])
        elif own.kind == "parameter":
            found.append(program.parameters[own.of[0]][2])
        elif own.kind == "sum":
            found.append(None)
        else:
            known = (found[at] for at in own.operands)
            found.append(next((width for width in known if width is not None), None))
    return found


def needed_by(program: Program) -> list[bool]:
    """Whether the outputs need each expression."""
    needed = [False] * len(program.expressions)
    stack = [at for own, _ in program.outputs for at in own]
    while stack:
        at = stack.pop()
        if not needed[at]:
            needed[at] = True
            stack += program.expressions[at].operands
    return needed
