"""The edges of a graph and the graphs of nodes, in all forms that layers accept."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .._core import UnsupportedError
from ._graph import Graph
from ._known import graph_of, relation_of
from ._relation import Relation

Edges = Graph | tuple[Relation, Relation] | Tensor
"""A graph, or the receivers and the senders of edges, or an ``edge_index`` of PyTorch Geometric."""

Graphs = Relation | Tensor
"""The graph of each node, as a relation or as a ``batch`` of PyTorch Geometric."""


def ends_of(
    edges: Any, num_nodes: int | None = None, *, two_sets: bool = False
) -> tuple[Relation, Relation]:
    """The receivers and the senders of edges.

    A tensor is an ``edge_index`` ``[2, edges]``, from which a :class:`Graph` is made. That costs two sorts. The graph is used again while
    the same tensor object is given with the same numbers. They are compared in every call, for which the host waits on a GPU. In
    ``torch.compile``, in a transform and while a CUDA graph is captured every call sorts. Make a :class:`Graph` once to sort once and
    wait for nothing.

    Args:
        edges: :data:`Edges`.
        num_nodes: the number of nodes, without which edges must not be a tensor.
        two_sets: whether receivers and senders may be nodes of two sets, of which there are different numbers.

    Raises:
        TypeError: these are no :data:`Edges`.
        ValueError: the relations have other numbers of edges or of nodes; a tensor has another shape, or a number out of range.
    """
    if isinstance(edges, Graph):
        return edges.receivers, edges.senders
    if isinstance(edges, Tensor) and num_nodes is not None:
        graph = graph_of(edges, num_nodes)
        return graph.receivers, graph.senders
    if isinstance(edges, (tuple, list)) and len(edges) == 2:
        receivers, senders = edges
        if isinstance(receivers, Relation) and isinstance(senders, Relation):
            if receivers.rows != senders.rows or not (two_sets or receivers.count == senders.count):
                expected = "with as many rows" if two_sets else "of the same sizes"
                raise ValueError(
                    f"edges: expected relations {expected}, got {receivers} and {senders}"
                )
            return receivers, senders
    more = "" if num_nodes is None else ", or an edge_index [2, edges]"
    raise TypeError(
        f"edges: expected a flashcliff.graphs.Graph, or the relations of receivers and senders{more}, got {type(edges).__name__}"
    )


def graphs_of(graphs: Any) -> Relation:
    """The relation of nodes to their graphs.

    A tensor is a ``batch`` ``[nodes]``, whose largest number is that of the last graph. The host waits for that number on a GPU, so a
    captured step needs a :class:`Relation`; so do graphs without nodes after the last one. The relation is kept as a graph is in
    :func:`ends_of`.

    Raises:
        TypeError: this is neither a relation nor a tensor of int32 or int64.
        ValueError: a tensor has another shape, or a number below 0.
        UnsupportedError: a CUDA graph is captured.
    """
    if isinstance(graphs, Relation):
        return graphs
    if not isinstance(graphs, Tensor):
        got = type(graphs).__name__
        raise TypeError(f"graphs: expected a flashcliff.graphs.Relation, or a batch [nodes], got {got}")
    if graphs.is_cuda and torch.cuda.is_current_stream_capturing():
        raise UnsupportedError(
            "graphs: expected a flashcliff.graphs.Relation while a CUDA graph is captured, got a tensor, whose largest number the host cannot wait for; make "
            "`Relation(batch, count)` within the step"
        )
    count = 0
    if graphs.dim() == 1 and graphs.numel() and not graphs.is_floating_point():
        count = max(int(graphs.max()) + 1, 0)
    return relation_of(graphs, count)
