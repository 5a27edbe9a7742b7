"""Projections of multivectors and scalars to queries, keys and values of heads, as separate layers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from ._blades_last import Pair
from ._config import known

__all__ = ["Shared", "SharedOfInputs", "Six", "Split", "SplitOfInputs"]

Six = tuple[Tensor, Tensor, Tensor, Tensor | None, Tensor | None, Tensor | None]
"""Multivectors of queries, keys and values ``[*batch, heads, items, channels, 16]``, and their scalars ``[*batch, heads,
items, scalars]``."""

Linear = Callable[[int, int, "int | None", "int | None"], nn.Module]
"""Makes a linear layer of channels and scalars: multivectors in and out, scalars in and out."""


class _Projection(nn.Module):
    def __init__(self, config: Any, norm: nn.Module | None) -> None:
        super().__init__()
        self.config = config
        if norm is not None:
            self.norm_qkv = norm
        self.normed = norm is not None
        self.sizes = known("in_mv_channels", config.in_mv_channels), config.in_s_channels
        scalars = config.in_s_channels
        self.sizes_of_queries = (
            self.sizes[0] + config.additional_qk_mv_channels,
            None if scalars is None else scalars + config.additional_qk_s_channels,
        )

    def _linear(self, linear: Linear, sizes: tuple[int, int | None], copies: int) -> nn.Module:
        per_head, per_head_s = self.config.hidden_mv_channels, self.config.hidden_s_channels
        scalars = None if per_head_s is None else copies * per_head_s
        return linear(sizes[0], copies * per_head, sizes[1], scalars)

    def _heads(self, pair: Pair, parts: int, heads: int) -> list[Pair]:
        """The parts of a projection, whose head is the fastest index."""
        mv, s = pair
        mv = mv.unflatten(-2, (parts, self.config.hidden_mv_channels, heads))
        mv = mv.movedim((-4, -2), (0, -4))
        if s is not None:
            s = s.unflatten(-1, (parts, self.config.hidden_s_channels, heads))
            s = s.movedim((-3, -1), (0, -3))
        if self.normed:
            mv, s = self.norm_qkv(mv, s)
        of_scalars: list[Tensor | None] = [None] * parts
        if s is not None:
            of_scalars = list(s.unbind(0))
        return list(zip(mv.unbind(0), of_scalars, strict=True))


class Split(_Projection):
    """Queries, keys and values of every head, by one linear layer."""

    def __init__(self, config: Any, linear: Linear, norm: nn.Module | None = None) -> None:
        super().__init__(config, norm)
        self.in_linear = self._linear(linear, self.sizes_of_queries, 3 * config.num_heads)

    def forward(
        self,
        multivectors: Tensor,
        scalars: Tensor | None = None,
        additional_qk_features_mv: Tensor | None = None,
        additional_qk_features_s: Tensor | None = None,
    ) -> Six:
        """The multivectors ``[*batch, heads, items, channels, 16]`` and scalars ``[*batch, heads, items, scalars]``
        of queries, keys and values; values see what queries and keys see besides.
        """
        seen = _with(multivectors, scalars, additional_qk_features_mv, additional_qk_features_s)
        return _six(self._heads(self.in_linear(*seen), 3, self.config.num_heads))


class Shared(_Projection):
    """Queries of every head, and keys and values that the heads share."""

    def __init__(self, config: Any, linear: Linear, norm: nn.Module | None = None) -> None:
        super().__init__(config, norm)
        self.q_linear = self._linear(linear, self.sizes_of_queries, config.num_heads)
        self.k_linear = self._linear(linear, self.sizes_of_queries, 1)
        self.v_linear = self._linear(linear, self.sizes, 1)

    def forward(
        self,
        multivectors: Tensor,
        scalars: Tensor | None = None,
        additional_qk_features_mv: Tensor | None = None,
        additional_qk_features_s: Tensor | None = None,
    ) -> Six:
        """The multivectors ``[*batch, heads, items, channels, 16]`` and scalars ``[*batch, heads, items, scalars]``
        of queries, keys and values; keys and values have one head, and values see the items alone.
        """
        seen = _with(multivectors, scalars, additional_qk_features_mv, additional_qk_features_s)
        query = self._heads(self.q_linear(*seen), 1, self.config.num_heads)
        key = self._heads(self.k_linear(*seen), 1, 1)
        value = self._heads(self.v_linear(multivectors, scalars), 1, 1)
        return _six(query + key + value)


class _OfInputs(nn.Module):
    """The call as GATr and lgatr 1.4 name it: multivectors are ``inputs``, and scalars must be given, if only as ``None``."""

    def forward(
        self,
        inputs: Tensor,
        scalars: Tensor | None,
        additional_qk_features_mv: Tensor | None = None,
        additional_qk_features_s: Tensor | None = None,
    ) -> Six:
        """Projects multivectors ``[*batch, items, channels, 16]`` and scalars. Queries and keys see the additional features, and so do
        values that are not shared."""
        more = additional_qk_features_mv, additional_qk_features_s
        found: Six = super().forward(inputs, scalars, *more)  # type: ignore[misc]
        return found


class SplitOfInputs(_OfInputs, Split):  # type: ignore[misc]
    """:class:`Split`, called as in GATr and lgatr 1.4."""


class SharedOfInputs(_OfInputs, Shared):  # type: ignore[misc]
    """:class:`Shared`, called as in GATr and lgatr 1.4."""


def _with(mv: Tensor, s: Tensor | None, more: Tensor | None, more_s: Tensor | None) -> Pair:
    mv = mv if more is None else torch.cat((mv, more), dim=-2)
    return mv, s if s is None or more_s is None else torch.cat((s, more_s), dim=-1)


def _six(pairs: list[Pair]) -> Six:
    (q, q_s), (k, k_s), (v, v_s) = pairs
    return q, k, v, q_s, k_s, v_s
