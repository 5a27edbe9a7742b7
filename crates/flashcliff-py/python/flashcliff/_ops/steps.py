"""The steps from an operator to a derivative of it, as text: keys of PyTorch's operators and contents of JAX's calls have them."""

from __future__ import annotations

from collections.abc import Sequence

from .. import _core

GRADIENT = "g"
"""The step to the gradient. The gradient takes the arguments of the operator, then the gradients of its outputs."""
TANGENT = "t"
"""The step to the directional derivative. The derivative takes the arguments of the operator, then a tangent for each."""


def selecting(wanted: Sequence[bool]) -> str:
    """The step to an operator with some of the outputs."""
    return f"s{''.join('01'[want] for want in wanted)}" if not all(wanted) else ""


def derive(made: _core.Operator, steps: str) -> _core.Operator:
    """The derivative that steps lead to. A step to some of the outputs is a letter, then a digit for each output, 1 for those that stay."""
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
