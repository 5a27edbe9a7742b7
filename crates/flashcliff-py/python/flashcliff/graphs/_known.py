"""The graphs and relations of plain tensors, which layers accept in place of a :class:`Graph` or a :class:`Relation`."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

from .._ops import doors
from ._graph import Graph
from ._relation import Relation

_MOST = 64
"""The tensors whose graphs and relations are kept."""

_kept: Any = WeakTensorKeyDictionary()
"""For each tensor that still lives the number of targets, its version, and the graph or relation that was made of it."""


def graph_of(edge_index: Tensor, num_nodes: int) -> Graph:
    """The graph of an ``edge_index``, sorted again only where the tensor is another one, or has other numbers.

    A tensor may change without PyTorch's notice: by NumPy, by ``.data``, by a replay of a CUDA graph. So the numbers are compared before
    a graph is used again. On a GPU the host waits for that, as it does for the check of a new graph; while a CUDA graph is captured
    everything is sorted, within the graph.
    """
    found = _found(edge_index, num_nodes)
    if isinstance(found, Graph):
        ends = found.senders.targets, found.receivers.targets
        if _same(edge_index[0], ends[0]) and _same(edge_index[1], ends[1]):
            return found
    graph = Graph(_plain(edge_index), num_nodes)
    _keep(edge_index, num_nodes, graph)
    return graph


def relation_of(index: Tensor, count: int) -> Relation:
    """The relation of an index, sorted again only where the tensor is another one, or has other numbers: as :func:`graph_of`."""
    found = _found(index, count)
    if isinstance(found, Relation) and _same(index, found.targets):
        return found
    relation = Relation(_plain(index), count)
    _keep(index, count, relation)
    return relation


def _plain(index: Tensor) -> Tensor:
    # PyTorch Geometric has a subclass for indices of edges. A trace knows no `as_subclass`, and needs none.
    if type(index) is Tensor or doors.closed() or not isinstance(index, Tensor):
        return index
    return index.as_subclass(Tensor)


def is_kept_for(index: Any) -> bool:
    """Whether what is made of a tensor may be used again."""
    if doors.closed() or not isinstance(index, Tensor) or index.is_inference():
        return False
    return index.is_cpu or (index.is_cuda and not torch.cuda.is_current_stream_capturing())


def _found(index: Any, count: int) -> Graph | Relation | None:
    found = _kept.get(index) if is_kept_for(index) else None
    if found is None or found[:2] != (count, index._version):
        return None
    own: Graph | Relation = found[2]
    return own


def _keep(index: Tensor, count: int, own: Graph | Relation) -> None:
    global _kept
    if not is_kept_for(index):
        return
    if len(_kept) >= _MOST:
        _kept = WeakTensorKeyDictionary()
    _kept[index] = count, index._version, own


def _same(index: Tensor, targets: Tensor) -> bool:
    return index.shape == targets.shape and bool((_plain(index) == targets).all())
