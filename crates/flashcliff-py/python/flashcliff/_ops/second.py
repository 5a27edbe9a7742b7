"""Operators and backward passes as functions that can be differentiated again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from . import derived
from .op import Op, present


def transformed(
    op: Op, algebra: str, options: Sequence[Any], tensors: Sequence[Tensor | None]
) -> Tensor:
    """The output of an operator, by functions that transforms and derivatives in forward mode know."""
    of = derived.key(op, algebra, op.given(tensors), tuple(options))
    return derived.call(of, present(tensors))[0]


def transformed_gradients(
    op: Op,
    configuration: tuple[Any, ...],
    grad: Tensor,
    tensors: Sequence[Tensor | None],
    wanted: Sequence[bool],
) -> list[Tensor | None]:
    """The gradients of an operator that are wanted, by functions that transforms and derivatives in forward mode know."""
    algebra, *options = configuration
    given = op.given(tensors)
    of = derived.key(op, algebra, given, tuple(options))
    needed = [want for want, is_given in zip(wanted, given) if is_given]
    found = iter(present(derived.gradients(of, present(tensors), [grad], needed)))
    return [next(found) if want else None for want in wanted]


def gradients(
    op: Op,
    configuration: tuple[Any, ...],
    grad: Tensor,
    tensors: Sequence[Tensor | None],
    seeds: Sequence[Tensor | None],
    needed: Sequence[bool],
) -> list[Tensor | None]:
    """The gradients of a backward pass by the gradient of the output and by the inputs.

    Args:
        op: the operator.
        configuration: the name of the algebra, and all options.
        grad: the gradient of the output.
        tensors: the inputs; ``None`` for those that are not given.
        seeds: the gradients of the pass's results, for each input; ``None`` stands for zeros.
        needed: whether a gradient is needed: that of ``grad``, then those of the inputs.
    """
    algebra, *options = configuration
    given = op.given(tensors)
    there = [seed is not None for seed, is_given in zip(seeds, given) if is_given]
    if not any(there) or not any(needed):
        return [None] * len(needed)
    first = derived.key(
        op, algebra, given, tuple(options), derived.GRADIENT, derived.selecting(there)
    )
    # Inputs come first among the arguments of a gradient, and the gradient of the output last.
    of_grad, *of_inputs = needed
    wanted = [need for need, is_given in zip(of_inputs, given) if is_given]
    arguments = [*present(tensors), grad]
    found = derived.gradients(first, arguments, present(seeds), [*wanted, of_grad])
    *by_inputs, by_grad = found
    following = iter(by_inputs)
    return [by_grad, *(next(following) if is_given else None for is_given in given)]
