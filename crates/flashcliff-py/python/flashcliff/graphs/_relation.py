"""Which target each row belongs to, sorted once."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .._ops import checks, doors

_MOST = (1 << 31) - 1
"""The most rows and targets, whose numbers are int32."""

Lists = tuple[Tensor, Tensor, Tensor]


class Relation:
    """Which of ``count`` targets each row belongs to: edges to nodes, nodes to graphs.

    Rows are sorted by their targets once, stably and without atomics, into a copy: later changes of ``index`` change nothing.
    Rows may be in any order, targets may have many rows or none.

    Shapes:
        - ``index`` ``[rows]``, int32 or int64, on any device, where the relation is then
        - ``targets`` ``[rows]``, int32: a copy of ``index``
        - ``starts`` ``[count + 1]``, int32: where the rows of each target begin in ``order``, and the number of rows
        - ``order`` ``[rows]``, int32: the rows of each target, ascending, one target after another

    Args:
        index: the target of each row.
        count: the number of targets.
        check: whether the range of ``index`` is checked on CUDA, for which the host waits. While a CUDA graph is captured it is
            not. Numbers out of range are then undefined behaviour. On the CPU it always is.

    Raises:
        TypeError: ``index`` is not a tensor of int32 or int64.
        ValueError: ``index`` has another shape, or a number out of range.

    Example:
        >>> import torch
        >>> from flashcliff.graphs import Relation, segment_sum
        >>> graphs = Relation(torch.tensor([0, 0, 1]), 2)
        >>> segment_sum(torch.tensor([[1.0], [2.0], [3.0]]), graphs, dim=0).flatten()
        tensor([3., 3.])
    """

    targets: Tensor
    starts: Tensor
    order: Tensor
    count: int
    _parts: dict[int, list[Relation]] | None = None

    def __init__(self, index: Tensor, count: int, *, check: bool = True) -> None:
        check = checks.flag("check", check)
        self.count = _checked(index, count)
        if doors.closed():
            lists = torch.ops.flashcliff.relation.default(index, self.count, check)
        else:
            # Tensors made in inference mode could not be saved for a later backward pass.
            with torch.inference_mode(False):
                lists = _sorted(index, self.count, check)
        self.targets, self.starts, self.order = lists

    @property
    def rows(self) -> int:
        """The number of rows."""
        return self.targets.shape[0]

    @property
    def sizes(self) -> tuple[int, int]:
        """The numbers of rows and of targets."""
        return self.rows, self.count

    @property
    def device(self) -> torch.device:
        """Where the relation is."""
        return self.targets.device

    @property
    def counts(self) -> Tensor:
        """The number of rows of each target, ``[count]`` of int32."""
        return self.starts.diff()

    def parts(self, rows: int) -> list[Relation]:
        """The relations of so many rows each, one after another; the last may have fewer.

        They are sorted at the first call, and kept with the relation, but not where a CUDA graph is captured.

        Raises:
            TypeError: ``rows`` is not an integer.
            ValueError: ``rows`` is below 1.
        """
        rows = checks.integer("rows", rows)
        if rows < 1:
            raise ValueError(f"rows: expected at least 1, got {rows}")
        kept = self._parts or {}
        found = kept.get(rows)
        if found is None:
            found = [Relation(own, self.count, check=False) for own in self.targets.split(rows)]
            is_captured = self.targets.is_cuda and torch.cuda.is_current_stream_capturing()
            if not is_captured and not doors.closed():
                self._parts = kept | {rows: found}
        return found

    def to(self, device: torch.device | str) -> Relation:
        """The relation on another device."""
        moved = object.__new__(Relation)
        moved.count = self.count
        with torch.inference_mode(False):
            lists = [own.to(device) for own in (self.targets, self.starts, self.order)]
        moved.targets, moved.starts, moved.order = lists
        return moved

    def __repr__(self) -> str:
        return f"Relation({self.rows} rows, {self.count} targets, on {self.device})"


def _checked(index: Any, count: Any) -> int:
    """The number of targets, with an index that has the form of one."""
    if not isinstance(index, Tensor):
        raise TypeError(f"index: expected a torch.Tensor, got {type(index).__name__}")
    if index.dtype not in (torch.int32, torch.int64):
        raise TypeError(
            f"index: expected int32 or int64, got {index.dtype}; call `index.to(torch.int64)`"
        )
    if index.dim() != 1:
        raise ValueError(f"index: expected [rows], got {list(index.shape)}")
    count = checks.integer("count", count)
    if count < 0:
        raise ValueError(f"count: expected at least 0, got {count}")
    return count


def _sorted(index: Tensor, count: int, check: bool) -> Lists:
    # A trace would take these limits for conditions of its sizes.
    for name, size in (("count", count), ("the rows of index", index.shape[0])):
        if size > _MOST:
            raise ValueError(f"{name}: expected at most {_MOST}, got {size}")
    if index.is_cpu or (check and index.is_cuda and not torch.cuda.is_current_stream_capturing()):
        _check_range(index, count)
    ascending, order = torch.sort(index.detach(), stable=True)
    targets = torch.arange(count + 1, dtype=index.dtype, device=index.device)
    starts = torch.searchsorted(ascending, targets, out_int32=True)
    own = index.detach().to(torch.int32, copy=True, memory_format=torch.contiguous_format)
    return own, starts, order.to(torch.int32)


def _check_range(index: Tensor, count: int) -> None:
    """Raises an error that names the first row whose target is not there."""
    outside = (index < 0) | (index >= count)
    if outside.any():
        row = int(outside.nonzero()[0, 0])
        raise ValueError(
            f"index: expected targets from 0 to {count - 1}, of {count}, got {int(index[row])} at row {row}"
        )


def _empty(index: Tensor, count: int, check: bool) -> Lists:
    rows = index.shape[0]
    own, starts, order = (
        index.new_empty(size, dtype=torch.int32) for size in (rows, count + 1, rows)
    )
    return own, starts, order


_definition = torch.library.custom_op(
    "flashcliff::relation",
    _sorted,
    mutates_args=(),
    schema="(Tensor index, SymInt count, bool check) -> (Tensor, Tensor, Tensor)",
)
_definition.register_fake(_empty)
