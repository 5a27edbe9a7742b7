"""Simplicial complexes, whose simplices are the nodes of a graph."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import combinations, permutations, product
from typing import Any

import torch
from torch import Tensor

from .._ops import checks
from ._graph import Graph
from ._relation import Relation

DIMENSIONS = 3
"""Vertices, edges and triangles."""

Corners = tuple[int, ...]
Pair = tuple[int, int]


class Complexes:
    """A batch of simplicial complexes of vertices, edges and triangles, which are the nodes of one graph.

    Simplices of a complex are numbered by dimension, and by their corners within one; complexes are numbered on one after
    another, and so are their vertices. Messages flow along the edges of the graph, from a source to a target:

    - between two simplices of a dimension for each simplex of the next dimension that has both, triangles excepted;
    - between a simplex and each one of the next dimension that has it, both ways;
    - with ``connected``, from each vertex ``i`` to each other ``j`` unless ``i < j`` and both are the ends of an edge.

    An edge may be there several times, and counts as often.

    Args:
        vertices: the number of vertices of each complex.
        faces: for each complex the corners of faces, such as the facets of a hull. The edges and triangles of the faces are the
            edges and triangles of the complex; a vertex without a face stays alone.
        connected: whether vertices are neighbours of all others.

    Raises:
        TypeError: corners are not integers.
        ValueError: corners are no vertices, or not different; there are not as many lists of faces as complexes.

    Source: CSMPN's simplices of hulls, with its numbers of edges (arXiv 2402.10011).

    >>> own = Complexes([4], [[(0, 1, 2)]])
    >>> own.counts, own.graph.num_nodes, own.graph.num_edges
    ([4, 3, 1], 8, 39)
    """

    graph: Graph
    """Edges between simplices."""
    dimensions: Tensor
    """The dimension of each simplex, ``[simplices]`` of int64."""
    graphs: Relation
    """The complex of each simplex."""
    vertices: Relation
    """The complex of each vertex."""
    simplices: tuple[Relation, ...]
    """For each dimension the simplex of each order of corners: an edge has two, a triangle six."""
    corners: tuple[tuple[Relation, ...], ...]
    """For edges and then triangles, corner by corner, the vertex of each order."""
    counts: list[int]
    """The number of simplices of each dimension."""

    def __init__(
        self,
        vertices: Sequence[int],
        faces: Sequence[Iterable[Sequence[int]]],
        *,
        connected: bool = True,
    ) -> None:
        connected = checks.flag("connected", connected)
        if len(vertices) != len(faces):
            raise ValueError(
                f"faces: expected a list for each of {len(vertices)} complexes, got {len(faces)}"
            )
        lists, first = _Lists(), 0
        for count, own in zip(vertices, faces):
            count = checks.integer("vertices", count)
            simplices = _simplices(count, own)
            lists.add(simplices, _edges(simplices, connected), first)
            first += count
        self._take(lists, first)

    def _take(self, lists: _Lists, vertices: int) -> None:
        count = len(lists.dimensions)
        self.counts = [lists.dimensions.count(own) for own in range(DIMENSIONS)]
        self.dimensions = torch.tensor(lists.dimensions, dtype=torch.int64)
        ends = torch.tensor(lists.edges, dtype=torch.int64).view(-1, 2)
        self.graph = Graph(ends.T.contiguous(), count)
        self.graphs = _relation(lists.graphs, lists.complexes)
        self.vertices = _relation(lists.vertices, lists.complexes)
        self.simplices = tuple(_relation(own, count) for own in lists.simplices)
        self.corners = tuple(
            tuple(
                _relation([order[at] for order in orders], vertices) for at in range(dimension + 1)
            )
            for dimension, orders in list(enumerate(lists.orders))[1:]
        )

    @property
    def device(self) -> torch.device:
        """Where the relations are."""
        return self.dimensions.device

    def relations(self) -> tuple[tuple[str, Relation], ...]:
        """The relations besides ``graphs`` and the relations of the graph, by the names that networks have for them."""
        found = [("vertices", self.vertices)]
        found += [(f"simplices.{d}", own) for d, own in enumerate(self.simplices)]
        for d, corners in enumerate(self.corners, 1):
            found += [(f"corners.{d}.{at}", own) for at, own in enumerate(corners)]
        return tuple(found)

    def kinds(self, dtype: torch.dtype) -> Tensor:
        """1 at the dimension of each simplex, else 0: ``[simplices, 3]``."""
        places = torch.arange(DIMENSIONS, device=self.device)
        return (self.dimensions[:, None] == places).to(dtype)

    def to(self, device: torch.device | str) -> Complexes:
        """The complexes on another device."""
        moved: Complexes = object.__new__(Complexes)
        moved.counts = list(self.counts)
        moved.graph, moved.dimensions = self.graph.to(device), self.dimensions.to(device)
        moved.graphs, moved.vertices = self.graphs.to(device), self.vertices.to(device)
        moved.simplices = tuple(own.to(device) for own in self.simplices)
        moved.corners = tuple(tuple(own.to(device) for own in each) for each in self.corners)
        return moved

    def __repr__(self) -> str:
        vertices, edges, triangles = self.counts
        return (
            f"Complexes({self.graphs.count} of {vertices} vertices, {edges} edges and {triangles} triangles, "
            f"on {self.device})"
        )


class _Lists:
    """The lists of a batch in the making."""

    def __init__(self) -> None:
        self.complexes = 0
        self.dimensions: list[int] = []
        self.edges: list[Pair] = []
        self.graphs: list[int] = []
        self.vertices: list[int] = []
        self.simplices: list[list[int]] = [[] for _ in range(DIMENSIONS)]
        self.orders: list[list[Corners]] = [[] for _ in range(DIMENSIONS)]

    def add(self, simplices: list[list[Corners]], edges: list[Pair], first: int) -> None:
        """Adds a complex, whose first vertex has a number."""
        at = start = len(self.dimensions)
        for dimension, own in enumerate(simplices):
            for corners in own:
                orders = [tuple(first + v for v in order) for order in permutations(corners)]
                self.orders[dimension] += orders
                self.simplices[dimension] += [at] * len(orders)
                at += 1
            self.dimensions += [dimension] * len(own)
        self.edges += [(start + source, start + target) for source, target in edges]
        self.graphs += [self.complexes] * (at - start)
        self.vertices += [self.complexes] * len(simplices[0])
        self.complexes += 1


def _relation(index: list[int], count: int) -> Relation:
    return Relation(torch.tensor(index, dtype=torch.int64), count)


def _simplices(count: int, faces: Iterable[Sequence[int]]) -> list[list[Corners]]:
    """The simplices of each dimension, by their corners in ascending order."""
    found: list[set[Corners]] = [set() for _ in range(DIMENSIONS)]
    for face in faces:
        corners = sorted(checks.integer("a corner", own) for own in _list(face))
        if len(set(corners)) != len(corners) or not all(0 <= v < count for v in corners):
            raise ValueError(
                f"faces: expected different corners from 0 to {count - 1}, got {list(face)}"
            )
        for size in range(1, DIMENSIONS + 1):
            found[size - 1].update(combinations(corners, size))
    return [[(v,) for v in range(count)], *(sorted(own) for own in found[1:])]


def _list(face: Any) -> list[Any]:
    # Tensors and arrays have elements that are no integers.
    found: list[Any] = face.tolist() if hasattr(face, "tolist") else list(face)
    return found


def _edges(simplices: list[list[Corners]], connected: bool) -> list[Pair]:
    """Sources and targets, by their dimensions."""
    numbers: dict[Corners, int] = {}
    for own in simplices:
        for corners in own:
            numbers[corners] = len(numbers)
    found: dict[Pair, list[Pair]] = {}
    for dimension, own in enumerate(simplices[1:], 1):
        for corners in own:
            faces = [numbers[face] for face in combinations(corners, dimension)]
            whole = numbers[corners]
            sides = [(a, b) for a, b in product(faces, faces) if a != b]
            found.setdefault((dimension - 1, dimension - 1), []).extend(sides)
            found.setdefault((dimension - 1, dimension), []).extend((own, whole) for own in faces)
            found.setdefault((dimension, dimension - 1), []).extend((whole, own) for own in faces)
    if connected:
        vertices = range(len(simplices[0]))
        others = [
            (i, j) for i, j in product(vertices, vertices) if i != j and (i, j) not in numbers
        ]
        found.setdefault((0, 0), []).extend(others)
    return [pair for dimensions in sorted(found) for pair in found[dimensions]]
