"""The model of charged bodies."""

from __future__ import annotations

import torch
from torch import Tensor

from ..._derived import table
from ...algebra import Algebra
from ...graphs import Edges, Graphs, Relation, ends_of, gather, graphs_of, segment_sum
from .._module import check_count, check_features
from ..embedding import embed_grade, select_grade
from ..linear import MVLinear
from ..messages import EGCL
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

_NUMBERS = 7
"""The numbers of a body: its charge, its position, its velocity."""


@path.stands_for
class NBody(Networked):
    """Positions of charged bodies after a time. It commutes with rotations, reflections and translations of space.

    :class:`MVLinear` with one matrix, of the charge as a scalar and of the position from the centre of the graph and the velocity
    as vectors, ``layers`` times :class:`EGCL` with the product of both charges as the scalar of an edge, and
    :class:`MVLinear` to one channel, whose vector is added to the position. 134,625 parameters by default.

    The network is one function of autograd with one plan, on the CPU and on GPUs, and one node of a compiled graph. Its layers
    are called where something follows or changes them, as hooks do, and for tensors of 16 bits. A plan belongs to numbers of
    nodes, edges and graphs: the last 16 stay.

    Source: CGENN's network of its n-body experiment (arXiv 2305.11141, section 5), with the names of its state dict.

    Example:
        >>> import torch
        >>> import flashcliff
        >>> from flashcliff.nn import models
        >>> edges = flashcliff.graphs.Graph(torch.tensor([[0, 1, 2], [1, 2, 0]]), num_nodes=3)
        >>> charges, positions, velocities = torch.randn(3), torch.randn(3, 3), torch.randn(3, 3)
        >>> models.NBody(channels=8)(charges, positions, velocities, edges).shape
        torch.Size([3, 3])
    """

    variants = MessageVariant

    def __init__(
        self,
        channels: int = 28,
        layers: int = 3,
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.algebra = algebra = Algebra(3, 0, 0)
        channels = check_features("channels", channels)
        self.embedding = MVLinear(algebra, 3, channels, per_grade=False, device=device, dtype=dtype)
        self.layers = torch.nn.ModuleList(
            EGCL(algebra, channels, edge_scalars=1, device=device, dtype=dtype)
            for _ in range(check_count("layers", layers))
        )
        self.projection = torch.nn.Sequential(
            MVLinear(algebra, channels, 1, device=device, dtype=dtype)
        )

    def forward(
        self,
        charges: Tensor,
        positions: Tensor,
        velocities: Tensor,
        edges: Edges,
        graphs: Graphs | None = None,
    ) -> Tensor:
        """The positions afterwards, ``[nodes, 3]``.

        Args:
            charges: ``[nodes]``.
            positions: ``[nodes, 3]``.
            velocities: ``[nodes, 3]``.
            edges: a graph, the relations of receivers and of senders, or an ``edge_index``, as of :func:`flashcliff.graphs.ends_of`.
            graphs: the graph of each node, a relation or a ``batch``, as of :func:`flashcliff.graphs.graphs_of`; without it all are of one.

        Raises:
            TypeError: ``edges`` are none of these.
            ValueError: a tensor has another shape, or relations have other sizes.
        """
        numbers, (receivers, senders), of = numbers_of_bodies(
            charges, positions, velocities, edges, graphs
        )
        given = MessageGiven(numbers[None], receivers, senders, graphs=of)
        found = None
        if of.rows == receivers.count:
            found = attempt_on_graph(self, given, self._composed)
        if found is not None:
            return found[..., 0].T.contiguous()
        one = None if graphs is None else of
        return self._moved(charges, positions, velocities, (receivers, senders), one)

    def _composed(self, given: MessageGiven) -> Tensor:
        """The positions afterwards ``[3, nodes, 1]``, by the calls of layers."""
        assert given.receivers is not None and given.senders is not None
        charges, positions, velocities = given.here[0].split([1, 3, 3], dim=-1)
        ends = given.receivers, given.senders
        found = self._moved(charges[:, 0], positions, velocities, ends, given.graphs)
        return found.T[..., None]

    def _moved(
        self,
        charges: Tensor,
        positions: Tensor,
        velocities: Tensor,
        ends: tuple[Relation, Relation],
        graphs: Relation | None,
    ) -> Tensor:
        """The positions afterwards ``[nodes, 3]``, by the calls of layers."""
        receivers, senders = ends
        vectors = torch.stack([positions - _centre(positions, graphs), velocities], dim=-1)
        scalars = embed_grade(charges[None, :, None], 0, self.algebra)
        vectors = embed_grade(vectors.movedim(1, 0), 1, self.algebra)
        h: Tensor = self.embedding(torch.cat([scalars, vectors], dim=-1))
        products = gather(charges, receivers, dim=0) * gather(charges, senders, dim=0)
        for layer in self.layers:
            h = layer(h, (receivers, senders), products[:, None])
        way = select_grade(self.projection(h), 1, self.algebra)
        return positions + way[..., 0].T


    def variant(self) -> MessageVariant:
        """The call that the network was made for."""
        return MessageVariant("bodies", 1, _NUMBERS, by_rows=True)

    def describe_on_graph(self, network: MessageDescription, bodies: Multivectors) -> Multivectors:
        """Adds the network to another one."""
        network.reads(self, "algebra")
        receivers, senders = network.ends()
        graphs = network.graphs()
        _, charges, positions, velocities = network.blades_of(network.points(bodies), [1, 1, 3, 3])
        mean = network.gather(network.segment_sum(positions, graphs, "mean"), graphs)
        centred = network.sum(positions, network.sum(mean, mean, -0.5))
        products = (network.gather(charges, own).value for own in (receivers, senders))
        of = table.PRODUCT, self.algebra, tuple(products), "geometric", (0,), (0,)
        product = charges._replace(value=network.operator(*of))
        h = self._embedded(network, charges, network.side_by_side(centred, velocities))
        for layer in self.layers:
            network.block()
            h = network.call(layer, h, product)
        network.block()
        way = network.blades_of(network.calls(self.projection, h), [1, 3, 4])[1]
        # A sum of doubles is exact. Its gradient is computed, and not that of its values where it lies.
        doubled, ways = network.sum(positions, positions), network.sum(way, way)
        return network.sum(doubled, ways, 0.5)

    def _embedded(
        self, network: MessageDescription, charges: Multivectors, vectors: Multivectors
    ) -> Multivectors:
        """The first linear map, of a scalar and two vectors: all other blades are 0."""
        map, algebra = self.embedding, self.algebra
        if map.in_features != charges.channels + vectors.channels:
            raise Undescribed("the embedding has another number of channels")
        weight, bias = map.described_in_parts(network, "the embedding", per_grade=False)
        own, others = network.split(weight, 1, [charges.channels, vectors.channels])
        scalars = network.linear(algebra, charges, (own, bias), map.out_features)
        of_vectors = algebra, vectors, (others, None), map.out_features
        both = network.stacked(scalars, network.linear(*of_vectors, grades=(1,)))
        return network.extended(both, algebra.blade_count)


def numbers_of_bodies(
    charges: Tensor,
    positions: Tensor,
    velocities: Tensor,
    edges: Edges,
    graphs: Graphs | None,
) -> tuple[Tensor, tuple[Relation, Relation], Relation]:
    """The numbers of bodies side by side ``[nodes, 7]``, the ends of edges, and graphs: one of all nodes, if nothing else is said.

    Raises:
        TypeError: ``edges`` are no graph and no relations.
        ValueError: a tensor has another shape.
    """
    ends = ends_of(edges, charges.shape[0] if charges.dim() else None)
    nodes = ends[0].count
    shapes = {"charges": (nodes,), "positions": (nodes, 3), "velocities": (nodes, 3)}
    for (name, shape), x in zip(shapes.items(), (charges, positions, velocities)):
        if tuple(x.shape) != shape:
            raise ValueError(f"{name}: expected {list(shape)}, got {list(x.shape)}")
    numbers = torch.cat([charges[:, None], positions, velocities], dim=-1)
    return numbers, ends, _one_graph(ends[0]) if graphs is None else graphs_of(graphs)


def _one_graph(receivers: Relation) -> Relation:
    """The relation of all nodes to one graph, without a wait for a GPU."""
    own: Relation = object.__new__(Relation)
    nodes, device = receivers.count, receivers.device
    own.count = 1
    own.targets = torch.zeros(nodes, dtype=torch.int32, device=device)
    own.order = torch.arange(nodes, dtype=torch.int32, device=device)
    own.starts = torch.arange(2, dtype=torch.int32, device=device) * nodes
    return own


def _centre(positions: Tensor, graphs: Relation | None) -> Tensor:
    """The mean of the positions of the graph of each node."""
    if graphs is None:
        return positions.mean(dim=0)
    return gather(segment_sum(positions, graphs, reduce="mean", dim=0), graphs, dim=0)
