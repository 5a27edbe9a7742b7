"""The gradient of a backward pass, which can be differentiated again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from . import batches, composed, derived
from .again import again
from .op import Op, present


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
    if op.name in composed.FORMULAS:

        def backward(grad: Tensor, *tensors: Tensor | None) -> list[Tensor | None]:
            return composed_gradients(op, configuration, grad, tensors)

        with composed.own_types(grad):
            return batches.over(lambda given: again(backward, [grad, *tensors], given), seeds)
    first = derived.key(
        op, algebra, given, tuple(options), derived.GRADIENT, derived.selecting(there)
    )
    arguments = present(tensors)
    # Inputs come first among the arguments of a gradient, and the gradient of the output last.
    of_grad, *of_inputs = needed
    wanted = [need for need, is_given in zip(of_inputs, given) if is_given]
    found = derived.gradients(first, [*arguments, grad], present(seeds), [*wanted, of_grad])
    *by_inputs, by_grad = found
    following = iter(by_inputs)
    return [by_grad, *(next(following) if is_given else None for is_given in given)]


def transformed(
    op: Op, algebra: str, options: Sequence[Any], tensors: Sequence[Tensor | None]
) -> Tensor:
    """The output of an operator, by functions that transforms and derivatives in forward mode know."""
    if op.name in composed.FORMULAS:
        return composed.apply(op, algebra, options, tensors)
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
    if op.name in composed.FORMULAS:

        def forward(*chosen: Tensor) -> Tensor:
            following = iter(chosen)
            all_tensors = [next(following) if want else t for t, want in zip(tensors, wanted)]
            return composed.apply(op, algebra, options, all_tensors)

        chosen = (t for t, want in zip(tensors, wanted) if want)
        pull: Callable[[Tensor], Any] = torch.func.vjp(forward, *chosen)[1]
        with composed.own_types(grad):
            found = iter(pull(grad))
    else:
        given = op.given(tensors)
        of = derived.key(op, algebra, given, tuple(options))
        needed = [want for want, is_given in zip(wanted, given) if is_given]
        gradients = derived.gradients(of, present(tensors), [grad], needed)
        found = iter(present(gradients))
    return [next(found) if want else None for want in wanted]


def composed_gradients(
    op: Op, configuration: tuple[Any, ...], grad: Tensor, tensors: Sequence[Tensor | None]
) -> list[Tensor | None]:
    """The gradients of an operator of :data:`.composed.FORMULAS`, from its composed form."""
    algebra, *options = configuration

    def forward(*tensors: Tensor | None) -> Tensor:
        return composed.apply(op, algebra, options, tensors)

    return again(forward, tensors, [grad])
