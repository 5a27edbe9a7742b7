"""Blocks of L-GATr-slim, with vectors ``[*batch, items, 4, channels]`` and scalars ``[*batch, items, scalars]``.

Source: arXiv 2512.17011.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from ....nn.transformer import path
from ....nn.transformer.described import Calls, Description, Given, Maybe, Tokens, Variant, run
from ....nn.transformer.norm import WithNorms
from ..options import attention_options, converted
from .slim import SlimMLP, SlimRMSNorm
from .slim_attention import SlimCrossAttention, SlimSelfAttention
from .slim_operators import SLIM
from .slim_version import V2, VectorsScalars, Version, inward, outward

__all__ = ["ConditionalSlimBlock", "SlimBlock", "freeze_unread"]


class SlimCalls(Calls):
    """The calls of layers whose vectors have their components after the items."""

    def __init__(self, owner: Any, given: Given) -> None:
        if given.context[0] is not None:
            given = given._replace(context=outward(given.context))
        options = converted(given.options), converted(given.context_options)
        here = outward(given.here)
        super().__init__(
            owner, given._replace(here=here, options=options[0], context_options=options[1])
        )

    def result(self, x: Any) -> Maybe:
        """The result as a network has it."""
        return inward(x)


class _Block(WithNorms):
    geometry = SLIM
    calls_of_layers = SlimCalls
    attention_sees = ("options",)
    mlp_sees = ()

    def _add_norms(self, v_channels: int, s_channels: int, affine: bool, version: Version) -> None:
        affine = affine and version.affine

        def norm(_: str) -> SlimRMSNorm:
            return SlimRMSNorm(v_channels, s_channels, elementwise_affine=affine)

        self.add_norms(norm, version.shared_norm, affine)


@path.stands_for
class SlimBlock(_Block):
    """Self-attention and an MLP, each after a norm and with a residual.

    Args:
        v_channels: vector channels.
        s_channels: scalar channels.
        num_heads: heads.
        nonlinearity: of the gates of scalars in the MLP.
        nonlinearity_v: of the gates of vectors.
        mlp_ratio: hidden channels of the MLP for each channel.
        attn_ratio: channels of all heads together, for each channel.
        num_layers_mlp: layers of the MLP, at least 2.
        dropout_prob: probability of dropout.
        norm_elementwise_affine: whether the norms have gains.
    """

    norm_names = "norm1", "norm2"

    def __init__(
        self,
        v_channels: int,
        s_channels: int,
        num_heads: int,
        nonlinearity: str = "gelu",
        nonlinearity_v: str | None = "sigmoid",
        mlp_ratio: int = 2,
        attn_ratio: int = 1,
        num_layers_mlp: int = 2,
        dropout_prob: float | None = None,
        norm_elementwise_affine: bool = True,
        *,
        version: Version = V2,
    ) -> None:
        super().__init__()
        self._add_norms(v_channels, s_channels, norm_elementwise_affine, version)
        self.attention = SlimSelfAttention(
            v_channels, s_channels, num_heads, attn_ratio, dropout_prob, version=version
        )
        options = nonlinearity, nonlinearity_v, mlp_ratio, num_layers_mlp, dropout_prob
        self.mlp = SlimMLP(v_channels, s_channels, *options, version=version)

    def forward(self, vectors: Tensor, scalars: Tensor, **attn_kwargs: Any) -> VectorsScalars:
        """The vectors ``[*batch, items, 4, v_channels]`` and scalars ``[*batch, items, s_channels]`` after the
        block, in the same shapes; for ``attn_kwargs`` see :func:`flashcliff.compat.lgatr.attention_options`.
        """
        given = Given(inward((vectors, scalars)), options=attention_options(attn_kwargs))
        return outward(run(self, SLIM, given))

    def variant(self) -> Variant:
        """The call that the block was made for, without a mask."""
        return Variant(self.attention.linear_in.in_channels)


@path.stands_for
class ConditionalSlimBlock(_Block):
    """Self-attention, cross-attention to a condition and an MLP, each after a norm and with a residual.

    Args:
        v_channels: vector channels.
        v_channels_cond: vector channels of the condition.
        s_channels: scalar channels.
        s_channels_cond: scalar channels of the condition.
        num_heads, nonlinearity, nonlinearity_v, mlp_ratio, attn_ratio, num_layers_mlp, dropout_prob,
            norm_elementwise_affine: as for :class:`SlimBlock`.
    """

    norm_names = "norm1", "norm2", "norm3"

    def __init__(
        self,
        v_channels: int,
        v_channels_cond: int,
        s_channels: int,
        s_channels_cond: int,
        num_heads: int,
        nonlinearity: str = "gelu",
        nonlinearity_v: str | None = "sigmoid",
        mlp_ratio: int = 2,
        attn_ratio: int = 1,
        num_layers_mlp: int = 2,
        dropout_prob: float | None = None,
        norm_elementwise_affine: bool = True,
        *,
        version: Version = V2,
    ) -> None:
        super().__init__()
        self._add_norms(v_channels, s_channels, norm_elementwise_affine, version)
        self.selfattention = SlimSelfAttention(
            v_channels, s_channels, num_heads, attn_ratio, dropout_prob, version=version
        )
        sizes = v_channels, v_channels_cond, s_channels, s_channels_cond
        self.crossattention = SlimCrossAttention(
            *sizes, num_heads, attn_ratio, dropout_prob, version=version
        )
        options = nonlinearity, nonlinearity_v, mlp_ratio, num_layers_mlp, dropout_prob
        self.mlp = SlimMLP(v_channels, s_channels, *options, version=version)

    def forward(
        self,
        vectors: Tensor,
        vectors_cond: Tensor,
        scalars: Tensor,
        scalars_cond: Tensor,
        attn_kwargs: Mapping[str, Any] | None = None,
        crossattn_kwargs: Mapping[str, Any] | None = None,
    ) -> VectorsScalars:
        """The vectors ``[*batch, items, 4, v_channels]`` and scalars ``[*batch, items, s_channels]`` after the
        block, in the same shapes. The condition is not normalised.

        ``attn_kwargs`` are of self-attention, ``crossattn_kwargs`` of cross-attention, see
        :func:`flashcliff.compat.lgatr.attention_options`.
        """
        given = Given(
            inward((vectors, scalars)),
            context=inward((vectors_cond, scalars_cond)),
            options=attention_options(attn_kwargs or {}),
            context_options=attention_options(crossattn_kwargs or {}, cross=True),
        )
        return outward(run(self, SLIM, given))

    def variant(self) -> Variant:
        """The call that the block was made for, without masks."""
        context = self.crossattention.linear_in_kv.in_channels
        return Variant(self.selfattention.linear_in.in_channels, context=context)

    def describe(self, network: Description, x: Tokens) -> Tokens:
        """Adds the block to a network."""
        network.reads(self, "norm_names")
        first, second, third = self.norms()
        normed = network.call(first, x)
        x = network.sum(x, network.call(self.selfattention, normed, sees=self.attention_sees))
        x = network.sum(x, self._crossed(network, x, network.context(), second))
        return network.sum(x, self._transformed(network, x, third))


def freeze_unread(norm: SlimRMSNorm, mlp: SlimMLP, vectors: int, scalars: int) -> None:
    """Freezes the parameters of a last MLP that no output reads, because there are no vectors or no scalars.

    Data-parallel training would wait for their gradients.
    """
    unread = [("weight_v", vectors), ("linear_s.", scalars)]
    for name, parameter in mlp.named_parameters():
        if any(part in name and not channels for part, channels in unread):
            parameter.requires_grad_(False)
    for weight, channels in ((norm.weight_v, vectors), (norm.weight_s, scalars)):
        if weight is not None and not channels:
            weight.requires_grad_(False)
