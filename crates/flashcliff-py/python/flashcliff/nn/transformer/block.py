"""The blocks of a geometric algebra transformer."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint as computed_again
from torch.utils.checkpoint import create_selective_checkpoint_contexts

from . import packed, path
from .bilinear import JoinFactors
from .gate import GradeDropout
from .geometry import Geometry, GeometryLike, geometry_of
from .heads import CrossAttention, Pair, SelfAttention
from .linear import EquiLinear, packed_ahead
from .mlp import GeometricMLP
from .norm import EquiLayerNorm, WithNorms, norm_of_sum
from .whole import attempt
from .whole.choice import why_layers

__all__ = ["Block", "ConditionalBlock", "GeometricMLP", "checkpoint_items"]


T = TypeVar("T")

_ITEMS = ("items",)


def _kept() -> Any:
    """Contexts of a call and of its repetition, which does not compute dense matrix products and attention again.

    Products of blades apart are computed again: they are added up in place.
    """
    aten = torch.ops.aten
    return create_selective_checkpoint_contexts(
        [
            aten.mm.default,
            aten.addmm.default,
            aten._scaled_dot_product_flash_attention_for_cpu.default,
            aten._scaled_dot_product_flash_attention.default,
            aten._scaled_dot_product_efficient_attention.default,
            aten._scaled_dot_product_cudnn_attention.default,
            aten._flash_attention_forward.default,
            aten._efficient_attention_forward.default,
            aten._cudnn_attention_forward.default,
        ]
    )


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
        dropout: probability of :class:`GradeDropout`.
        checkpoint: parts that are computed again in the backward pass, ``"attention"`` and ``"mlp"``, each with its
            norm; or ``"items"`` alone: all but PyTorch's attention and linear layers that run as dense matrix products.
        shared_norm: whether both norms are one module ``norm``, as in GATr; otherwise they are ``norm1`` and ``norm2``.
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
        self.checkpoint = tuple(checkpoint)
        if self.checkpoint != _ITEMS and not set(self.checkpoint) <= {"attention", "mlp"}:
            raise ValueError(
                f"checkpoint: expected 'attention' and 'mlp', or 'items', got {checkpoint!r}"
            )

        def norm(_: str) -> EquiLayerNorm:
            return EquiLayerNorm(self.geometry, channels, scalars, affine=affine)

        self.add_norms(norm, shared_norm, affine)
        self.attention = SelfAttention(
            self.geometry, channels, scalars, dropout=dropout, **(attention or {})
        )
        self.mlp = _mlp(
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
        here: Pair = multivectors, scalars
        extra = extra_multivectors, extra_scalars
        if self.checkpoint in ((), _ITEMS):
            joins = None if reference is None else JoinFactors(reference)
            return residual(*self.chained(here, None, extra, joins, **options))
        here = residual(here, self._part("attention", self._attended, *here, *extra, **options))
        return residual(here, self._part("mlp", self._transformed, *here, reference))

    @property
    def chains(self) -> bool:
        """Whether :meth:`chained` stands for a call: nothing follows or replaces it, and no part is computed again as a
        whole."""
        return self.checkpoint in ((), _ITEMS) and path.of_call(self, Block) is None

    def chained(
        self,
        here: Pair,
        pending: Pair | None,
        extra: tuple[Tensor | None, Tensor | None],
        joins: JoinFactors | None,
        **options: Any,
    ) -> tuple[Pair, Pair]:
        """The block of a sum that has not been formed, so that its norm forms it on the way.

        Args:
            here: multivectors and scalars.
            pending: what is to be added to them, if anything is.
            extra, options: as for a call.
            joins: the factors of joins by the reference of a call.

        Returns:
            Two pairs, whose sum is the output.
        """
        return self._part("items", self._chained, here, pending, extra, joins, **options)

    @property
    def _draws(self) -> bool:
        """Whether a call draws random numbers. States of generators cannot be read within a CUDA graph."""
        return any(
            isinstance(layer, GradeDropout) and layer.training and layer.p > 0
            for layer in self.modules()
        )

    def _chained(
        self,
        here: Pair,
        pending: Pair | None,
        extra: tuple[Tensor | None, Tensor | None],
        joins: JoinFactors | None,
        **options: Any,
    ) -> tuple[Pair, Pair]:
        def composed(total: Pair) -> tuple[Pair, Pair]:
            return self._by_layers(total, None, (None, None), joins, **options)

        found = attempt(self, here, pending, extra, joins, composed, options)
        return self._by_layers(here, pending, extra, joins, **options) if found is None else found

    def _by_layers(
        self,
        here: Pair,
        pending: Pair | None,
        extra: tuple[Tensor | None, Tensor | None],
        joins: JoinFactors | None,
        **options: Any,
    ) -> tuple[Pair, Pair]:
        reference = None if joins is None else joins.reference
        with self._packed(here[0], extra != (None, None)):
            first, second = self.norms()
            if pending is None:
                normed = first(*here)
            else:
                here, normed = norm_of_sum(first, here, pending)
            attended = self.attention(*normed, *extra, **options)
            here, normed = norm_of_sum(second, here, attended)
            return here, self.mlp(*normed, reference)

    def _packed(self, multivectors: Tensor, extra: bool) -> contextlib.AbstractContextManager[None]:
        """A context in which the layers' parameters are packed, if the layers run as dense products."""
        attention = self.attention
        if type(attention) is not SelfAttention or type(attention.out_linear) is not EquiLinear:
            return contextlib.nullcontext()
        if not packed.serves((attention.out_linear._layer,), multivectors):
            return contextlib.nullcontext()
        if why_layers(self) is not None:
            # Each layer packs its own parameters, when it is called.
            return contextlib.nullcontext()
        groups = [*self.attention.groups(extra), *self.mlp.groups()]
        return packed_ahead(groups, multivectors)

    def _attended(
        self, multivectors: Tensor, scalars: Tensor | None, *extra: Tensor | None, **options: Any
    ) -> Pair:
        out: Pair = self.attention(*self.norms()[0](multivectors, scalars), *extra, **options)
        return out

    def _transformed(
        self, multivectors: Tensor, scalars: Tensor | None, reference: Tensor | None
    ) -> Pair:
        out: Pair = self.mlp(*self.norms()[1](multivectors, scalars), reference)
        return out

    def _part(self, name: str, function: Callable[..., T], *given: Any, **options: Any) -> T:
        """A call that is computed again in the backward pass if ``checkpoint`` has its name."""
        if name not in self.checkpoint or not torch.is_grad_enabled():
            return function(*given, **options)
        if name == "items":
            options["context_fn"] = _kept
        out: T = computed_again(
            function, *given, use_reentrant=False, preserve_rng_state=self._draws, **options
        )
        return out


