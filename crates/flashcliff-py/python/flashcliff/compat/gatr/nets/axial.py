"""The network AxialGATr, for items on two axes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from ....nn import transformer
from ....nn.transformer.described import computed_again
from ..._blades_last import Pair, enter, leave
from ..._zero_scalars import with_empty
from ..config import GEOMETRY, MLPConfig, SelfAttentionConfig
from ..layers.block import block_arguments
from ..masks import attention_options
from ..reference import reference_component

__all__ = ["AxialGATr"]


class AxialGATr(nn.Module):
    """GATr for items on two axes, along which the blocks attend in turn: the first block along the second axis, the
    second block along the first, and so on.

    Shapes:
        - multivectors ``[*batch, items_1, items_2, in_mv_channels, 16]`` to the same with ``out_mv_channels``
        - scalars ``[*batch, items_1, items_2, in_s_channels]`` to the same with ``out_s_channels``, or ``None``

    The modules within take ``[16, *batch, items_1, items_2, channels]``. The state dict is GATr's.

    Args:
        num_blocks: this argument and all before it are as for :class:`GATr`.
        checkpoint_blocks: whether blocks are computed again in the backward pass.
        pos_encodings: whether attention along the first and along the second axis sees rotary positions.
        collapse_dims: whether the first axis of the tensor is merged with the next one in the first, third, ... block,
            and in the others. With ``[items_1, items_2, ...]`` all items are then one sequence, for
            a ``BlockDiagonalMask``.

    Source: arXiv 2305.18415.
    """

    def __init__(
        self,
        in_mv_channels: int,
        out_mv_channels: int,
        hidden_mv_channels: int,
        in_s_channels: int | None,
        out_s_channels: int | None,
        hidden_s_channels: int | None,
        attention: SelfAttentionConfig | Mapping[str, Any],
        mlp: MLPConfig | Mapping[str, Any],
        num_blocks: int = 20,
        checkpoint_blocks: bool = False,
        pos_encodings: tuple[bool, bool] = (False, False),
        collapse_dims: tuple[bool, bool] = (False, False),
    ) -> None:
        super().__init__()
        config, mlp = SelfAttentionConfig.cast(attention), MLPConfig.cast(mlp)
        hidden = hidden_s_channels or 0
        linear = transformer.EquiLinear
        self.linear_in = with_empty(
            linear(GEOMETRY, in_mv_channels, hidden_mv_channels, in_s_channels or 0, hidden),
            in_s_channels,
            hidden or None,
        )
        rotary = _two("pos_encodings", pos_encodings)
        self.blocks = nn.ModuleList(
            transformer.Block(
                GEOMETRY,
                hidden_mv_channels,
                hidden,
                **block_arguments(replace(config, pos_encoding=rotary[(at + 1) % 2]), mlp),
            )
            for at in range(num_blocks)
        )
        self.linear_out = with_empty(
            linear(GEOMETRY, hidden_mv_channels, out_mv_channels, hidden, out_s_channels or 0),
            hidden or None,
            out_s_channels,
        )
        self.checkpoint_blocks = checkpoint_blocks
        self.in_channels = in_mv_channels
        self.collapse_dims = _two("collapse_dims", collapse_dims)

    def forward(
        self,
        multivectors: Tensor,
        scalars: Tensor | None = None,
        attention_mask: Sequence[Any] | None = None,
        join_reference: Tensor | str = "data",
    ) -> Pair:
        """Applies the network.

        Args:
            multivectors: the input.
            scalars: its scalars.
            attention_mask: a mask of attention along the first axis, and one along the second, each as in
                :func:`flashcliff.compat.gatr.attention_options`, or ``None``.
            join_reference: as for :class:`GATr`. A tensor broadcasts to ``[*batch, items_1, items_2, 1, 16]``; its
                items follow the items of the input even where axes are exchanged or merged, unlike in GATr.
        """
        mv = enter("multivectors", multivectors, self.in_channels).contiguous()
        if mv.dim() < 4:
            raise ValueError(
                "multivectors: expected [*batch, items_1, items_2, channels, 16], "
                f"got {list(multivectors.shape)}"
            )
        masks = (None, None) if attention_mask is None else tuple(attention_mask)
        if len(masks) != 2:
            raise ValueError(f"attention_mask: expected two masks, got {len(masks)}")
        reference = reference_component(join_reference, mv).expand(*mv.shape[1:-1], 1)
        here: Pair = self.linear_in(mv, scalars)
        for at, block in enumerate(self.blocks):
            odd, merge = at % 2 == 1, self.collapse_dims[at % 2]
            seen, seen_s = (_to_sequences(x, odd, merge) for x in _alike(here))
            of_items = _to_sequences(reference[None], odd, merge)
            options = attention_options(masks[(at + 1) % 2], shape=seen.shape[1:-1])
            out = self._run(block, *_apart(seen, seen_s), None, None, of_items[0], **options)
            shape = mv.transpose(-3, -2).shape[1:3] if odd else mv.shape[1:3]
            here = _apart(*(_from_sequences(x, odd, shape if merge else None) for x in _alike(out)))
        out_mv, out_s = leave(self.linear_out(*here))
        return out_mv.contiguous(), out_s

    def _run(self, block: nn.Module, *given: Tensor | None, **options: Any) -> Pair:
        if self.checkpoint_blocks and torch.is_grad_enabled():
            return computed_again(block, *given, **options)
        return block(*given, **options)


def _alike(pair: Pair) -> tuple[Tensor, Tensor | None]:
    """Scalars with a first axis of length 1, as multivectors have one of blades."""
    mv, s = pair
    return mv, None if s is None else s[None]


def _apart(mv: Tensor, s: Tensor | None) -> Pair:
    return mv, None if s is None else s[0]


def _to_sequences(x: Any, swap: bool, merge: bool) -> Any:
    """``[first, *batch, items_1, items_2, channels]`` with the items of attention on the axis before the last."""
    if x is None:
        return None
    x = x.transpose(-3, -2) if swap else x
    return x.flatten(1, 2) if merge else x


def _from_sequences(x: Any, swap: bool, shape: Sequence[int] | None) -> Any:
    """The inverse of :func:`_to_sequences`; ``shape`` is that of the axes that were merged."""
    if x is None:
        return None
    x = x if shape is None else x.unflatten(1, shape)
    return x.transpose(-3, -2) if swap else x


def _two(name: str, given: Sequence[bool]) -> tuple[bool, bool]:
    found = tuple(given)
    if len(found) != 2:
        raise ValueError(f"{name}: expected two flags, got {given!r}")
    return found
