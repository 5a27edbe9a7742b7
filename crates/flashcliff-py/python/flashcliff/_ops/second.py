"""Operators and backward passes as functions that can be differentiated again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from .. import _core
from . import derived
from .op import Op, present
from .steps import GRADIENT, selecting


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
        needed: whether a gradient is needed: first of ``grad``, then of each input.
    """
    given = op.given(tensors)
    there = [seed is not None for seed in seeds]
    if not any(there) or not any(needed):
        return [None] * len(needed)
    first = _first(op, configuration, given, there)
    arguments = [*present(tensors), grad]
    *by_inputs, by_grad = derived.gradients(
        first, arguments, present(seeds), _in_order(given, needed)
    )
    following = iter(by_inputs)
    return [by_grad, *(next(following) if is_given else None for is_given in given)]


def derivative(
    op: Op,
    configuration: tuple[Any, ...],
    given: tuple[bool, ...],
    there: Sequence[bool],
    needed: Sequence[bool],
) -> _core.Operator:
    """The operator that computes :func:`gradients`: from the inputs, the gradient of the output and the seeds to the gradients of the
    inputs, then that of ``grad``, of which it makes those that are needed.

    Args:
        op: the operator.
        configuration: the name of the algebra, and all options.
        given: which inputs are there.
        there: which inputs have a seed.
        needed: whether a gradient is needed: first of ``grad``, then of each input.
    """
    first = _first(op, configuration, given, there)
    seeds = [True] * sum(there)
    return derived.operator_of(derived.gradient_key(first, seeds, _in_order(given, needed)))


def _first(op, configuration, given, there):
    """The key of the gradient of an operator, by those inputs that have a seed."""
    algebra, *options = configuration
    made = [is_there for is_there, is_given in zip(there, given) if is_given]
    return derived.key(
        op, algebra, given, tuple(options), GRADIENT, selecting(made)
    )


def _in_order(given, needed):
    """What is needed, in the order of the arguments of a gradient: inputs come first, and the gradient of the output last."""
    of_grad, *of_inputs = needed
    return [*(need for need, is_given in zip(of_inputs, given) if is_given), of_grad]