def checkpoint_items(module: nn.Module, enabled: bool = True) -> int:
    """Sets whether the blocks of a module compute again in the backward pass what lies between linear layers and
    attention: norms, products, gates and features. Linear layers that run as dense matrix products are not computed again,
    nor is attention by PyTorch's kernels; block-sparse products and attention by our own kernels are.

    Args:
        module: the module, such as a network of :mod:`flashcliff.compat.lgatr`.
        enabled: whether they do.

    Returns:
        The number of blocks that were set. Blocks that compute attention or MLPs again as a whole are left as they are.
    """
    found = [x for x in module.modules() if isinstance(x, Block) and x.checkpoint in ((), _ITEMS)]
    for block in found:
        block.checkpoint = _ITEMS if enabled else ()
    return len(found)


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
    """

    norm_names = "norm1", "norm2", "norm3", "norm_cond"

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
            self.geometry, channels, scalars, dropout=dropout, **(attention or {})
        )
        self.crossattention = CrossAttention(
            self.geometry,
            channels,
            scalars,
            other_channels,
            other_scalars,
            dropout=dropout,
            **(cross_attention or {}),
        )
        self.mlp = _mlp(
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
        """Applies the block. ``options`` and ``cross_options`` are those of :func:`attend`."""
        here: Pair = multivectors, scalars
        first, second, third, of_condition = self.norms()
        attended = self.attention(*first(*here), **(options or {}))
        here, (mv, s) = norm_of_sum(second, here, attended)
        other_mv, other_s = of_condition(other_multivectors, other_scalars)
        attended = self.crossattention(mv, other_mv, s, other_s, **(cross_options or {}))
        here, normed = norm_of_sum(third, here, attended)
        return residual(here, self.mlp(*normed, reference))


def mlp_sizes(channels: int, ratio: int, layers: int) -> tuple[int, ...]:
    """The channels before and after each layer of an MLP, whose hidden ones are ``ratio`` times the others."""
    return (channels, *[ratio * channels] * (layers - 1), channels)


def _mlp(
    geometry: Geometry,
    channels: int,
    scalars: int,
    ratio: int,
    layers: int,
    activation: str,
    scalar_activation: str | None,
    dropout: float | None,
) -> GeometricMLP:
    if layers < 1:
        raise ValueError(f"mlp_layers: expected at least 1, got {layers}")

    return GeometricMLP(
        geometry,
        mlp_sizes(channels, ratio, layers),
        mlp_sizes(scalars, ratio, layers),
        activation=activation,
        scalar_activation=scalar_activation,
        dropout=dropout,
    )


def residual(before: Pair, after: Pair) -> Pair:
    """The sum of two pairs, of which either may be without scalars."""
    s = before[1]
    if s is None:
        s = after[1]
    elif after[1] is not None:
        s = s + after[1]
    return before[0] + after[0], s
