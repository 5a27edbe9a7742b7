"""Directed graphs, whose edges bring messages from senders to receivers."""

from __future__ import annotations

import torch
from torch import Tensor

from ._relation import Relation


class Graph:
    """The two relations of edges to nodes, from an ``edge_index`` of PyTorch Geometric.

    Its first row are sources, its second row targets, and messages flow from source to target: they are summed at
    ``edge_index[1]``. Self-loops and edges that are there twice count as any other. For a batch of graphs number the nodes on.
    CGENN's own code has its receivers in the first row: give it ``edge_index.flip(0)``.

    Shapes:
        - ``edge_index`` ``[2, edges]``, int32 or int64

    Args:
        edge_index: the source and the target of each edge.
        num_nodes: the number of nodes.
        check: as for :class:`Relation`.

    Raises:
        TypeError: ``edge_index`` is not a tensor of int32 or int64.
        ValueError: ``edge_index`` has another shape, or a number out of range.

    Example:
        >>> import torch
        >>> from flashcliff.graphs import Graph, gather, segment_sum
        >>> edges = Graph(torch.tensor([[0, 1, 2], [1, 1, 0]]), num_nodes=3)
        >>> x = torch.tensor([[1.0], [2.0], [3.0]]).expand(1, 3, 1)
        >>> segment_sum(gather(x, edges.senders), edges.receivers).flatten()
        tensor([3., 3., 0.])
    """

    receivers: Relation
    """The node that an edge brings its message to: ``i``."""
    senders: Relation
    """The node that an edge comes from: ``j``."""

    def __init__(self, edge_index: Tensor, num_nodes: int, *, check: bool = True) -> None:
        if not isinstance(edge_index, Tensor):
            got = type(edge_index).__name__
            raise TypeError(f"edge_index: expected a torch.Tensor, got {got}")
        if edge_index.dim() != 2 or edge_index.shape[0] != 2:
            raise ValueError(f"edge_index: expected [2, edges], got {list(edge_index.shape)}")
        senders, receivers = edge_index.unbind(0)
        self.receivers = Relation(receivers, num_nodes, check=check)
        self.senders = Relation(senders, num_nodes, check=check)

    @property
    def num_nodes(self) -> int:
        """The number of nodes."""
        return self.receivers.count

    @property
    def num_edges(self) -> int:
        """The number of edges."""
        return self.receivers.rows

    def to(self, device: torch.device | str) -> Graph:
        """The graph on another device."""
        moved = object.__new__(Graph)
        moved.receivers, moved.senders = self.receivers.to(device), self.senders.to(device)
        return moved

    def __repr__(self) -> str:
        return f"Graph({self.num_nodes} nodes, {self.num_edges} edges, on {self.receivers.device})"
