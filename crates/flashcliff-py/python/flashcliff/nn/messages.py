"""CGENN's messages between neighbours."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeGuard

import torch
from torch import Tensor

from .. import functional as F
from .._ops import checks
from .._ops.segments import REDUCTIONS
from ..graphs import Edges, Relation, difference, ends_of, segment_sum
from ._module import (
    AlgebraLike,
    CliffordModule,
    check_choice,
    check_count,
    check_features,
    check_shape,
    check_tensor,
    joined,
)
from .linear import MVLinear
from .perceptron import CEMLP
from .transformer import path
from .transformer.described import (
    MessageDescription,
    MessageGiven,
    MessageVariant,
    Multivectors,
    Networked,
    Undescribed,
    attempt_on_graph,
    computed_again,
)

_FACTS = "channels", "hidden", "edge_scalars", "node_scalars", "aggregation", "residual", "edges_at_once", "_algebra"


@path.stands_for
class EGCL(CliffordModule, Networked):
    """Messages between neighbours, each of two perceptrons :class:`CEMLP`.

    ``m_e = edge_model([h_i - h_j, a_e])`` for each edge ``e`` from ``j`` to ``i``, and
    ``h_i' = h_i + node_model([h_i, mean over the edges e to i of m_e, b_i])``. The mean of no messages is 0.

    The first linear map of ``edge_model`` acts on nodes, of which there are fewer than edges. It is called with edges if it or
    ``edge_model`` is wrapped, hooked or replaced. Messages are summed in the order of edges, so results have the same bits in every run.

    The layer is one function of autograd with one plan, on the CPU and on GPUs, and one node of a compiled graph. Its perceptrons
    are called where something follows or changes them, as hooks do; for batches of nodes; and for tensors of 16 bits.

    Shapes:
        - nodes ``h`` and the result ``[blades, *batch, nodes, channels]``
        - ``edge_scalars`` ``a`` ``[edges, edge_scalars]``, ``node_scalars`` ``b`` ``[nodes, node_scalars]``
        - ``edge_model``: :class:`CEMLP` of ``channels + edge_scalars`` to ``hidden`` channels
        - ``node_model``: :class:`CEMLP` of ``channels + hidden + node_scalars`` to ``channels``

    Args:
        algebra: such as ``flashcliff.Algebra(3, 0, 0)``.
        channels: channels of nodes.
        hidden: channels of messages, and between the layers of perceptrons; ``channels`` by default.
        edge_scalars: the scalars of an edge.
        layers: the layers of each perceptron.
        aggregation: what sums of messages are divided by: ``"mean"`` by their number, ``"root_count"`` by its square root, ``"sum"`` by
            nothing.
        residual: whether the result is added to the nodes.
        node_scalars: the scalars of a node, which its update reads.
        edges_at_once: the most edges whose messages are in memory at once; all if absent. The backward pass computes messages again,
            some edges at a time, so memory grows with this number and the nodes, and no more with the edges. Sums have another order
            than without it. In a captured step a model in place of ``edge_model`` may then not draw random numbers.

    Source: CGENN's ``EGCL``, of its n-body experiment (arXiv 2305.11141, section 5), with the names of its state dict; CSMPN's
    (arXiv 2402.10011) is the same. CGENN sums messages at the first row of its edges, :class:`flashcliff.graphs.Graph` at the
    second, as PyTorch Geometric does.

    Example:
        >>> import torch
        >>> import flashcliff
        >>> from flashcliff import nn
        >>> edges = flashcliff.graphs.Graph(torch.tensor([[0, 1, 2], [1, 2, 0]]), num_nodes=3)
        >>> layer = nn.EGCL((3, 0, 0), 4, edge_scalars=1)
        >>> layer(torch.randn(8, 3, 4), edges, torch.randn(3, 1)).shape
        torch.Size([8, 3, 4])
    """

    variants = MessageVariant

    def __init__(
        self,
        algebra: AlgebraLike,
        channels: int,
        hidden: int | None = None,
        edge_scalars: int = 0,
        layers: int = 2,
        aggregation: str = "mean",
        residual: bool = True,
        node_scalars: int = 0,
        edges_at_once: int | None = None,
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(algebra)
        self.channels = check_features("channels", channels)
        self.hidden = self.channels if hidden is None else check_features("hidden", hidden)
        self.edge_scalars = check_count("edge_scalars", edge_scalars)
        self.node_scalars = check_count("node_scalars", node_scalars)
        self.aggregation = check_choice("aggregation", aggregation, REDUCTIONS)
        self.residual = checks.flag("residual", residual)
        if edges_at_once is not None:
            edges_at_once = check_features("edges_at_once", edges_at_once)
        self.edges_at_once = edges_at_once

        def perceptron(start: int, end: int) -> CEMLP:
            sizes = start, self.hidden, end, layers
            return CEMLP(self.algebra, *sizes, device=device, dtype=dtype)

        self.edge_model = perceptron(self.channels + self.edge_scalars, self.hidden)
        self.node_model = perceptron(
            self.channels + self.hidden + self.node_scalars, self.channels
        )

    def forward(
        self,
        h: Tensor,
        edges: Edges,
        edge_scalars: Tensor | None = None,
        node_scalars: Tensor | None = None,
    ) -> Tensor:
        """The nodes ``[blades, *batch, nodes, channels]`` after the messages.

        Args:
            h: the nodes.
            edges: a graph, the relations of receivers and of senders, or an ``edge_index``, as of :func:`flashcliff.graphs.ends_of`.
            edge_scalars: the scalars of edges, if the layer has any.
            node_scalars: the scalars of nodes, if it has any.

        Raises:
            TypeError: ``edges`` are none of these.
            ValueError: the relations have not as many targets as there are nodes, or the scalars another shape.
        """
        check_tensor("h", h)
        ends = ends_of(edges, h.shape[-2] if h.dim() > 1 else None)
        check_shape("edge_scalars", edge_scalars, (ends[0].rows, self.edge_scalars))
        check_shape("node_scalars", node_scalars, (ends[0].count, self.node_scalars))
        given = MessageGiven(h, *ends, edge_scalars, node_scalars=node_scalars)
        found = None
        if not self._has_parts(ends[0]) and h.dim() > 1 and h.shape[-2] == ends[0].count:
            found = attempt_on_graph(self, given, self._composed)
        return self._composed(given) if found is None else found

    def _composed(self, given: MessageGiven) -> Tensor:
        """The nodes after the messages, by the calls of layers."""
        h, edge_scalars = given.here, given.edge_scalars
        assert given.receivers is not None and given.senders is not None
        ends = given.receivers, given.senders
        if self._has_parts(ends[0]):
            sums = self._sums_in_parts(h, ends, edge_scalars)
        else:
            messages = self._messages(h, ends, edge_scalars)
            sums = segment_sum(messages, ends[0], reduce=self.aggregation, dim=-2)
        parts = [h, sums]
        if given.node_scalars is not None:
            parts.append(_on_first_blade(given.node_scalars, h))
        update: Tensor = self.node_model(torch.cat(parts, dim=-1))
        return h + update if self.residual else update

    def _has_parts(self, receivers: Relation) -> bool:
        """Whether there are more edges than are computed at once."""
        return self.edges_at_once is not None and receivers.rows > self.edges_at_once

    def _sums_in_parts(
        self, h: Tensor, ends: tuple[Relation, Relation], scalars: Tensor | None
    ) -> Tensor:
        """The sums of messages, of which some edges at a time are in memory."""
        assert self.edges_at_once is not None
        size, receivers = self.edges_at_once, ends[0]
        mapped = self._mapped(h)

        def sums(x: Tensor, of: Relation, senders: Relation, own: Tensor | None) -> Tensor:
            return segment_sum(self._of_mapped(x, (of, senders), own), of, dim=-2)

        pieces = [None] * receivers.rows if scalars is None else scalars.split(size)
        # The state of the generator is read by the host, and a perceptron draws no numbers.
        draws = type(self.edge_model) is not CEMLP
        is_captured = h.is_cuda and torch.cuda.is_current_stream_capturing()
        keeps = draws and not is_captured
        total: Tensor | None = None
        for *pair, own in zip(*(end.parts(size) for end in ends), pieces, strict=False):
            found = computed_again(sums, mapped, *pair, own, preserve_rng_state=keeps)
            total = found if total is None else total + found
        assert total is not None
        if self.aggregation == "sum":
            return total
        counts = receivers.counts.clamp(min=1).to(total.dtype)
        return total / (counts if self.aggregation == "mean" else counts.sqrt())[:, None]

    def _messages(
        self, h: Tensor, ends: tuple[Relation, Relation], scalars: Tensor | None
    ) -> Tensor:
        return self._of_mapped(self._mapped(h), ends, scalars)

    def _first_of_nodes(self) -> MVLinear | None:
        """The first linear map of edges, if it may act on nodes, of which there are fewer."""
        model = self.edge_model
        if path.of_call(model, CEMLP) is None and _acts_on_nodes(model.first):
            return model.first
        return None

    def _mapped(self, h: Tensor) -> Tensor:
        """The nodes of which messages are made: ``W h`` if the first linear map acts on nodes."""
        first = self._first_of_nodes()
        if first is None:
            return h
        of_nodes = first.weight[:, : self.channels]
        return F.mv_linear(h, of_nodes, None, algebra=self._algebra)

    def _of_mapped(
        self, x: Tensor, ends: tuple[Relation, Relation], scalars: Tensor | None
    ) -> Tensor:
        """The messages of edges, of what :meth:`_mapped` makes of nodes."""
        first, x = self._first_of_nodes(), difference(x, *ends, dim=-2)
        if first is not None:
            return self.edge_model.behind_first(self._with_scalars(first, x, scalars))
        if scalars is not None:
            x = torch.cat([x, _on_first_blade(scalars, x)], dim=-1)
        found: Tensor = self.edge_model(x)
        return found

    def _with_scalars(self, first: MVLinear, x: Tensor, scalars: Tensor | None) -> Tensor:
        """The result of the first linear map: ``x + V a_e + b``, of ``x = (W h)_i - (W h)_j``."""
        bias = first.bias
        if scalars is not None:
            of_scalars = first.weight[:, self.channels :, :1]
            flat = None if bias is None else bias.view(-1)
            own = F.mv_linear(scalars[None], of_scalars, flat, algebra=self._algebra, grades=(0,))[
                0
            ]
        elif bias is not None:
            own = bias.view(-1)
        else:
            return x
        return torch.cat([x[:1] + own, x[1:]])

    def variant(self) -> MessageVariant:
        """The call that the layer was made for."""
        return MessageVariant("nodes", self._algebra.blade_count, self.channels)

    def describe_on_graph(
        self,
        network: MessageDescription,
        h: Multivectors,
        scalars: Multivectors | None = None,
        of_nodes: Multivectors | None = None,
    ) -> Multivectors:
        """Adds the layer to a network. ``scalars`` are the scalars of edges, and ``of_nodes`` the scalars of nodes. Each is an input of
        the network if it is not given."""
        network.reads(self, *_FACTS)
        model, receivers = self.edge_model, network.ends()[0]
        if self.edges_at_once is not None:
            raise Undescribed("edges are computed in parts; set edges_at_once to None")
        if type(model) is not CEMLP or h.channels != self.channels:
            raise Undescribed("messages are not of a CEMLP, or of other channels than nodes")
        if scalars is None and self.edge_scalars:
            scalars = network.edge_scalars(self.edge_scalars)
        if of_nodes is None and self.node_scalars:
            of_nodes = network.node_scalars(self.node_scalars)
        messages = model.describe_behind_first(network, self._described_first(network, h, scalars))
        sums = network.segment_sum(messages, receivers, self.aggregation)
        update = self._described_update(network, network.side_by_side(h, sums), of_nodes)
        if not self.residual:
            return update
        if update.channels != h.channels:
            raise Undescribed("a residual has other channels than what it is added to")
        return network.sum(h, update)

    def _described_update(
        self, network: MessageDescription, both: Multivectors, scalars: Multivectors | None
    ) -> Multivectors:
        """Adds the perceptron of nodes, of nodes and sums of messages side by side."""
        model = self.node_model
        if scalars is None:
            found: Multivectors = network.call(model, both)
            return found
        if type(model) is not CEMLP:
            raise Undescribed("scalars of nodes are not read by a CEMLP")
        first = _beside_scalars(network, model.first, both, scalars, lambda x: x)
        return model.describe_behind_first(network, first)

    def _described_first(
        self, network: MessageDescription, h: Multivectors, scalars: Multivectors | None
    ) -> Multivectors:
        """Adds the first linear map of edges: ``(W h)_i - (W h)_j + V a_e + b``, or of differences where edges have no scalars."""
        first: torch.nn.Module = self.edge_model.first
        ends = network.ends()
        if scalars is None:
            found: Multivectors = network.call(first, network.gather(h, *ends))
            return found
        return _beside_scalars(network, first, h, scalars, lambda x: network.gather(x, *ends))

    def extra_repr(self) -> str:
        return joined(
            f"{self.algebra!r}, channels={self.channels}, hidden={self.hidden}",
            f"edge_scalars={self.edge_scalars}" if self.edge_scalars else "",
            f"node_scalars={self.node_scalars}" if self.node_scalars else "",
            f"aggregation={self.aggregation!r}",
            "" if self.residual else "residual=False",
            "" if self.edges_at_once is None else f"edges_at_once={self.edges_at_once}",
        )


def _acts_on_nodes(module: torch.nn.Module) -> TypeGuard[MVLinear]:
    """Whether a call of the module only runs its own ``forward``, and that is a linear map for each grade with a bias on the scalar."""
    if path.of_call(module, MVLinear) is not None:
        return False
    assert isinstance(module, MVLinear)
    return module.per_grade and module.grades is None and module.bias_mode == "scalar"


def _on_first_blade(scalars: Tensor, like: Tensor) -> Tensor:
    """Scalars ``[rows, scalars]`` as multivectors, whose batch is that of others."""
    own = scalars.expand(*like.shape[:-1], -1)
    return torch.cat([own[:1], torch.zeros_like(own[1:])])


def _beside_scalars(
    network: MessageDescription,
    first: torch.nn.Module,
    h: Multivectors,
    scalars: Multivectors,
    along: Callable[[Multivectors], Multivectors],
) -> Multivectors:
    """Adds the first linear map of a perceptron of multivectors and scalars: ``t(W h) + V a + b``, where ``along``, the map
    ``t``, takes the rows of nodes to the rows of the scalars."""
    if not isinstance(first, MVLinear) or first.in_features != h.channels + scalars.channels:
        raise Undescribed("the first map of multivectors and scalars is no MVLinear of their channels")
    algebra, what = first._algebra, "the first map of multivectors and scalars"
    weight, bias = first.described_in_parts(network, what, per_grade=True)
    of_nodes, of_scalars = network.split(weight, 1, [h.channels, scalars.channels])
    of_scalars = network.split(of_scalars, 2, [1, algebra.grade_count - 1])[0]

    of_h = algebra, h, (of_nodes, None), first.out_features
    moved = along(network.linear(*of_h, per_grade=True, grades=None))
    of = algebra, scalars, (of_scalars, bias), first.out_features
    return network.sum(moved, network.extended(network.linear(*of, per_grade=True), h.blades))
