"""The model of charged bodies with Multivector Neurons."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ... import functional as F
from ..._ops import checks
from ...algebra import Algebra
from ...graphs import Edges, Relation, ends_of, gather, segment_sum
from ...operators import Multivector, Scalar, operator
from .._module import check_count, check_features
from ..embedding import embed_grade, select_grade
from ..layer_norm import MVLayerNorm
from ..linear import MVLinear
from ..messages import _check_scalars
from .nbody import _centre

_SPACE = Algebra(3, 0, 0)
_LEAST = 1e-8


def _dot(a: Multivector, b: Multivector) -> Scalar:
    """The sum of products over blades."""
    pairs = [Scalar(a._program, x) * Scalar(a._program, y) for x, y in zip(a._values, b._values)]
    total: Scalar = sum(pairs[1:], pairs[0])
    return total


@operator(_SPACE)
def _rectified(q: Multivector, k: Multivector):
    """``q`` where its part along ``k`` is positive, else ``q`` less that part, up to 1e-8 in the denominator."""
    along = _dot(q, k)
    factor = along / (_dot(k, k) + _LEAST)
    values = [
        along.where_positive(
            Scalar(q._program, x), Scalar(q._program, x) - factor * Scalar(q._program, y)
        )
        for x, y in zip(q._values, k._values)
    ]
    return Multivector(_SPACE, q._program, [own._value for own in values], q.grades)


@operator(_SPACE)
def _by_grade(x: Multivector, factors: Multivector.of(0, 1)):  # type: ignore[valid-type]
    """Multivectors times a number for each grade, which are as many as a scalar and a vector have."""
    own = [Scalar(x._program, value) for value in factors._values]
    first, *others = (x.grade(grade) * factor for grade, factor in enumerate(own))
    return sum(others, first)


class MVNRectifier(torch.nn.Module):
    """The nonlinearity of Multivector Neurons: ``q`` where ``q . k > 0``, else ``q - (q . k) / (k . k + 1e-8) k``.

    ``q`` and ``k`` are :class:`MVLinear` of the input with one matrix each, and the dots sum over all blades. Tensors are ``[8, *batch, channels]``.

    Source: MVN's ``MVAct`` (arXiv 2406.04052), with the names of its state dict.
    """

    def __init__(self, channels: int, **made: Any) -> None:
        super().__init__()
        self.lin1, self.lin2 = (
            MVLinear(_SPACE, channels, channels, False, per_grade=False, **made) for _ in range(2)
        )

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = _rectified(self.lin1(x), self.lin2(x))
        return found


class MVNLayer(torch.nn.Module):
    """Messages of scalars and multivectors of space, which see each other by squares and factors.

    For each edge from ``i`` to ``j``

    | ``v = v_linear([v_i, v_j])``, ``s = edge_model_s([s_i, s_j, sum over blades of v^2])``
    | ``u = edge_model_v(v)`` times ``pos_net(s)``, a factor for each channel and grade

    Messages are normed and added up by the root of their number. ``s_j`` gets ``update_norm_s(update_model_s(sum))``, and ``v_j`` gets
    ``vec_norm(linear_out([left(sum) right(sum), sum]))``, with a geometric product.

    Shapes:
        - ``s`` and its result ``[nodes, scalars]``
        - ``v`` and its result ``[8, nodes, channels]``

    Args:
        scalars: the scalars of nodes.
        channels: the channels of multivectors.

    Source: MVN's ``MVNMPNN``, of its experiment with bodies (arXiv 2406.04052), with the names of its state dict. A node without edges gets messages of 0,
    where MVN's are not a number.
    """

    def __init__(
        self,
        scalars: int,
        channels: int,
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.scalars = scalars = check_features("scalars", scalars)
        self.channels = channels = check_features("channels", channels)
        made: dict[str, Any] = {"device": device, "dtype": dtype}

        def perceptron(start: int, end: int) -> torch.nn.Sequential:
            first = torch.nn.Linear(start, scalars, **made)
            return torch.nn.Sequential(
                first, torch.nn.ReLU(), torch.nn.Linear(scalars, end, **made)
            )

        self.v_linear = MVLinear(_SPACE, 2 * channels, channels, **made)
        self.edge_model_v = _Perceptron(channels, **made)
        self.edge_model_s = perceptron(2 * scalars + channels, scalars)
        self.update_model_v = _Product(channels, **made)
        self.update_model_s = perceptron(scalars, scalars)
        self.pos_net = perceptron(scalars, channels * _SPACE.grade_count)
        self.mes_norm = _Norms(scalars, channels, **made)
        self.update_norm_s = torch.nn.LayerNorm(scalars, **made)

    def forward(self, s: Tensor, v: Tensor, edges: Edges) -> tuple[Tensor, Tensor]:
        """The scalars and the multivectors of nodes after the messages.

        Args:
            s: the scalars of nodes.
            v: the multivectors of nodes.
            edges: a :class:`flashcliff.graphs.Graph`, or the relations of receivers and of senders.

        Raises:
            TypeError: ``edges`` are none of these.
            ValueError: the scalars have another shape.
        """
        receivers, senders = ends_of(edges)
        _check_scalars("s", s, receivers.count, self.scalars)
        ends = senders, receivers
        v_e = self.v_linear(torch.cat([gather(v, own) for own in ends], dim=-1))
        parts = [*(gather(s, own, dim=0) for own in ends), (v_e * v_e).sum(0)]
        s_e = self.edge_model_s(torch.cat(parts, dim=-1))
        factors = self.pos_net(s_e).unflatten(1, (self.channels, -1)).permute(2, 0, 1)
        u_e = _by_grade(self.edge_model_v(v_e), factors.contiguous())
        s_e, u_e = self.mes_norm(s_e, u_e)
        sums = segment_sum(s_e, receivers, reduce="root_count", dim=0)
        sums_v = segment_sum(u_e, receivers, reduce="root_count")
        return s + self.update_norm_s(self.update_model_s(sums)), v + self.update_model_v(sums_v)

    def extra_repr(self) -> str:
        return f"scalars={self.scalars}, channels={self.channels}"


class _Perceptron(torch.nn.Module):
    """Two linear maps with nonlinearities, and a third one with a matrix for each grade."""

    def __init__(self, channels: int, **made: Any) -> None:
        super().__init__()
        parts: list[torch.nn.Module] = []
        for _ in range(2):
            parts.append(MVLinear(_SPACE, channels, channels, per_grade=False, **made))
            parts.append(MVNRectifier(channels, **made))
        self.mlp = torch.nn.Sequential(*parts, MVLinear(_SPACE, channels, channels, **made))

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.mlp(x)
        return found


class _Product(torch.nn.Module):
    """The normed linear map of a geometric product of two linear maps beside its input."""

    def __init__(self, channels: int, **made: Any) -> None:
        super().__init__()
        self.linear_left, self.linear_right, self.linear_out = (
            MVLinear(_SPACE, start, channels, per_grade=False, **made)
            for start in (channels, channels, 2 * channels)
        )
        self.vec_norm = MVLayerNorm(_SPACE, channels, **made)

    def forward(self, x: Tensor) -> Tensor:
        product = F.product(self.linear_left(x), self.linear_right(x), algebra=_SPACE)
        found: Tensor = self.vec_norm(self.linear_out(torch.cat([product, x], dim=-1)))
        return found


class _Norms(torch.nn.Module):
    """The norm of scalars, and that of multivectors."""

    def __init__(self, scalars: int, channels: int, **made: Any) -> None:
        super().__init__()
        self.scalar_norm = torch.nn.LayerNorm(scalars, **made)
        self.vec_norm = MVLayerNorm(_SPACE, channels, **made)

    def forward(self, s: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        return self.scalar_norm(s), self.vec_norm(v)


class MVNBody(torch.nn.Module):
    """Positions of charged bodies after a time, by Multivector Neurons. It commutes with rotations, reflections and translations of space.

    :class:`torch.nn.Linear` of the charge, :class:`MVLinear` with one matrix of the position from the centre of the graph, the velocity and the charge,
    ``layers`` times :class:`MVNLayer`, and :class:`MVLinear` with one matrix to one channel, whose vector is added to the centre. 144,657 parameters by
    default.

    Source: MVN's ``NBody_MVN`` (arXiv 2406.04052), with the names of its state dict.
    """

    def __init__(
        self,
        scalars: int = 64,
        channels: int = 16,
        layers: int = 4,
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.algebra = _SPACE
        made: dict[str, Any] = {"device": device, "dtype": dtype}
        channels = check_features("channels", channels)
        self.feature_embedding = MVLinear(_SPACE, 3, channels, per_grade=False, **made)
        self.feature_embedding_s = torch.nn.Linear(1, checks.integer("scalars", scalars), **made)
        self.projection = MVLinear(_SPACE, channels, 1, per_grade=False, **made)
        self.model = torch.nn.ModuleList(
            MVNLayer(scalars, channels, **made) for _ in range(check_count("layers", layers))
        )

    def forward(
        self,
        charges: Tensor,
        positions: Tensor,
        velocities: Tensor,
        edges: Edges,
        graphs: Relation | None = None,
    ) -> Tensor:
        """The positions afterwards, ``[nodes, 3]``: the arguments are those of :class:`NBody`.

        Raises:
            TypeError: ``edges`` are none of these.
            ValueError: a tensor has another shape, or relations have other sizes.
        """
        ends = ends_of(edges)
        nodes = ends[0].count
        shapes = {"charges": (nodes,), "positions": (nodes, 3), "velocities": (nodes, 3)}
        for (name, shape), x in zip(shapes.items(), (charges, positions, velocities)):
            if tuple(x.shape) != shape:
                raise ValueError(f"{name}: expected {list(shape)}, got {list(x.shape)}")
        centre = _centre(positions, graphs)
        vectors = torch.stack([positions - centre, velocities], dim=-1).movedim(1, 0)
        parts = [
            embed_grade(vectors, 1, _SPACE),
            embed_grade(charges[None, :, None], 0, _SPACE),
        ]
        v = self.feature_embedding(torch.cat(parts, dim=-1))
        s = self.feature_embedding_s(charges[:, None])
        for layer in self.model:
            s, v = layer(s, v, ends)
        way = select_grade(self.projection(v), 1, _SPACE)
        return centre + way[..., 0].T
