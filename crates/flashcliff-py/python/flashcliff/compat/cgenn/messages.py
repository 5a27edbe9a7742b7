"""CGENN's perceptron and messages, with its names, arguments and layout."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

from ... import nn
from ..._ops import checks, remedies
from ...graphs import Relation, difference, segment_sum
from ...graphs._known import is_kept_for
from ...nn.transformer import path
from .algebra import CliffordAlgebra
from .layers import Device, _Layout, _ours
from .layout import AlgebraLike

# Its tables are part of the state dict alone: nothing calls it.
path.stands_for(CliffordAlgebra)


@path.stands_for
class CEMLP(_Layout, nn.CEMLP):
    """CGENN's ``CEMLP``, of its n-body experiment: ``[batch, in_features, blades]`` to ``[batch, out_features, blades]``."""

    def __init__(
        self,
        algebra: AlgebraLike,
        in_features: int,
        hidden_features: int,
        out_features: int,
        n_layers: int = 2,
        normalization_init: float = 0.0,
        *,
        device: Device = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        sizes = in_features, hidden_features, out_features, n_layers
        super().__init__(_ours(algebra), *sizes, device=device, dtype=dtype)
        for part in self.modules():
            if isinstance(part, nn.GradeNorm):
                torch.nn.init.constant_(part.a, normalization_init)
        self._keep(algebra)
        self.in_features, self.hidden_features, self.out_features = sizes[:3]
        self.n_layers = n_layers


class EGCL(torch.nn.Module):
    """CGENN's ``EGCL``, of its n-body experiment: messages between neighbours.

    Nodes are ``[nodes, in_features, blades]``. Messages are summed at the first row of ``edge_index``, in a fixed order, on GPUs too.
    """

    def __init__(
        self,
        algebra: AlgebraLike,
        in_features: int,
        hidden_features: int,
        out_features: int,
        edge_attr_features: int = 0,
        node_attr_features: int = 0,
        residual: bool = True,
        normalization_init: float = 0.0,
        *,
        device: Device = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.residual = checks.flag("residual", residual)
        self.in_features, self.hidden_features = in_features, hidden_features
        self.out_features = out_features
        self.edge_attr_features = edge_attr_features
        self.node_attr_features = node_attr_features

        def perceptron(start: int) -> CEMLP:
            sizes = start, hidden_features, out_features, 2, normalization_init
            return CEMLP(algebra, *sizes, device=device, dtype=dtype)

        self.edge_model = perceptron(in_features + edge_attr_features)
        self.node_model = perceptron(in_features + out_features)

    def message(self, h_i: Tensor, h_j: Tensor, edge_attr: Tensor | None = None) -> Tensor:
        """The messages of edges between these nodes."""
        return self._message(h_i - h_j, edge_attr)

    def _message(self, differences: Tensor, edge_attr: Tensor | None) -> Tensor:
        parts = [differences] if edge_attr is None else [differences, edge_attr]
        found: Tensor = self.edge_model(torch.cat(parts, dim=1))
        return found

    def aggregate(self, h_msg: Tensor, segment_ids: Tensor, num_segments: int) -> Tensor:
        """The mean of messages, ``[edges, numbers]``, at each node."""
        own = _relation(segment_ids, num_segments)
        return segment_sum(h_msg, own, reduce="mean", dim=0)

    def update(self, h_agg: Tensor, h: Tensor, node_attr: Tensor | None = None) -> Tensor:
        """The nodes after their messages."""
        parts = [h, h_agg] if node_attr is None else [h, h_agg, node_attr]
        found: Tensor = self.node_model(torch.cat(parts, dim=1))
        return h + found if self.residual else found

    def forward(
        self,
        h: Tensor,
        edge_index: Any,
        edge_attr: Tensor | None = None,
        node_attr: Tensor | None = None,
    ) -> Tensor:
        """The nodes after the messages along edges, ``[receivers, senders]``, with multivectors of edges and of nodes."""
        rows, cols = _ends(edge_index)
        blades = self.edge_model.algebra.blade_count
        _check("h", h, "nodes", blades)
        if edge_attr is not None:
            _check("edge_attr", edge_attr, len(rows), blades)
        if node_attr is not None:
            _check("node_attr", node_attr, len(h), blades)
        receivers, senders = (_relation(own, len(h)) for own in (rows, cols))
        messages = self._message(difference(h, receivers, senders, dim=0), edge_attr)
        sums = segment_sum(messages, receivers, reduce="mean", dim=0)
        return self.update(sums, h, node_attr)

    def extra_repr(self) -> str:
        return f"in_features={self.in_features}, residual={self.residual}"


def _ends(edge_index: Any) -> tuple[Tensor, Tensor]:
    """The receivers and the senders of edges."""
    is_pair = isinstance(edge_index, (tuple, list)) and len(edge_index) == 2
    if not is_pair:
        remedies.check_dense("edge_index", edge_index)
        if edge_index.dim() != 2 or len(edge_index) != 2:
            raise ValueError(f"edge_index: expected [2, edges], got {list(edge_index.shape)}")
    rows, cols = edge_index
    for own in (rows, cols):
        remedies.check_tensor("edge_index", own)
        if own.dim() != 1 or len(own) != len(rows):
            shapes = [list(rows.shape), list(cols.shape)]
            raise ValueError(f"edge_index: expected [edges] of receivers and of senders, got {shapes}")
    return rows, cols


def _check(name: str, x: Any, rows: int | str, blades: int) -> None:
    """Checks that multivectors are ``[rows, channels, ..., blades]``; a word stands for any number of rows."""
    remedies.check_dense(name, x)
    fits = x.dim() >= 3 and x.shape[-1] == blades and (isinstance(rows, str) or len(x) == rows)
    if not fits:
        raise ValueError(f"{name}: expected [{rows}, channels, ..., {blades}], got {list(x.shape)}")


_KNOWN: Any = WeakTensorKeyDictionary()
"""The relations of tensors of numbers, with the versions of these: layers of a network have the same edges."""


def _relation(index: Tensor, count: int) -> Relation:
    """The relation of rows to targets, sorted once for all layers that are given the same tensor."""
    # A CUDA graph sorts what its replay is given.
    if not is_kept_for(index):
        return Relation(index, count)
    key = count, index._version
    found = _KNOWN.get(index)
    if found is None or found[0] != key:
        _KNOWN[index] = found = key, Relation(index, count)
    relation: Relation = found[1]
    return relation
