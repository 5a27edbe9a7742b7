"""The model of charged bodies."""

from __future__ import annotations

import torch
from torch import Tensor

from ...algebra import Algebra
from ...graphs import Edges, Relation, ends_of, gather, segment_sum
from .._module import check_count, check_features
from ..embedding import embed_grade, select_grade
from ..linear import MVLinear
from ..messages import EGCL


class NBody(torch.nn.Module):
    """Positions of charged bodies after a time. It commutes with rotations, reflections and translations of space.

    :class:`MVLinear` with one matrix, of the charge as a scalar and of the position from the centre of the graph and the velocity
    as vectors, ``layers`` times :class:`EGCL` with the product of both charges as the scalar of an edge, and
    :class:`MVLinear` to one channel, whose vector is added to the position. 134,625 parameters by default.

    Source: CGENN's network of its n-body experiment (arXiv 2305.11141, section 5), with the names of its state dict.
    """

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
        graphs: Relation | None = None,
    ) -> Tensor:
        """The positions afterwards, ``[nodes, 3]``.

        Args:
            charges: ``[nodes]``.
            positions: ``[nodes, 3]``.
            velocities: ``[nodes, 3]``.
            edges: a :class:`flashcliff.graphs.Graph`, or the relations of receivers and of senders.
            graphs: the graph of each node; without it all are of one graph.

        Raises:
            TypeError: ``edges`` are none of these.
            ValueError: a tensor has another shape, or relations have other sizes.
        """
        receivers, senders = ends_of(edges)
        nodes = receivers.count
        shapes = {"charges": (nodes,), "positions": (nodes, 3), "velocities": (nodes, 3)}
        for (name, shape), x in zip(shapes.items(), (charges, positions, velocities)):
            if tuple(x.shape) != shape:
                raise ValueError(f"{name}: expected {list(shape)}, got {list(x.shape)}")
        vectors = torch.stack([positions - _centre(positions, graphs), velocities], dim=-1)
        scalars = embed_grade(charges[None, :, None], 0, self.algebra)
        vectors = embed_grade(vectors.movedim(1, 0), 1, self.algebra)
        h: Tensor = self.embedding(torch.cat([scalars, vectors], dim=-1))
        products = gather(charges, receivers, dim=0) * gather(charges, senders, dim=0)
        for layer in self.layers:
            h = layer(h, (receivers, senders), products[:, None])
        way = select_grade(self.projection(h), 1, self.algebra)
        return positions + way[..., 0].T


def _centre(positions: Tensor, graphs: Relation | None) -> Tensor:
    """The mean of the positions of the graph of each node."""
    if graphs is None:
        return positions.mean(dim=0)
    return gather(segment_sum(positions, graphs, reduce="mean", dim=0), graphs, dim=0)
