"""Operators and their derivatives, by content."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from .. import _core
from .._ops.op import CACHED, Op, operator

GRADIENT = "g"
"""The step to the gradient: arguments are those of the operator, then the gradients of its outputs."""
TANGENT = "t"
"""The step to the directional derivative: arguments are those of the operator, then a tangent for each."""


@dataclass(frozen=True, repr=False)
class Which:
    """An operator, or a derivative of one. Equal contents are one operator."""

    content: str
    """The operator as text."""
    steps: str = ""
    """The steps to a derivative."""
    block_bytes: int | None = None
    row: Op | None = None
    """The row of the table, if it is an operator with passes of its own, which save what backward reads."""
    reads_output: bool = False
    """Whether the backward pass reads the output."""

    def __repr__(self) -> str:
        """A short name, for programs of JAX that are printed."""
        base = _made(Which(self.content)).name
        return f"{base}.{self.steps}" if self.steps else base

    @property
    def core(self) -> _core.Operator:
        """The compiled operator."""
        return _made(self)

    @property
    def linear(self) -> bool:
        """Whether the operator has passes, of which the backward one reads the gradient alone."""
        return self.row is not None and self.row.linear

    @property
    def saves(self) -> bool:
        """Whether the forward pass saves what the backward pass reads."""
        return self.row is not None and (self.core.row_sums > 0 or self.core.kept is not None)

    @property
    def lanes(self) -> tuple[bool, ...]:
        """Which inputs have a batch axis."""
        return tuple("batch" in axes for _, axes in self.core.inputs)

    @property
    def outputs(self) -> tuple[bool, ...]:
        """Which outputs have a batch axis."""
        return tuple("batch" in axes for _, axes in self.core.outputs)

    def then(self, *steps: str) -> Which:
        """A derivative."""
        return Which(self.content, self.steps + "".join(steps))

    def gradient(self, there: Sequence[bool], needed: Sequence[bool]) -> Which:
        """The gradient of some outputs by some inputs."""
        return self.then(selecting(there), GRADIENT, selecting(needed))


def selecting(wanted: Sequence[bool]) -> str:
    """The step to an operator with some of the outputs."""
    return f"s{''.join('01'[want] for want in wanted)}" if not all(wanted) else ""


@lru_cache(maxsize=4 * CACHED)
def of_row(op: Op, algebra: str, given: tuple[bool, ...], options: tuple[Any, ...]) -> Which:
    """The operator of a row of the table.

    Args:
        op: the row.
        algebra: the name of the algebra.
        given: which inputs are there.
        options: the options.
    """
    named = {option.name: value for option, value in zip(op.options, options)}
    content = operator(op, algebra, given, options).content
    return Which(content, "", named.get("block_bytes"), op, op.reads_output(*options))


@lru_cache(maxsize=4 * CACHED)
def _made(which: Which) -> _core.Operator:
    made = _core.Operator.of_content(which.content)
    steps = which.steps
    while steps:
        step, steps = steps[0], steps[1:]
        if step == GRADIENT:
            made = made.gradient()
        elif step == TANGENT:
            made = made.tangent()
        else:
            count = len(made.outputs)
            made = made.selecting([digit == "1" for digit in steps[:count]])
            steps = steps[count:]
    return made
