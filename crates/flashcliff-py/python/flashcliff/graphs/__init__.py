"""Rows that belong to others: edges to nodes, nodes to graphs.

- :class:`Relation`: which target each row belongs to.
- :func:`messages`: an operator on edges and on the nodes at their ends, summed at nodes.
- :func:`gather`: for each row what it belongs to; :func:`difference`: the difference of both ends of edges.
- :func:`segment_sum`: for each target the sum, the mean, or the sum by the root of the number of its rows;
  :func:`segment_maximum`: the largest value of scalars.
- :class:`Complexes`: simplicial complexes, whose vertices, edges and triangles are the nodes of a graph.
- :class:`Graph`: the two relations of PyTorch Geometric's ``edge_index``.
- :func:`ends_of`, :func:`graphs_of`: what layers accept as edges and as the graphs of nodes, also the plain tensors of PyTorch Geometric.

A gathering and a sum are each the gradient of the other. Both are one operator on the CPU and on GPUs, with derivatives of every
order, and work with ``torch.func``, forward mode and ``torch.compile``. Elements of 16 bits are computed in float32 and rounded once,
with and without autocast. Sums have a fixed order and no atomics, so results are the same bit for bit in every run.
"""

from .. import _torch as _torch
from ._accepted import Edges, Graphs, ends_of, graphs_of
from ._complexes import Complexes
from ._graph import Graph
from ._messages import messages
from ._relation import Relation
from ._rows import difference, gather, segment_maximum, segment_sum

__all__ = [
    "Complexes",
    "Edges",
    "Graph",
    "Graphs",
    "Relation",
    "difference",
    "ends_of",
    "gather",
    "graphs_of",
    "messages",
    "segment_maximum",
    "segment_sum",
]
