"""The base of the networks of L-GATr-slim."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from ...._ops import checks, doors
from ....nn.transformer.described import (
    Description,
    Given,
    Networked,
    Tokens,
    Variant,
    computed_again,
    run_chain,
)
from ....nn.transformer.geometry import check_floating
from ..layers.slim import SlimLinear
from ..layers.slim_operators import SLIM
from ..layers.slim_version import V2, VectorsScalars, Version, inward, outward
from ..options import attention_options, converted
from ..precision import is_naive
from ..precision import naive_amp as naive

__all__ = ["Slim"]


class Slim(Networked):
    """A linear layer, blocks, a linear layer.

    Args:
        blocks: how many blocks.
        make_block: makes one.
        vectors: vector channels of input, output and blocks.
        scalars: scalar channels of the same.
        checkpoint_blocks: whether blocks are computed again in the backward pass.
        condition: vector and scalar channels of the condition, if blocks have one.
    """

    naive_amp = False
    geometry = SLIM
    version = V2
    """The version of lgatr."""

    def __init__(
        self,
        blocks: int,
        make_block: Callable[[], nn.Module],
        vectors: tuple[int, int, int],
        scalars: tuple[int, int, int],
        checkpoint_blocks: bool,
        condition: tuple[int, int] | None = None,
    ) -> None:
        super().__init__()
        version = self.version
        of_input, of_output, hidden = vectors
        input_s, output_s, hidden_s = scalars
        self.linear_in = SlimLinear(of_input, hidden, input_s, hidden_s, version=version)
        self.blocks = nn.ModuleList(make_block() for _ in range(checks.count("num_blocks", blocks)))
        self.linear_out = SlimLinear(hidden, of_output, hidden_s, output_s, version=version)
        self.channels = of_input, input_s
        self.condition_channels = condition
        self.checkpoint_blocks = checks.flag("checkpoint_blocks", checkpoint_blocks)

    def run(
        self,
        here: VectorsScalars,
        options: Mapping[str, Any],
        condition: Mapping[str, Tensor] | None = None,
        condition_options: Mapping[str, Any] | None = None,
    ) -> VectorsScalars:
        """Applies the network to vectors ``[*batch, items, channels, 4]`` and scalars ``[*batch, items, scalars]``, in blocks with a
        condition to two more, by their names. For the options of attention, and of cross-attention, see
        :func:`flashcliff.compat.lgatr.attention_options`.
        """
        if condition is not None and self.condition_channels is not None:
            others = tuple(condition.items())
            check_inputs(others[0], others[1], self.condition_channels, self.version)
        check_inputs(("vectors", here[0]), ("scalars", here[1]), self.channels, self.version)
        given = Given(
            (here[0].movedim(-1, 0), here[1]),
            options=attention_options(options),
            context_options=attention_options(condition_options or {}, cross=True),
            keeps_float32=not (self.naive_amp or is_naive()),
            again=self.checkpoint_blocks and torch.is_grad_enabled(),
        )
        if condition is not None:
            given = given._replace(context=(others[0][1].movedim(-1, 0), others[1][1]))
        with naive(self.naive_amp):
            pair = run_chain(self, self._parts(), self.geometry, given, self._called)
        vectors, scalars = outward(pair)
        return vectors.transpose(-1, -2), scalars

    def variant(self) -> Variant:
        """The call that the network was made for, without masks."""
        return Variant(self.channels, context=self.condition_channels)

    def describe(self, network: Description, x: Tokens) -> Tokens:
        """Adds the network to another one."""
        return network.calls(self._parts(), x)

    def _parts(self) -> list[nn.Module]:
        """The modules that the network calls one after another."""
        return [self.linear_in, *self.blocks, self.linear_out]

    def _called(self, part: nn.Module, given: Given) -> tuple[Tensor, Tensor | None]:
        """The result of a part by its call."""
        here = outward(given.here)
        if part is self.linear_in or part is self.linear_out:
            return inward(part(*here))
        if given.context[0] is None:
            call = functools.partial(part, **converted(given.options))
            tensors = here
        else:
            both = converted(given.options), converted(given.context_options)
            call = functools.partial(part, attn_kwargs=both[0], crossattn_kwargs=both[1])
            other = outward(given.context)
            tensors = here[0], other[0], here[1], other[1]  # type: ignore[assignment]
        if self.checkpoint_blocks and torch.is_grad_enabled():
            # The block is computed again outside of this context.
            again = functools.partial(_in_context, is_naive(), call)
            return inward(computed_again(again, *tensors))
        return inward(call(*tensors))


def _in_context(low: bool, call: Callable[..., VectorsScalars], *tensors: Tensor) -> VectorsScalars:
    with naive(low):
        return call(*tensors)


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
