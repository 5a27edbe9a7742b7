"""The blocks of a geometric algebra transformer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import create_selective_checkpoint_contexts

from ..._ops import checks
from .._module import check_features
from . import path
from .described import Calls, Description, Given, Tokens, Variant, composes, computed_again, run
from .gate import GradeDropout
from .geometry import Geometry, GeometryLike, geometry_of
from .heads import CrossAttention, Pair, SelfAttention
from .mlp import GeometricMLP
from .norm import EquiLayerNorm, WithNorms

__all__ = ["Block", "ConditionalBlock", "GeometricMLP", "checkpoint_items"]


_ITEMS = ("items",)
_COMPUTED_ONCE = (
    "mm",
    "addmm",
    "_scaled_dot_product_flash_attention_for_cpu",
    "_scaled_dot_product_flash_attention",
    "_scaled_dot_product_efficient_attention",
    "_scaled_dot_product_cudnn_attention",
    "_flash_attention_forward",
    "_efficient_attention_forward",
    "_cudnn_attention_forward",
)
"""The operators of PyTorch whose results are kept where items are computed again."""


def _kept() -> Any:
    """Contexts of a call and of its repetition, which does not compute dense matrix products and attention again.

    Products of blades apart are computed again: they are added up in place.
    """
    aten = torch.ops.aten
    # PyTorch 2.6 does not have all of them.
    there = [getattr(aten, name) for name in _COMPUTED_ONCE if hasattr(aten, name)]
    return create_selective_checkpoint_contexts([operator.default for operator in there])


@path.stands_for
class Block(WithNorms):
    """Self-attention and an MLP, each after a norm and with a residual.

    Args:
        geometry: an algebra, or a :class:`Geometry`.
        channels: multivector channels.
        scalars: scalar channels.
        attention: arguments of :class:`SelfAttention`.
        mlp_ratio: hidden channels of the MLP for each channel.
        mlp_layers: layers of the MLP, at least 1.
        affine: whether the norms have gains.
        activation: of the MLP's gates.
        scalar_activation: of the MLP's scalars.
        dropout: probability of :class:`GradeDropout`; ``attention`` may have another one.
        checkpoint: parts that are computed again in the backward pass, ``"attention"`` and ``"mlp"``, each with its
            norm; or ``"items"`` alone: the whole block, as a part of one function (see :func:`checkpoint_items`).
        shared_norm: whether both norms are one module ``norm``, as in GATr; otherwise they are ``norm1`` and ``norm2``.

    Example:
        >>> import torch
        >>> from flashcliff import Algebra
        >>> from flashcliff.nn.transformer import Block
        >>> from flashcliff.nn.transformer import join_reference
        >>> x, scalars = torch.randn(16, 2, 10, 4), torch.randn(2, 10, 8)
        >>> layer = Block(Algebra(3, 0, 1), 4, 8, attention={"heads": 2})
        >>> mv, s = layer(x, scalars, reference=join_reference(x))
        >>> mv.shape, s.shape
        (torch.Size([16, 2, 10, 4]), torch.Size([2, 10, 8]))
    """

    norm_names = "norm1", "norm2"

    def __init__(
        self,
        geometry: GeometryLike,
        channels: int,
        scalars: int = 0,
        *,
        attention: Mapping[str, Any] | None = None,
        mlp_ratio: int = 2,
        mlp_layers: int = 2,
        affine: bool = False,
        activation: str = "gelu_tanh",
        scalar_activation: str | None = None,
        dropout: float | None = None,
        checkpoint: Sequence[str] = (),
        shared_norm: bool = False,
    ) -> None:
        super().__init__()
        self.geometry = geometry_of(geometry)
        if not isinstance(checkpoint, Iterable):
            raise TypeError(
                f"checkpoint: expected names as an iterable, such as ('mlp',), got {checkpoint!r}"
            )
        self.checkpoint = tuple(checkpoint)
        if self.checkpoint != _ITEMS and not set(self.checkpoint) <= {"attention", "mlp"}:
            raise ValueError(
                f"checkpoint: expected 'attention' and 'mlp', or 'items', got {checkpoint!r}"
            )

        def norm(_: str) -> EquiLayerNorm:
            return EquiLayerNorm(self.geometry, channels, scalars, affine=affine)

        self.add_norms(norm, shared_norm, affine)
        self.attention = SelfAttention(
            self.geometry,
            channels,
            scalars,
            **{"dropout": dropout, **checks.mapping("attention", attention)},
        )
        self.mlp = mlp_of(
            self.geometry,
            channels,
            scalars,
            mlp_ratio,
            mlp_layers,
            activation,
            scalar_activation,
            dropout,
        )

    def forward(
        self,
        multivectors: Tensor,
        scalars: Tensor | None = None,
        extra_multivectors: Tensor | None = None,
        extra_scalars: Tensor | None = None,
        reference: Tensor | None = None,
        **options: object,
    ) -> Pair:
        """Multivectors ``[blades, *batch, items, channels]`` and scalars ``[*batch, items, scalars]`` after the
        block, in the same shapes.

        ``extra_multivectors`` and ``extra_scalars`` are seen by queries and keys alone; ``reference`` is the reference
        of joins; ``options`` are the options of :func:`attend`.
        """
        given = Given(
            (multivectors, scalars),
            reference,
            (extra_multivectors, extra_scalars),
            options=options,
        )
        return run(self, self.geometry, given)

    def variant(self) -> Variant:
        """The call that the block was made for, without a mask."""
        return self.attention.variant()._replace(has_reference=True)

    def describe(self, network: Description, x: Tokens) -> Tokens:
        """Adds the block to a network."""
        network.reads(self, "checkpoint")
        if self.checkpoint == _ITEMS:
            network.again = True
            network.block()
        else:
            network.without_gradients |= bool(self.checkpoint)
        return self._part("items", super().describe, network, x)

    @property
    def _draws(self) -> bool:
        """Whether a call draws random numbers. States of generators cannot be read within a CUDA graph."""
        return any(
            isinstance(layer, GradeDropout) and layer.training and layer.p > 0
            for layer in self.modules()
        )

    def _attended(self, network: Description, x: Tokens, norm: Any) -> Any:
        return self._part("attention", super()._attended, network, x, norm)

    def _transformed(self, network: Description, x: Tokens, norm: Any) -> Any:
        return self._part("mlp", super()._transformed, network, x, norm)

    def _part(
        self, name: str, function: Callable[..., Any], network: Any, x: Any, *norm: Any
    ) -> Any:
        """A part of the block. In calls of layers it is computed again in the backward pass if ``checkpoint`` has its name."""
        again = name in self.checkpoint and torch.is_grad_enabled()
        if not again or not isinstance(network, Calls):
            return function(network, x, *norm)
        # Kept values serve one backward pass, and gradients of gradients have two.
        keeps = name == "items" and not composes()
        options: dict[str, Any] = {"context_fn": _kept} if keeps else {}
        return computed_again(
            lambda *here: function(network, here, *norm),
            *x,
            preserve_rng_state=self._draws,
            **options,
        )


def checkpoint_items(module: nn.Module, enabled: bool = True) -> int:
    """Sets whether the blocks of a module are computed again in the backward pass, which needs less memory. Gradients have the same bits.

    Blocks stay a part of one function. Where layers are called one by one, linear layers that run as dense matrix products
    and attention by PyTorch's kernels are computed once. Networks of other blocks, such as L-GATr-slim's and conditional ones, get
    their ``checkpoint_blocks`` set.

    Args:
        module: the module, such as a network of :mod:`flashcliff.compat.lgatr`.
        enabled: whether they do.

    Returns:
        The number of blocks that were set. Blocks that compute attention or MLPs again as a whole are left as they are.
    """
    found = [x for x in module.modules() if isinstance(x, Block) and x.checkpoint in ((), _ITEMS)]
    for block in found:
        block.checkpoint = _ITEMS if enabled else ()
    count = len(found)
    for net in module.modules():
        blocks: Any = getattr(net, "blocks", None)
        has_choice = isinstance(blocks, nn.ModuleList) and hasattr(net, "checkpoint_blocks")
        if has_choice and not any(isinstance(block, Block) for block in blocks):
            net.checkpoint_blocks = enabled  # type: ignore[assignment]
            count += len(blocks)
    return count


@path.stands_for
class ConditionalBlock(WithNorms):
    """Self-attention, cross-attention to a condition and an MLP, each after a norm and with a residual.

    Args:
        geometry: an algebra, or a :class:`Geometry`.
        channels: multivector channels.
        scalars: scalar channels.
        other_channels: multivector channels of the condition.
        other_scalars: scalar channels of the condition.
        attention: arguments of :class:`SelfAttention`.
        cross_attention: arguments of :class:`CrossAttention`.
        mlp_ratio, mlp_layers, affine, activation, scalar_activation, dropout: as for :class:`Block`.
        shared_norm: whether all norms are one module ``norm``, as in lgatr 1.4; otherwise there are ``norm1``, ``norm2``
            and ``norm3``, and ``norm_cond`` of the condition.

    Example:
        >>> import torch
        >>> from flashcliff import Algebra
        >>> from flashcliff.nn.transformer import ConditionalBlock
        >>> x, condition = torch.randn(16, 2, 10, 4), torch.randn(16, 2, 6, 3)
        >>> layer = ConditionalBlock(Algebra(1, 3, 0), 4, 8, 3, 5, attention={"heads": 2}, cross_attention={"heads": 2})
        >>> mv, s = layer(x, condition, torch.randn(2, 10, 8), torch.randn(2, 6, 5))
        >>> mv.shape, s.shape
        (torch.Size([16, 2, 10, 4]), torch.Size([2, 10, 8]))
    """

    norm_names = "norm1", "norm2", "norm3", "norm_cond"
    attention_sees = ("options",)

    def __init__(
        self,
        geometry: GeometryLike,
        channels: int,
        scalars: int,
        other_channels: int,
        other_scalars: int,
        *,
        attention: Mapping[str, Any] | None = None,
        cross_attention: Mapping[str, Any] | None = None,
        mlp_ratio: int = 2,
        mlp_layers: int = 2,
        affine: bool = False,
        activation: str = "gelu_tanh",
        scalar_activation: str | None = None,
        dropout: float | None = None,
        shared_norm: bool = False,
    ) -> None:
        super().__init__()
        self.geometry = geometry_of(geometry)

        def norm(name: str) -> EquiLayerNorm:
            sizes = (other_channels, other_scalars) if name == "norm_cond" else (channels, scalars)
            return EquiLayerNorm(self.geometry, *sizes, affine=affine)

        self.add_norms(norm, shared_norm, affine)
        self.attention = SelfAttention(
            self.geometry,
            channels,
            scalars,
            **{"dropout": dropout, **checks.mapping("attention", attention)},
        )
        self.crossattention = CrossAttention(
            self.geometry,
            channels,
            scalars,
            other_channels,
            other_scalars,
            **{"dropout": dropout, **checks.mapping("cross_attention", cross_attention)},
        )
        self.mlp = mlp_of(
            self.geometry,
            channels,
            scalars,
            mlp_ratio,
            mlp_layers,
            activation,
            scalar_activation,
            dropout,
        )

    def forward(
        self,
        multivectors: Tensor,
        other_multivectors: Tensor,
        scalars: Tensor | None = None,
        other_scalars: Tensor | None = None,
        reference: Tensor | None = None,
        options: Mapping[str, Any] | None = None,
        cross_options: Mapping[str, Any] | None = None,
    ) -> Pair:
        """The multivectors ``[blades, *batch, items, channels]`` and scalars ``[*batch, items, scalars]`` after the
        block, in the same shapes; the condition is ``[blades, *batch, others, other_channels]`` and
        ``[*batch, others, other_scalars]``. ``options`` and ``cross_options`` are the options of :func:`attend` for
        self-attention and for cross-attention.
        """
        given = Given(
            (multivectors, scalars),
            reference,
            context=(other_multivectors, other_scalars),
            options=options or {},
            context_options=cross_options or {},
        )
        return run(self, self.geometry, given)

    def variant(self) -> Variant:
        """The call that the block was made for, without masks."""
        context = self.crossattention.variant().context
        return self.attention.variant()._replace(context=context, has_reference=True)

    def describe(self, network: Description, x: Tokens) -> Tokens:
        """Adds the block to a network."""
        network.reads(self, "norm_names")
        first, second, third, of_condition = self.norms()
        x = network.sum(x, self._attended(network, x, first))
        context = network.call(of_condition, network.context())
        x = network.sum(x, self._crossed(network, x, context, second))
        return network.sum(x, self._transformed(network, x, third))


def mlp_sizes(channels: int, ratio: int, layers: int) -> tuple[int, ...]:
    """The channels before and after each layer of an MLP, whose hidden ones are ``ratio`` times the others."""
    return (channels, *[ratio * channels] * (layers - 1), channels)


def mlp_of(
    geometry: Geometry,
    channels: int,
    scalars: int,
    ratio: int,
    layers: int,
    activation: str,
    scalar_activation: str | None,
    dropout: float | None,
) -> GeometricMLP:
    """The MLP of a block."""
    ratio, layers = check_features("mlp_ratio", ratio), check_features("mlp_layers", layers)
    return GeometricMLP(
        geometry,
        mlp_sizes(channels, ratio, layers),
        mlp_sizes(scalars, ratio, layers),
        activation=activation,
        scalar_activation=scalar_activation,
        dropout=dropout,
    )
