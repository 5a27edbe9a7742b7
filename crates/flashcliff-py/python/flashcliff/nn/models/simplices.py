"""The model of hulls on their simplicial complexes."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..._ops import checks
from ...algebra import Algebra
from ...graphs import Complexes, Relation, gather, segment_sum
from .._module import check_count, check_features, check_shape
from ..embedding import embed_grade
from ..linear import MVLinear
from ..messages import EGCL
from ..perceptron import CEMLP
from ..transformer import path
from ..transformer.described import (
    MessageDescription,
    MessageGiven,
    MessageVariant,
    Multivectors,
    Networked,
    Undescribed,
    attempt_on_graph,
)

_KINDS = 3
"""Vertices, edges and triangles."""


@path.stands_for
class SimplicialHulls(Networked):
    """Volumes of convex hulls, on their simplicial complexes. They do not change under rotations, reflections and translations of space.

    Simplices are the nodes of a graph. The features of a simplex come from its corners in every order, summed over the orders: by
    :class:`MVLinear` with one matrix from the position of a vertex, relative to the centre; by :class:`CEMLP` of one layer for an
    edge, and of two layers for a triangle. ``layers`` layers of :class:`EGCL` follow, which all simplices share. The scalars of
    an edge are the dimensions of both ends, and the scalars of a node are the dimension of its simplex. :class:`MVLinear` to one
    channel comes last: the volume is the mean of its scalar over simplices. 254,325 parameters by default.

    The network is one function of autograd with one plan, on the CPU and on GPUs. Its layers are called where something follows
    or changes them, as hooks do, for tensors of 16 bits, for complexes without edges or triangles, and in compiled graphs.

    Source: CSMPN's ``HullsCliffordSharedSimplicialMPNN`` (arXiv 2402.10011), with the names of its state dict. Its linear map
    ``readout`` has no part in results, and is left out when a state dict is loaded.

    Args:
        dim: the dimension of space.
        channels: the channels of simplices.
        layers: the layers of messages.

    Example:
        >>> import torch
        >>> from flashcliff.graphs import Complexes
        >>> from flashcliff.nn import models
        >>> network = models.SimplicialHulls(dim=3, channels=4, layers=1)
        >>> network(torch.randn(4, 3), Complexes([4], [[(0, 1, 2)]])).shape
        torch.Size([1])
    """

    variants = MessageVariant

    def __init__(
        self,
        dim: int = 5,
        channels: int = 28,
        layers: int = 3,
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        dim = checks.integer("dim", dim)
        if dim < 2:
            raise ValueError(f"dim: expected at least 2, got {dim}")
        self.algebra = algebra = Algebra(dim, 0, 0)
        channels = check_features("channels", channels)
        made: dict[str, Any] = {"device": device, "dtype": dtype}
        self.cl_feature_embedding = torch.nn.ModuleList(
            [
                MVLinear(algebra, 1, channels, per_grade=False, **made),
                *(CEMLP(algebra, d + 1, channels, channels, d, **made) for d in range(1, _KINDS)),
            ]
        )
        self.layers = torch.nn.ModuleList(
            EGCL(algebra, channels, edge_scalars=2 * _KINDS, node_scalars=_KINDS, **made)
            for _ in range(check_count("layers", layers))
        )
        self.projection = torch.nn.Sequential(MVLinear(algebra, channels, 1, **made))

    def forward(self, points: Tensor, complexes: Complexes) -> Tensor:
        """The volume of each hull, ``[complexes]``.

        Args:
            points: the vertices of all complexes, ``[vertices, dim]``.
            complexes: the complexes of the hulls.

        Raises:
            TypeError: ``complexes`` are no :class:`flashcliff.graphs.Complexes`.
            ValueError: there are other numbers of vertices or coordinates.
        """
        if not isinstance(complexes, Complexes):
            got = type(complexes).__name__
            raise TypeError(f"complexes: expected a flashcliff.graphs.Complexes, got {got}")
        check_shape("points", points, (complexes.vertices.rows, self.algebra.dim))
        graph = complexes.graph
        given = MessageGiven(
            complexes.kinds(points.dtype)[None],
            graph.receivers,
            graph.senders,
            graphs=complexes.graphs,
            points=points,
            more=complexes.relations(),
        )
        found = None
        if not torch.compiler.is_compiling():
            found = attempt_on_graph(self, given, self._composed)
        if found is None:
            found = self._composed(given)
        return found.flatten()

    def _composed(self, given: MessageGiven) -> Tensor:
        """The volumes ``[1, complexes, 1]``, by the calls of layers."""
        points, of, kinds = given.points, given.relation, given.here[0]
        assert points is not None
        vertices = of("vertices")
        mean = segment_sum(points, vertices, reduce="mean", dim=0)
        centred = points - gather(mean, vertices, dim=0)
        vectors = embed_grade(centred.T[..., None], 1, self.algebra)
        h: Any = 0
        for d, embedding in enumerate(self.cl_feature_embedding):
            corners = [vectors]
            if d:
                corners = [gather(vectors, of(f"corners.{d}.{at}")) for at in range(d + 1)]
            h = h + segment_sum(embedding(torch.cat(corners, dim=-1)), of(f"simplices.{d}"))
        ends: tuple[Relation, Relation] = of("receivers"), of("senders")
        of_edges = [gather(kinds, own, dim=0) for own in reversed(ends)]
        for layer in self.layers:
            h = layer(h, ends, torch.cat(of_edges, dim=-1), kinds)
        scalars = self.projection(h)[:1]
        return segment_sum(scalars, of("graphs"), reduce="mean")

    def variant(self) -> MessageVariant:
        """The call that the network was made for."""
        return MessageVariant("kinds", 1, _KINDS)

    def describe_on_graph(self, network: MessageDescription, kinds: Multivectors) -> Multivectors:
        """Adds the network to another one."""
        network.reads(self, "algebra")
        receivers, senders = network.ends()
        graphs = network.graphs()
        vertices = network.relation("vertices", "others 0", "graphs")
        simplices = [
            network.relation(f"simplices.{d}", f"others {d}", "rows") for d in range(_KINDS)
        ]
        corners = [
            [
                network.relation(f"corners.{d}.{at}", f"others {d}", "others 0")
                for at in range(d + 1)
            ]
            for d in range(1, _KINDS)
        ]
        points = network.vertices(self.algebra.dim)
        scalars = network.side_by_side(
            *(network.gather(kinds, own) for own in (senders, receivers))
        )
        vectors = network.points(points)
        mean = network.gather(network.segment_sum(vectors, vertices, "mean"), vertices)
        vectors = network.sum(vectors, network.sum(mean, mean, -0.5))
        h = self._embedded(network, vectors, simplices, corners)
        for layer in self.layers:
            network.block()
            h = network.call(layer, h, scalars, kinds)
        network.block()
        out: Multivectors = network.calls(self.projection, h)
        scalar = network.blades_of(out, [1, out.blades - 1])[0]
        return network.segment_sum(scalar, graphs, "mean")._replace(of_graphs=True)

    def _embedded(
        self,
        network: MessageDescription,
        vectors: Multivectors,
        simplices: list[int],
        corners: list[list[int]],
    ) -> Multivectors:
        """The features of simplices: the sum over dimensions, of which each simplex has one."""
        of_vertices, *others = self.cl_feature_embedding
        own = self._first(network, of_vertices, vectors)
        h = network.segment_sum(own, simplices[0], "sum")
        for d, (model, each) in enumerate(zip(others, corners, strict=True), 1):
            if type(model) is not CEMLP:
                raise Undescribed("features of simplices are not of a CEMLP")
            network.reads(model, "in_channels", "_algebra")
            side_by_side = network.side_by_side(*(network.gather(vectors, own) for own in each))
            first = self._first(network, model.first, side_by_side)
            own = model.describe_behind_first(network, first)
            h = network.sum(h, network.segment_sum(own, simplices[d], "sum"))
        return h

    def _first(
        self, network: MessageDescription, map: torch.nn.Module, vectors: Multivectors
    ) -> Multivectors:
        """The first linear map of vectors behind a zero: all other blades are 0."""
        algebra = self.algebra
        if not isinstance(map, MVLinear) or map.in_features != vectors.channels:
            raise Undescribed("the first map of corners is no MVLinear of their channels")
        weight, bias = map.described_in_parts(network, "the first map of corners")
        if map.per_grade:
            weight = network.split(weight, 2, [2, algebra.grade_count - 2])[0]
        of = algebra, vectors, (weight, bias), map.out_features
        found = network.linear(*of, per_grade=map.per_grade, grades=(0, 1))
        return network.extended(found, algebra.blade_count)

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *more: Any) -> None:
        for name in ("weight", "bias"):
            state_dict.pop(f"{prefix}readout.{name}", None)
        super()._load_from_state_dict(state_dict, prefix, *more)
