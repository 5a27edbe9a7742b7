"""The base of the networks of L-GATr-slim."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from ...._ops import doors
from ....nn.transformer.geometry import check_floating
from ..layers.slim import SlimLinear
from ..layers.slim_version import V2, VectorsScalars, Version
from ..precision import is_naive
from ..precision import naive_amp as naive

__all__ = ["Slim", "check_inputs"]


class Slim(nn.Module):
    """A linear layer, blocks, a linear layer.

    Args:
        blocks: how many blocks.
        make_block: makes one.
        vectors: vector channels of input, output and blocks.
        scalars: scalar channels of the same.
        checkpoint_blocks: whether blocks are computed again in the backward pass.
        version: the version of lgatr.
    """

    naive_amp = False

    def __init__(
        self,
        blocks: int,
        make_block: Callable[[], nn.Module],
        vectors: tuple[int, int, int],
        scalars: tuple[int, int, int],
        checkpoint_blocks: bool,
        version: Version = V2,
    ) -> None:
        super().__init__()
        of_input, of_output, hidden = vectors
        input_s, output_s, hidden_s = scalars
        self.linear_in = SlimLinear(of_input, hidden, input_s, hidden_s, version=version)
        self.blocks = nn.ModuleList(make_block() for _ in range(blocks))
        self.linear_out = SlimLinear(hidden, of_output, hidden_s, output_s, version=version)
        self.channels = of_input, input_s
        self.checkpoint_blocks = checkpoint_blocks
        self.version = version

    def run(
        self,
        vectors: Tensor,
        scalars: Tensor,
        call_block: Callable[[nn.Module, Tensor, Tensor], VectorsScalars],
    ) -> VectorsScalars:
        """Applies the network to vectors ``[*batch, items, channels, 4]``; they are ``[*batch, items, 4, channels]``
        within."""
        check_inputs(("vectors", vectors), ("scalars", scalars), self.channels, self.version)
        with naive(self.naive_amp):
            here: VectorsScalars = self.linear_in(vectors.transpose(-1, -2), scalars)
            for block in self.blocks:
                if self.checkpoint_blocks and torch.is_grad_enabled():
                    # The block is computed again outside of this context.
                    call = functools.partial(_called, is_naive(), call_block)
                    here = checkpoint(call, block, *here, use_reentrant=False)
                else:
                    here = call_block(block, *here)
            out, out_s = self.linear_out(*here)
        return out.transpose(-1, -2), out_s


def _called(
    low: bool, call_block: Callable[..., VectorsScalars], *arguments: Any
) -> VectorsScalars:
    with naive(low):
        return call_block(*arguments)


def check_inputs(
    vectors: tuple[str, Any],
    scalars: tuple[str, Any],
    channels: tuple[int, int],
    version: Version,
) -> None:
    """Checks that tensors are ``[*batch, items, channels, 4]`` and ``[*batch, items, scalars]``."""
    for name, x in (vectors, scalars):
        check_floating(name, x)
    doors.check_open("L-GATr-slim", (vectors[1], scalars[1]), (vectors[0], scalars[0]))
    (name_v, v), (name_s, s) = vectors, scalars
    if v.dim() < 3 or list(v.shape[-2:]) != [channels[0], 4]:
        raise ValueError(f"{name_v}: expected [..., items, {channels[0]}, 4], got {list(v.shape)}")
    expected = [*v.shape[:-2], channels[1]]
    if list(s.shape) != expected:
        raise ValueError(f"{name_s}: expected {expected}, got {list(s.shape)}")
    if s.shape[-1] == 0 and not version.empty_scalars:
        raise ValueError(f"{name_s}: expected at least one channel, got {list(s.shape)}")
