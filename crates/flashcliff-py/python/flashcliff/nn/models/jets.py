"""The model of jets of particles."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from ..._ops import checks
from ...algebra import Algebra
from ...graphs import Edges, Graphs, difference, ends_of, gather, graphs_of, segment_sum
from ...operators import Multivector, Scalar, operator
from .._module import (
    AlgebraLike,
    CliffordModule,
    check_choice,
    check_count,
    check_features,
    check_shape,
)
from ..embedding import embed_grade
from ..fully_connected import FullyConnectedSteerableGeometricProduct
from ..layer_norm import MVLayerNorm
from ..linear import MVLinear
from ..silu import MVSiLU
from ..steerable import SteerableGeometricProduct
from ..transformer import path
from ..transformer.described import MessageDescription, MessageVariant, Multivectors, Undescribed
from . import _scalars as nodes

_FACTS = "channels", "scalars", "aggregation", "gates", "residual", "_algebra"
_SPACE = Algebra(1, 3, 0)
_VECTORS_OF_EDGES = 3
"""The difference of the momenta of both ends, and these themselves."""


@path.stands_for
class CGLayer(CliffordModule):
    """Messages of scalars and multivectors, which see each other by invariants and gates.

    ``inv(x)`` are the scalar of each channel and its squared norms by grade. For each edge from ``j`` to ``i``

    | ``m_x = phi_x([x_i, x_j, x_i - x_j, edge_x])``, ``m_h = phi_h([inv(m_x), h_i, h_j, h_i - h_j])``
    | ``x_i' = theta_x([x_i, mean of sigmoid(psi_x(m_h)) m_x, node_x])``
    | ``h_i' = theta_h([h_i, mean of m_h, inv(x_i), node_h])``, then ``x_i'`` times ``sigmoid(chi_x(h_i'))``

    with a gate for each channel and grade.

    Shapes:
        - ``x`` and its result ``[blades, nodes, channels]``, ``edge_x`` ``[blades, edges, edge_channels]``,
          ``node_x`` ``[blades, nodes, node_channels]``
        - ``h`` and its result ``[nodes, scalars]``, ``node_h`` ``[nodes, node_scalars]``

    Args:
        algebra: such as ``flashcliff.Algebra(1, 3, 0)``.
        channels: channels of multivectors.
        scalars: scalars of nodes, and of messages.
        edge_channels: the multivectors of an edge.
        node_channels: the multivectors of a node besides ``x``.
        node_scalars: the scalars of a node besides ``h``.
        aggregation: ``"mean"`` of messages, or their ``"sum"``.
        gates: whether scalars gate multivectors.
        residual: whether results are added to ``x`` and ``h``.
        normalization_init: as for :class:`SteerableGeometricProduct`.
        layer_type: ``"fc"`` for fully connected products, ``"gpmlp"`` for products of each channel behind a linear map and a gate.

    The layer has two results, so it has no file by itself; a :class:`JetTagger` has one.

    Source: CGENN's ``CGLayer``, of its experiment with jets (arXiv 2305.11141, section 5), with the names of its state dict.

    Example:
        >>> import torch
        >>> import flashcliff
        >>> from flashcliff.nn import models
        >>> edges = flashcliff.graphs.Graph(torch.tensor([[0, 1, 2], [1, 2, 0]]), num_nodes=3)
        >>> layer = models.CGLayer((1, 3, 0), channels=4, scalars=6)
        >>> x, h = layer(torch.randn(16, 3, 4), torch.randn(3, 6), edges)
        >>> x.shape, h.shape
        (torch.Size([16, 3, 4]), torch.Size([3, 6]))
    """

    def __init__(
        self,
        algebra: AlgebraLike,
        channels: int,
        scalars: int,
        edge_channels: int = 0,
        node_channels: int = 0,
        node_scalars: int = 0,
        aggregation: str = "mean",
        gates: bool = True,
        residual: bool = False,
        normalization_init: float | None = None,
        layer_type: str = "fc",
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(algebra)
        self.channels = channels = check_features("channels", channels)
        self.scalars = scalars = check_features("scalars", scalars)
        self.edge_channels = check_count("edge_channels", edge_channels)
        self.node_channels = check_count("node_channels", node_channels)
        self.node_scalars = check_count("node_scalars", node_scalars)
        self.aggregation = check_choice("aggregation", aggregation, ("mean", "sum"))
        self.gates, self.residual = checks.flag("gates", gates), checks.flag("residual", residual)
        made: dict[str, Any] = {"device": device, "dtype": dtype}
        kind = check_choice("layer_type", layer_type, ("fc", "gpmlp"))
        invariants = channels * self._algebra.grade_count

        def products(start: int) -> torch.nn.Sequential:
            return _products(self.algebra, (start, channels), kind, normalization_init, **made)

        def perceptron(start: int, end: int) -> torch.nn.Sequential:
            first = torch.nn.Linear(start, scalars, **made)
            return torch.nn.Sequential(
                first, torch.nn.ReLU(), torch.nn.Linear(scalars, end, **made)
            )

        self.phi_h = torch.nn.Sequential(
            torch.nn.Linear(invariants + 3 * scalars, scalars, bias=False, **made),
            torch.nn.BatchNorm1d(scalars, **made),
            torch.nn.ReLU(),
            torch.nn.Linear(scalars, scalars, **made),
            torch.nn.ReLU(),
        )
        self.phi_x = products(3 * channels + self.edge_channels)
        self.theta_x = products(2 * channels + self.node_channels)
        self.theta_h = torch.nn.Sequential(
            torch.nn.Linear(2 * scalars + invariants + self.node_scalars, scalars, **made),
            torch.nn.BatchNorm1d(scalars, **made),
            torch.nn.ReLU(),
            torch.nn.Linear(scalars, scalars, **made),
        )
        self.psi_x = perceptron(scalars, invariants)
        self.chi_x = perceptron(scalars, invariants)

    def forward(
        self,
        x: Tensor,
        h: Tensor,
        edges: Edges,
        edge_x: Tensor | None = None,
        node_x: Tensor | None = None,
        node_h: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """The multivectors ``[blades, nodes, channels]`` and the scalars ``[nodes, scalars]`` after the messages.

        Args:
            x: the multivectors of nodes.
            h: the scalars of nodes.
            edges: a graph, the relations of receivers and of senders, or an ``edge_index``, as of :func:`flashcliff.graphs.ends_of`.
            edge_x: the multivectors of edges, if the layer has any.
            node_x: further multivectors of nodes, if it has any.
            node_h: further scalars of nodes, if it has any.

        Raises:
            TypeError: ``edges`` are none of these.
            ValueError: a tensor has another shape, or is missing.
        """
        receivers, senders = ends = ends_of(edges, h.shape[0] if h.dim() else None)
        blades, nodes = self._algebra.blade_count, receivers.count
        check_shape("x", x, (blades, nodes, self.channels))
        check_shape("h", h, (nodes, self.scalars))
        check_shape("edge_x", edge_x, (blades, receivers.rows, self.edge_channels))
        check_shape("node_x", node_x, (blades, nodes, self.node_channels))
        check_shape("node_h", node_h, (nodes, self.node_scalars))
        of_ends = [gather(x, own) for own in ends]
        m_x = self.phi_x(_joined(*of_ends, difference(x, *ends), edge_x))
        scalars = [gather(h, own, dim=0) for own in ends]
        m_h = self.phi_h(
            _joined(_invariants(self._algebra, m_x), *scalars, difference(h, *ends, dim=0))
        )
        if self.gates:
            m_x = self._gated(m_x, self.psi_x(m_h))
        sums = segment_sum(m_x, receivers, reduce=self.aggregation)
        sums_h = segment_sum(m_h, receivers, reduce=self.aggregation, dim=0)
        # Scalars see the multivectors of before.
        new_h: Tensor = self.theta_h(_joined(h, sums_h, _invariants(self._algebra, x), node_h))
        new_x: Tensor = self.theta_x(_joined(x, sums, node_x))
        if self.gates:
            new_x = self._gated(new_x, self.chi_x(new_h))
        return (new_x + x, new_h + h) if self.residual else (new_x, new_h)

    def _gated(self, x: Tensor, logits: Tensor) -> Tensor:
        """Multivectors times the sigmoid of a number for each channel and grade."""
        by_grade = logits.unflatten(1, (self.channels, -1)).permute(2, 0, 1)
        found: Tensor = _of(self._algebra)[1](x, by_grade.contiguous())
        return found

    def describe_on_graph(
        self,
        network: MessageDescription,
        x: Multivectors,
        h: Multivectors,
        edge_x: Multivectors | None = None,
        node_x: Multivectors | None = None,
        node_h: Multivectors | None = None,
    ) -> tuple[Multivectors, Multivectors]:
        """Adds the layer in evaluation to a network, whose batch norms have their running statistics."""
        network.reads(self, *_FACTS)
        if (x.channels, h.channels) != (self.channels, self.scalars):
            raise Undescribed("a layer has other channels than what it reads")
        receivers, senders = network.ends()
        ends = [network.gather(x, own) for own in (receivers, senders)]
        of_edge = [] if edge_x is None else [edge_x]
        way = network.gather(x, receivers, senders)
        m_x = network.calls(
            nodes.parts_of(self.phi_x), nodes.side_by_side(network, *ends, way, *of_edge)
        )
        m_h = self._described_messages(network, self._invariants_in(network, m_x), h)
        if self.gates:
            m_x = nodes.gates(network, self.psi_x, m_x, m_h, self._algebra)
        sums, sums_h = (network.segment_sum(m, receivers, self.aggregation) for m in (m_x, m_h))
        # Scalars see the multivectors of before.
        new_h = self._described_update(network, x, (h, sums_h), node_h)
        of_node = [] if node_x is None else [node_x]
        new_x = network.calls(
            nodes.parts_of(self.theta_x), nodes.side_by_side(network, x, sums, *of_node)
        )
        if self.gates:
            new_x = nodes.gates(network, self.chi_x, new_x, new_h, self._algebra)
        if not self.residual:
            return new_x, new_h
        return network.sum(new_x, x), network.sum(new_h, h)

    def _invariants_in(self, network: MessageDescription, x: Multivectors) -> Multivectors:
        return nodes.invariants_of(network, _of(self._algebra)[0], x)

    def _described_messages(
        self, network: MessageDescription, invariants: Multivectors, h: Multivectors
    ) -> Multivectors:
        """Adds the messages of scalars. The linear map of the scalars of both ends acts on nodes, of which there are fewer than edges."""
        first, norm, *rest = nodes.parts_of(self.phi_h, 2)
        algebra, of_h, (receivers, senders) = self._algebra, h.channels, network.ends()
        sizes = [invariants.channels, of_h, of_h, of_h]
        weight, bias, out = nodes.weights(network, first, sum(sizes))
        own, *others = network.split(weight, 1, sizes)
        own = nodes.columns_by_grade(network, own, self.channels, algebra.grade_count)
        found = network.linear(algebra, invariants, (own, bias), out)
        here, there, way = (network.linear(algebra, h, (w, None), out) for w in others)
        # A half of twice a value with the other sign is exact.
        here, there = network.sum(here, way), network.sum(there, network.sum(way, way, -0.5))
        of_ends = network.sum(network.gather(here, receivers), network.gather(there, senders))
        found = nodes.batch_norm(network, norm, algebra, network.sum(found, of_ends))
        return network.perceptron(rest, algebra, found)

    def _described_update(
        self,
        network: MessageDescription,
        x: Multivectors,
        both: tuple[Multivectors, Multivectors],
        node_h: Multivectors | None,
    ) -> Multivectors:
        """Adds the scalars of nodes, from these and the sums of messages, from multivectors and from what a node has besides."""
        first, norm, *rest = nodes.parts_of(self.theta_h, 2)
        invariants = self._invariants_in(network, x)
        found = nodes.beside_invariants(
            network, first, both, invariants, () if node_h is None else (node_h,), self._algebra
        )
        return network.perceptron(
            rest, self._algebra, nodes.batch_norm(network, norm, self._algebra, found)
        )

    def extra_repr(self) -> str:
        return f"{self.algebra!r}, channels={self.channels}, scalars={self.scalars}, aggregation={self.aggregation!r}"


@path.stands_for
class JetTagger(torch.nn.Module):
    """Logits of the class of jets of particles, on graphs whose nodes are particles. They do not change under Lorentz transformations.

    Scalars of particles, as ``sign(p) log(|p| + 1)``, have a linear map; momenta have :class:`MVLinear` with one matrix. Then
    come ``layers`` layers of :class:`CGLayer`, whose edges have the momenta of both ends and their difference, and whose nodes
    have momenta and scalars. The mean of scalars and invariants over the particles of a jet goes through a perceptron with
    dropout.

    :func:`flashcliff.save_network` and :func:`flashcliff.export` write the network of evaluation, without a mask: call ``eval()``
    first. Running statistics are parameters of the file, and dropout is left out.

    Source: CGENN's ``LorentzCGGNN``, of its experiment with jets (arXiv 2305.11141, section 5), with the names of its state dict.

    Args:
        in_scalars: the scalars of a particle.
        scalars: the scalars of nodes between layers.
        channels: the channels of multivectors.
        decoder: the hidden channels of the last perceptron.
        classes: the number of classes.
        layers: the number of layers.
        dropout: the probability of dropout in the last perceptron.
        aggregation, gates, residual, normalization_init, layer_type: as for :class:`CGLayer`.

    Example:
        >>> import torch
        >>> import flashcliff
        >>> from flashcliff.nn import models
        >>> edges = flashcliff.graphs.Graph(torch.tensor([[0, 1, 2], [1, 2, 0]]), num_nodes=3)
        >>> jets = flashcliff.graphs.Relation(torch.tensor([0, 0, 0]), 1)
        >>> tagger = models.JetTagger(layers=1)
        >>> tagger(torch.rand(3, 4), torch.rand(3, 2), edges, jets).shape
        torch.Size([1, 2])
    """

    describes = torch.nn.BatchNorm1d, torch.nn.Dropout, torch.nn.Identity
    """The classes within it that its description knows besides the classes of all networks."""

    def __init__(
        self,
        in_scalars: int = 2,
        scalars: int = 72,
        channels: int = 8,
        decoder: int = 64,
        classes: int = 2,
        layers: int = 4,
        dropout: float = 0.2,
        aggregation: str = "mean",
        gates: bool = True,
        residual: bool = False,
        normalization_init: float | None = None,
        layer_type: str = "fc",
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.algebra = _SPACE
        made: dict[str, Any] = {"device": device, "dtype": dtype}
        in_scalars, channels = check_features("in_scalars", in_scalars), check_features("channels", channels)
        decoder, classes = check_features("decoder", decoder), check_features("classes", classes)
        dropout = checks.number("dropout", dropout)
        if not 0 <= dropout <= 1:
            raise ValueError(f"dropout: expected a probability, from 0 to 1, got {dropout}")
        self.embedding_h = torch.nn.Linear(in_scalars, check_features("scalars", scalars), **made)
        self.embedding_x = MVLinear(_SPACE, 1, channels, per_grade=False, **made)
        sizes = channels, scalars, _VECTORS_OF_EDGES, 1, in_scalars
        self.CGLs = torch.nn.ModuleList(
            CGLayer(
                _SPACE,
                *sizes,
                aggregation=aggregation,
                gates=gates,
                residual=residual,
                normalization_init=normalization_init,
                layer_type=layer_type,
                **made,
            )
            for _ in range(check_count("layers", layers))
        )
        self.graph_dec = torch.nn.Sequential(
            torch.nn.Linear(scalars + channels * _SPACE.grade_count, decoder, **made),
            torch.nn.ReLU(),
            torch.nn.Dropout(dropout),
            torch.nn.Linear(decoder, classes, **made),
        )

    def forward(
        self,
        momenta: Tensor,
        scalars: Tensor,
        edges: Edges,
        graphs: Graphs,
        mask: Tensor | None = None,
    ) -> Tensor:
        """Logits, ``[jets, classes]``.

        Args:
            momenta: the four-momenta of particles ``(E, px, py, pz)``, ``[nodes, 4]``.
            scalars: the scalars of particles, such as masses, ``[nodes, in_scalars]``.
            edges: a graph, the relations of receivers and of senders, or an ``edge_index``, as of :func:`flashcliff.graphs.ends_of`.
                CGENN has its receivers in the first row.
            graphs: the jet of each particle, a relation or a ``batch``, as of :func:`flashcliff.graphs.graphs_of`.
            mask: ``[nodes]``, 0 for nodes that are no particles. They count in means over jets and in batch norms, as CGENN's do.

        Raises:
            TypeError: ``edges`` are none of these.
            ValueError: a tensor or a relation has another shape.
        """
        receivers, senders = ends = ends_of(edges, momenta.shape[0] if momenta.dim() else None)
        nodes = receivers.count
        check_shape("momenta", momenta, (nodes, _SPACE.dim))
        check_shape("scalars", scalars, (nodes, self.embedding_h.in_features))
        if mask is not None:
            check_shape("mask", mask, (nodes,))
        vectors = embed_grade(momenta.T.unsqueeze(-1), 1, _SPACE)
        edge_x = _joined(
            difference(vectors, *ends), gather(vectors, receivers), gather(vectors, senders)
        )
        node_h = scalars.sign() * scalars.abs().log1p()
        x, h = self.embedding_x(vectors), self.embedding_h(node_h)
        for layer in self.CGLs:
            x, h = layer(x, h, ends, edge_x, vectors, node_h)
        found = _joined(h, _invariants(_SPACE, x))
        if mask is not None:
            found = found * mask.to(found.dtype).unsqueeze(-1)
        logits: Tensor = self.graph_dec(segment_sum(found, graphs_of(graphs), reduce="mean", dim=0))
        return logits

    def variant(self) -> MessageVariant:
        """The call that a file of the network is made for."""
        return MessageVariant("momenta", 1, _SPACE.dim, by_rows=True)

    def describe_on_graph(self, network: MessageDescription, momenta: Multivectors) -> Multivectors:
        """Adds the network in evaluation, without a mask, to another one."""
        network.reads(self, "algebra")
        if type(self.embedding_h) is not torch.nn.Linear:
            raise Undescribed("the embedding of scalars is no Linear")
        receivers, senders = network.ends()
        graphs = network.graphs()
        scalars = network.node_scalars(self.embedding_h.in_features, "scalars")
        node_h = nodes.signed_log(network, _SPACE, scalars)
        points = network.points(momenta)
        x, h = (
            self._embedded(network, points),
            network.perceptron([self.embedding_h], _SPACE, node_h),
        )
        vectors = network.extended(points, _SPACE.blade_count)
        ends = [network.gather(vectors, own) for own in (receivers, senders)]
        edge_x = network.side_by_side(network.gather(vectors, receivers, senders), *ends)
        for layer in self.CGLs:
            network.block()
            if type(layer) is not CGLayer:
                raise Undescribed(f"a layer is of the class {type(layer).__name__}")
            x, h = layer.describe_on_graph(network, x, h, edge_x, vectors, node_h)
        network.block()
        return self._described_logits(network, x, h, graphs)

    def _embedded(self, network: MessageDescription, points: Multivectors) -> Multivectors:
        """The first linear map, of vectors: all blades but theirs and the scalar are 0."""
        map = self.embedding_x
        if type(map) is not MVLinear:
            raise Undescribed("the embedding is no MVLinear")
        parameters = map.described_in_parts(network, "the embedding", per_grade=False)
        of = _SPACE, points, parameters, map.out_features
        return network.extended(network.linear(*of, grades=(0, 1)), _SPACE.blade_count)

    def _described_logits(
        self, network: MessageDescription, x: Multivectors, h: Multivectors, graphs: int
    ) -> Multivectors:
        """Adds the last perceptron, of means over jets. Dropout is left out."""
        invariants = nodes.invariants_of(network, _of(_SPACE)[0], x)
        means = [network.segment_sum(own, graphs, "mean") for own in (h, invariants)]
        first, *rest = nodes.parts_of(self.graph_dec)
        found = nodes.beside_invariants(network, first, means[:1], means[1], (), _SPACE)
        rest = [own for own in rest if type(own) is not torch.nn.Dropout]
        return network.perceptron(rest, _SPACE, found)._replace(of_graphs=True)


def _products(
    algebra: Algebra, sizes: tuple[int, int], kind: str, init: float | None, **made: Any
) -> torch.nn.Sequential:
    """Products of multivectors and a norm."""
    start, end = sizes
    norm = MVLayerNorm(algebra, end, **made)
    if kind == "fc":
        product = FullyConnectedSteerableGeometricProduct(
            algebra, start, end, normalization_init=init, **made
        )
        return torch.nn.Sequential(product, norm)
    return torch.nn.Sequential(
        MVLinear(algebra, start, end, **made),
        MVSiLU(algebra, end, **made),
        SteerableGeometricProduct(algebra, end, normalization_init=init, **made),
        norm,
    )


def _invariants(algebra: Algebra, x: Tensor) -> Tensor:
    """For each channel its scalar and its squared norms by grade, ``[rows, channels * grades]``."""
    found: Tensor = _of(algebra)[0](x)
    return found.permute(1, 2, 0).flatten(1)


def _joined(*parts: Tensor | None) -> Tensor:
    return torch.cat([own for own in parts if own is not None], dim=-1)


@lru_cache
def _of(algebra: Algebra) -> tuple[Any, Any]:
    """Two operators: the scalar and the squared norms by grade of multivectors, and multivectors times a sigmoid for each grade.
    There are as many grades as numbers in a scalar and a vector, which hold one number for each grade."""

    @operator(algebra)
    def invariants(x: Multivector):
        squares = [(~x.grade(g) * x.grade(g)).scalar for g in range(1, algebra.grade_count)]
        values = [own._value for own in (x.scalar, *squares)]
        return Multivector(algebra, x._program, values, (0, 1))

    @operator(algebra)
    def gated(x: Multivector, logits: Multivector.of(0, 1)):  # type: ignore[valid-type]
        gates = [Scalar(x._program, logit).sigmoid() for logit in logits._values]
        first, *others = (x.grade(grade) * gate for grade, gate in enumerate(gates))
        return sum(others, first)

    return invariants, gated
