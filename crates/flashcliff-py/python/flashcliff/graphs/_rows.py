"""What rows belong to, and sums over what belongs to them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from .._ops import checks, largest, segments
from .._ops.run import refuse_sparse_and_nested
from ._relation import Relation

_MAXIMUM = "segment_maximum"


def gather(x: Tensor, relation: Relation, *, dim: int = 1) -> Tensor:
    """For each row what it belongs to: ``o[:, row] = x[:, target of row]``.

    The gradient is a sum over the rows of each target, in their order.

    Args:
        x: ``[blades, targets, channels]``, or any shape with the targets at ``dim``.
        relation: the target of each row.
        dim: the axis of targets, and of rows in the result.

    Returns:
        A tensor of the type of ``x``, with the rows at ``dim``.

    Raises:
        ValueError: the axis does not have as many elements as the relation has targets.

    >>> import torch
    >>> x = torch.tensor([[[1.0], [2.0]]])
    >>> gather(x, Relation(torch.tensor([1, 0, 1]), 2)).flatten()
    tensor([2., 1., 2.])
    """
    return _along(segments.GATHER, x, (relation,), "sum", dim)


def difference(x: Tensor, a: Relation, b: Relation, *, dim: int = 1) -> Tensor:
    """For each row the difference of what it belongs to: ``o[:, row] = x[:, a's target of row] - x[:, b's target of row]``.

    It is one operator, and so is its gradient.

    Args:
        x: ``[blades, targets, channels]``, or any shape with the targets at ``dim``.
        a: a target of each row.
        b: another one, of as many rows and targets.
        dim: the axis of targets, and of rows in the result.

    Returns:
        A tensor of the type of ``x``, with the rows at ``dim``.

    Raises:
        ValueError: the axis does not have as many elements as the relations have targets, or their sizes differ.

    >>> import torch
    >>> x = torch.tensor([[[1.0], [4.0]]])
    >>> difference(x, Relation(torch.tensor([1]), 2), Relation(torch.tensor([0]), 2)).flatten()
    tensor([3.])
    """
    return _along(segments.GATHER, x, (a, b), "sum", dim)


def segment_sum(x: Tensor, relation: Relation, *, reduce: str = "sum", dim: int = 1) -> Tensor:
    """For each target the sum over its rows, in their order. The sum of none is 0.

    Args:
        x: ``[blades, rows, channels]``, or any shape with the rows at ``dim``.
        relation: the target of each row.
        reduce: ``"sum"``; ``"mean"`` divides by the number of rows, ``"root_count"`` by its square root.
        dim: the axis of rows, and of targets in the result.

    Returns:
        A tensor of the type of ``x``, with the targets at ``dim``.

    Raises:
        ValueError: the axis lacks as many elements as the relation has rows, or ``reduce`` is unknown.

    >>> import torch
    >>> x = torch.tensor([[[2.0], [5.0], [4.0]]])
    >>> segment_sum(x, Relation(torch.tensor([1, 0, 1]), 3), reduce="mean").flatten()
    tensor([5., 3., 0.])
    """
    return _along(segments.SUM, x, (relation,), reduce, dim)


def segment_maximum(x: Tensor, relation: Relation, *, dim: int = 1) -> Tensor:
    """For each target the largest value over its rows, element by element. The maximum of none is 0.

    The elements must be scalars: one blade, or the rows at axis 0. The maximum of the components of a vector depends on the axes of
    space, so it is not equivariant. Take the maximum of norms, or gate vectors by a maximum of scalars.

    The gradient of an element goes to the first row that has the largest value. A NaN is larger than any number.

    Args:
        x: scalars ``[1, rows, channels]``, or any shape with the rows at axis 0.
        relation: the target of each row.
        dim: the axis of rows, and of targets in the result.

    Returns:
        A tensor of the type of ``x``, with the targets at ``dim``.

    Raises:
        ValueError: the axis lacks as many elements as the relation has rows, or there are several blades.

    >>> import torch
    >>> x = torch.tensor([[[2.0], [5.0], [4.0]]])
    >>> segment_maximum(x, Relation(torch.tensor([1, 0, 1]), 3)).flatten()
    tensor([5., 4., 0.])
    """
    return _along(_MAXIMUM, x, (relation,), "sum", dim)


def _along(name: str, x: Any, relations: Sequence[Relation], reduce: str, dim: int) -> Tensor:
    """The result of an operator on three axes, with the axes before rows as one and the axes after rows as another."""
    if not isinstance(x, Tensor):
        raise TypeError(f"{name}: `x` must be a torch.Tensor, got {type(x).__name__}")
    refuse_sparse_and_nested(name, "x", x)
    for relation in relations:
        if not isinstance(relation, Relation):
            got = type(relation).__name__
            raise TypeError(f"{name}: expected a flashcliff.graphs.Relation, got {got}")
    first, last = relations[0], relations[-1]
    if first.sizes != last.sizes:
        raise ValueError(f"{name}: expected relations of the same sizes, got {first} and {last}")
    at = checks.integer("dim", dim)
    at = at + x.dim() if at < 0 else at
    if not 0 <= at < x.dim():
        raise ValueError(f"dim: expected an axis of {list(x.shape)}, got {dim}")
    given, made, what = first.count, first.rows, "targets"
    if name != segments.GATHER:
        given, made, what = made, given, "rows"
    if x.shape[at] != given:
        raise ValueError(
            f"{name}: expected {given} {what} at axis {at}, as the relation has, got {list(x.shape)}"
        )
    front, behind = x.shape[:at], x.shape[at + 1 :]
    if name == _MAXIMUM and front and front[0] != 1:
        raise ValueError(
            f"{name}: expected scalars, [1, rows, channels] or rows at axis 0, got {list(x.shape)} with rows at axis {at}; the maximum "
            "of the components of vectors is not equivariant"
        )
    flat = x.reshape(front.numel(), given, behind.numel())
    lists = [own for each in relations for own in (each.targets, each.starts, each.order)]
    if name == _MAXIMUM:
        found = largest.call(flat, lists)
    else:
        found = segments.call(name, flat, lists, checks.word("reduce", reduce))
    return found.reshape(*front, made, *behind)
