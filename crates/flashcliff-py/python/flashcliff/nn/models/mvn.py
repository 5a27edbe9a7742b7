"""The model of charged bodies with Multivector Neurons."""

from __future__ import annotations

import torch
from torch import Tensor

from ... import _core
from ...algebra import Algebra
from ...graphs import Edges, Graphs
from .._module import check_count, check_features
from ..transformer import path
from ..transformer.loaded import CoreNetwork
from .nbody import numbers_of_bodies


@path.stands_for
class MVNBody(CoreNetwork):
    """Positions of charged bodies after a time, by Multivector Neurons. It commutes with rotations, reflections and translations of space.

    A linear map takes the charge to scalars. :class:`~flashcliff.nn.MVLinear` with one matrix takes the position relative to the
    centre of the graph, the velocity and the charge to multivectors. ``layers`` layers of messages follow.
    :class:`~flashcliff.nn.MVLinear` with one matrix then gives one channel, whose vector is added to the centre. 144,657
    parameters by default. Scalars and multivectors of messages see each other by squares and by factors for each channel and
    grade: for each edge from ``i`` to ``j``

    | ``v = v_linear([v_i, v_j])``, ``s = edge_model_s([s_i, s_j, sum over blades of v^2])``
    | ``u = edge_model_v(v)`` times ``pos_net(s)``, a factor for each channel and grade

    Messages are normed and added up by the root of their number. ``s_j`` gets ``update_norm_s(update_model_s(sum))``, and ``v_j``
    gets ``vec_norm(linear_out([left(sum) right(sum), sum]))``, with a geometric product. The nonlinearity of ``edge_model_v`` is
    ``q`` where ``q . k > 0``, else ``q - (q . k) / (k . k + 1e-8) k``, of two linear maps of its input.

    The network is one function of autograd with one plan, on the CPU and on GPUs, that the core describes
    (``messages::MultivectorNeurons`` in Rust); its parts have no calls. Its gradients are such networks, too, of every order.

    Source: MVN's ``NBody_MVN`` (arXiv 2406.04052), with the names of its state dict. A node without edges gets messages of 0,
    where MVN's are not a number.

    Example:
        >>> import torch
        >>> import flashcliff
        >>> from flashcliff.nn import models
        >>> edges = flashcliff.graphs.Graph(torch.tensor([[0, 1, 2], [1, 2, 0]]), num_nodes=3)
        >>> charges, positions, velocities = torch.randn(3), torch.randn(3, 3), torch.randn(3, 3)
        >>> models.MVNBody(layers=1)(charges, positions, velocities, edges).shape
        torch.Size([3, 3])
    """

    _what = "MVNBody"
    _describe = _core.StoredNetwork.multivector_neurons

    def __init__(
        self,
        scalars: int = 64,
        channels: int = 16,
        layers: int = 4,
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        sizes = check_features("scalars", scalars), check_features("channels", channels)
        super().__init__(*sizes, check_count("layers", layers))
        self.algebra = Algebra(3, 0, 0)
        self._begin(device, dtype)

    def forward(
        self,
        charges: Tensor,
        positions: Tensor,
        velocities: Tensor,
        edges: Edges,
        graphs: Graphs | None = None,
    ) -> Tensor:
        """The positions afterwards, ``[nodes, 3]``. The arguments are as for :class:`NBody`.

        Raises:
            TypeError: ``edges`` are none of these.
            ValueError: a tensor has another shape, or relations have other sizes.
        """
        numbers, ends, of = numbers_of_bodies(charges, positions, velocities, edges, graphs)
        given = {"bodies": numbers[:, None], "receivers": ends[0], "senders": ends[1], "graphs": of}
        return self._call(given)[..., 0].T.contiguous()
