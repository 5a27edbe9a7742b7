"""Messages along the edges of a graph: an operator on edges and on the nodes at their ends, and the sum of its results at nodes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from .._ops import autocast, checks
from .._ops import messages as _messages
from .._ops.run import refuse_sparse_and_nested
from .._ops.segments import REDUCTIONS
from ..operators import Operator
from ._accepted import Edges, ends_of
from ._relation import Relation

_ENDS = {"receivers": 0, "senders": 1, "edges": _messages.ROWS}


def messages(
    operator: Operator,
    graph: Edges,
    *tensors: Tensor,
    ends: Sequence[str],
    to: str = "receivers",
    reduce: str = "sum",
) -> Any:
    """An operator on each edge, of tensors of edges and of the nodes at their ends, and the sum of its results at nodes.

    ::

        o[:, i] = sum over the edges e from j to i of operator(x[:, j], y[:, e], ...)

    On a GPU this is one kernel: nothing is gathered before it, and no result of an edge is written where sums are asked for. On the CPU
    it is one call, which computes some edges at a time, within the caches. So is each gradient, of every order, and nothing is kept for
    gradients but the arguments. Sums have a fixed order and no atomics, so results are the same bit for bit in every run and for any
    number of threads.
    Composed of :func:`gather`, the operator and :func:`segment_sum` are gradients of parameters, on GPUs operators with means or sums over
    channels, and all calls in ``torch.func`` and in ``torch.compile``.

    Shapes:
        - a multivector or numbers of edges ``[blades, edges, channels]``, of nodes ``[blades, nodes, channels]``. With one
          channel, where others have more, it is the same for all channels
        - a parameter ``[channels, count]``
        - results ``[blades, nodes, channels]``, or ``[blades, edges, channels]``

    Args:
        operator: an operator of :func:`flashcliff.operators.operator`.
        graph: the edges. Receivers and senders may be two sets of nodes: a pair of relations with as many rows.
        tensors: the arguments of the operator, in order, all of one element type.
        ends: for each argument but parameters whether it is of ``"edges"``, of their ``"senders"`` or of their ``"receivers"``.
        to: where results are summed, ``"receivers"`` or ``"senders"``; ``"edges"``: not at all.
        reduce: what sums are divided by: ``"sum"`` by nothing, ``"mean"`` by the number of edges of the node,
            ``"root_count"`` by its square root.

    Returns:
        The results, as the operator returns them: a tensor, or a tuple of them.

    Raises:
        TypeError: the operator is not one, an argument is not a tensor, there are more or fewer arguments, or they have
            several element types.
        ValueError: the number of ends, the size of an axis, or a word is wrong; the operator has arguments of
            :class:`~flashcliff.operators.Scalars`.

    Source: the products of edges of Tensor Field Networks (arXiv 1802.08219, section 4), of multivectors.

    >>> import torch, flashcliff
    >>> from flashcliff.graphs import Graph, messages
    >>> from flashcliff.operators import Multivector, PerItem, operator
    >>> @operator(flashcliff.Algebra(3))
    ... def product(x: Multivector, edge: Multivector.of(0, 1), weight: PerItem()):
    ...     return weight * (x * edge)
    >>> edges = Graph(torch.tensor([[0, 1, 2], [1, 1, 0]]), num_nodes=3)
    >>> x, directions, weights = torch.randn(8, 3, 16), torch.randn(4, 3, 1), torch.randn(1, 3, 16)
    >>> messages(product, edges, x, directions, weights, ends=("senders", "edges", "edges")).shape
    torch.Size([8, 3, 16])
    """
    if not isinstance(operator, Operator):
        got = type(operator).__name__
        raise TypeError(f"operator: expected one of flashcliff.operators.operator, got {got}")
    name = operator.__name__
    receivers, senders = ends_of(graph, two_sets=True)
    to, reduce = checks.word("to", to), checks.word("reduce", reduce)
    if to not in _ENDS:
        raise ValueError(f"to: expected one of {', '.join(_ENDS)}, got {to!r}")
    if reduce not in REDUCTIONS or (to == "edges" and reduce != "sum"):
        known = REDUCTIONS if to != "edges" else ("sum",)
        raise ValueError(f"reduce: expected one of {', '.join(known)} of {to}, got {reduce!r}")
    if any(axes[-1] == "scalars" for _, axes in operator.inputs):
        raise ValueError(
            f"{name}: expected an operator without Scalars; compose it of graphs.gather, the operator and graphs.segment_sum"
        )
    places = _places(operator, ends)
    if len(tensors) != len(places):
        names = ", ".join(own for own, _ in operator.inputs)
        raise TypeError(f"{name}: expected {len(places)} tensors ({names}), got {len(tensors)}")
    if all(isinstance(tensor, Tensor) for tensor in tensors):
        tensors = tuple(autocast.alike(tensors))
    sizes = {0: receivers.count, 1: senders.count, _messages.ROWS: receivers.rows}
    channels = _check(operator, tensors, places, sizes)
    ones = tuple(
        end != _messages.PARAMETER and t.shape[-1] == 1 < channels
        for t, end in zip(tensors, places)
    )
    sums = (False,) * len(operator._core.outputs)
    form = _messages.Form(operator._key, places, ones, _ENDS[to], sums)
    lists = [t for own in (receivers, senders) for t in (own.targets, own.starts, own.order)]
    found = _messages.call(form, tensors, lists)
    if reduce != "sum":
        relation = receivers if to == "receivers" else senders
        factor = _factor(relation, reduce, tensors[0].dtype)
        found = tuple(result * factor for result in found)
    return found[0] if operator._is_one else tuple(found)


def _places(operator: Operator, ends: Sequence[str]) -> tuple[int, ...]:
    """The ends of all arguments, as numbers."""
    given = [checks.word("ends", end) for end in ends]
    unknown = [end for end in given if end not in _ENDS]
    if unknown:
        raise ValueError(f"ends: expected {', '.join(_ENDS)}, got {unknown[0]!r}")
    count = sum(operator._lanes)
    if len(given) != count:
        names = [own for (own, _), lane in zip(operator.inputs, operator._lanes) if lane]
        raise ValueError(f"ends: expected {count}, one for each of {', '.join(names)}, got {given}")
    following = iter(given)
    return tuple(
        _ENDS[next(following)] if lane else _messages.PARAMETER for lane in operator._lanes
    )


def _check(
    operator: Operator, tensors: Sequence[Tensor], places: Sequence[int], sizes: dict[int, int]
) -> int:
    """The channels of arguments that have more than one, after a check of axes; the operator checks types, devices and parameters."""
    what = {place: name for name, place in _ENDS.items()}
    for (name, axes), tensor, place in zip(operator.inputs, tensors, places):
        if not isinstance(tensor, Tensor):
            raise TypeError(
                f"{operator.__name__}: `{name}` must be a torch.Tensor, got {type(tensor).__name__}"
            )
        refuse_sparse_and_nested(operator.__name__, name, tensor)
        if place == _messages.PARAMETER:
            continue
        expected = axes[0], sizes[place]
        if tensor.dim() != 3 or tuple(tensor.shape[:2]) != expected:
            raise ValueError(
                f"{operator.__name__}: `{name}` must be [{expected[0]}, {expected[1]} {what[place]}, channels], got {list(tensor.shape)}"
            )
    lanes = [(name, t) for (name, _), t, p in zip(operator.inputs, tensors, places) if p != _messages.PARAMETER]
    channels = max(tensor.shape[-1] for _, tensor in lanes)
    for name, tensor in lanes:
        if tensor.shape[-1] not in (1, channels):
            raise ValueError(
                f"{operator.__name__}: expected tensors of 1 or {channels} channels, got `{name}` of {list(tensor.shape)}"
            )
    first = tensors[0]
    for (name, _), tensor in zip(operator.inputs, tensors):
        if tensor.dtype != first.dtype:
            raise TypeError(
                f"{operator.__name__}: expected tensors of one element type, got {first.dtype} and `{name}` of {tensor.dtype}"
            )
    return channels


def _factor(relation: Relation, reduce: str, dtype: torch.dtype) -> Tensor:
    """What the sums of targets are multiplied by, ``[targets, 1]``."""
    counts = relation.counts.clamp_min(1).unsqueeze(-1).to(dtype)
    return counts.reciprocal() if reduce == "mean" else counts.rsqrt()
