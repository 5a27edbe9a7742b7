"""Sums of :mod:`flashcliff.graphs` within modules of PyTorch Geometric, which is imported with this module.

:class:`SegmentAggregation` is an aggregation of PyTorch Geometric. Its ``MessagePassing`` accepts it as ``aggr``, and so do its other
layers that have this argument. Multivectors ``[blades, nodes, channels]`` have their nodes where ``MessagePassing`` looks for them, at
axis -2.

>>> import torch
>>> from torch_geometric.nn import SimpleConv
>>> from flashcliff.graphs.geometric import SegmentAggregation
>>> x, edge_index = torch.tensor([[1.0], [2.0], [4.0]]), torch.tensor([[0, 1, 2], [1, 2, 1]])
>>> SimpleConv(aggr=SegmentAggregation("mean"))(x, edge_index).flatten()
tensor([0.0000, 2.5000, 2.0000])
"""

from __future__ import annotations

from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from .. import _torch as _torch
from .._ops.segments import REDUCTIONS
from ..errors import MissingPackageError
from ._known import is_kept_for
from ._relation import Relation
from ._rows import segment_maximum, segment_sum

try:
    from torch_geometric.nn.aggr import Aggregation
except ModuleNotFoundError as error:
    if (error.name or "").partition(".")[0] != "torch_geometric":
        raise
    raise MissingPackageError(
        "flashcliff.graphs.geometric needs PyTorch Geometric, which is not installed: pip install torch_geometric"
    ) from None

__all__ = ["SegmentAggregation"]


class SegmentAggregation(Aggregation):
    """An aggregation of PyTorch Geometric, by :func:`flashcliff.graphs.segment_sum` and :func:`flashcliff.graphs.segment_maximum`.

    Sums have a fixed order and no atomics, so results and gradients have the same bits in every run. There are derivatives of every order.

    Messages need not be sorted. A module sorts the numbers of targets again only where they differ from the numbers of its last call.
    They are compared in every call, for which the host waits on a GPU.

    Shapes:
        - messages, with rows at any axis ``dim``; the result has targets there

    Args:
        reduce: ``"sum"``, ``"mean"``, ``"root_count"``, or ``"maximum"`` of scalars.

    Example:
        >>> from flashcliff.graphs.geometric import SegmentAggregation
        >>> aggregation = SegmentAggregation("sum")
        >>> aggregation(torch.tensor([[1.0], [2.0], [4.0]]), torch.tensor([1, 0, 1]), dim_size=3).flatten()
        tensor([2., 5., 0.])
    """

    def __init__(self, reduce: str = "mean") -> None:
        super().__init__()
        known = (*REDUCTIONS, "maximum")
        if reduce not in known:
            raise ValueError(f"reduce: expected one of {', '.join(known)}, got {reduce!r}")
        self.reduce_by = reduce

    def forward(
        self,
        x: Tensor,
        index: Tensor | None = None,
        ptr: Tensor | None = None,
        dim_size: int | None = None,
        dim: int = -2,
        max_num_elements: int | None = None,
    ) -> Tensor:
        """The aggregated messages.

        Args:
            x: the messages.
            index: the target of each message, in any order.
            ptr: where the messages of each target begin, and the number of messages: instead of ``index``, for messages that are sorted.
            dim_size: the number of targets.
            dim: the axis of messages.
            max_num_elements: not used.

        Raises:
            TypeError: the numbers of targets are no integers.
            ValueError: numbers are out of range, or the maximum is asked for of several blades.
        """
        if index is None:
            index = _index_of(ptr, x.shape[dim])
        assert dim_size is not None
        relation = self._relation(index, dim_size)
        if self.reduce_by == "maximum":
            return segment_maximum(x, relation, dim=dim)
        return segment_sum(x, relation, reduce=self.reduce_by, dim=dim)

    def _relation(self, index: Tensor, count: int) -> Relation:
        if not is_kept_for(index):
            return Relation(index, count)
        last = _LAST.get(self)
        if last is not None and last.sizes == (index.numel(), count) and last.device == index.device:
            if index.dim() == 1 and not index.is_floating_point() and bool((last.targets == index).all()):
                return last
        _LAST[self] = relation = Relation(index, count)
        return relation

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.reduce_by!r})"


_LAST: WeakKeyDictionary[SegmentAggregation, Relation] = WeakKeyDictionary()
"""The relations of the last calls of modules, which are no part of what a module stores."""


def _index_of(ptr: Tensor | None, rows: int) -> Tensor:
    """The target of each message, where the messages of a target lie one after another."""
    if ptr is None or ptr.dim() != 1 or not ptr.numel():
        raise ValueError("ptr: expected [targets + 1], or an index [rows]")
    counts = ptr.diff()
    index = torch.arange(len(counts), device=ptr.device).repeat_interleave(counts)
    if len(index) != rows or int(ptr[0]) != 0:
        raise ValueError(f"ptr: expected numbers from 0 to {rows}, the messages, got {int(ptr[0])} to {int(ptr[-1])}")
    return index
