"""Whole geometric algebra transformers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from ..._ops import checks, doors
from .._module import check_count
from .block import Block
from .described import Description, Given, Networked, Tokens, Variant, computed_again, run_chain
from .geometry import GeometryLike, check_multivectors, geometry_of, indices, rows_by
from .heads import Pair
from .linear import EquiLinear
from .means import means_of_sequences
from .ragged import Sequences, as_sequences

__all__ = ["GATransformer", "join_reference"]


def join_reference(multivectors: Tensor, cu_seqlens: Tensor | Sequences | None = None) -> Tensor:
    """The reference of the join: the mean over items and channels of the component at the product of the vectors that
    are not null.

    Every item counts, as in GATr: also those that a mask of attention hides. Where a batch has padding, ``cu_seqlens``
    say which items are there, or a network is given a ``reference`` of these alone, such as
    ``join_reference(multivectors[:, :1, :items])`` of a set that has fewer items than others.

    Args:
        multivectors: the network's input ``[blades, batch, *items, channels]``, or ``[blades, items, channels]`` with
            ``cu_seqlens``.
        cu_seqlens: boundaries of sequences among the items; each sequence then has its own mean.

    Returns:
        ``[batch, 1, ..., 1]``, or with ``cu_seqlens`` ``[items, 1]``. The mean of no items is 0.

    Source: GATr (arXiv 2305.18415), whose reference is the mean over all items of a flat batch.
    """
    component = multivectors[-2]
    if cu_seqlens is None:
        if component.dim() < 2:
            raise ValueError(
                f"multivectors: expected [blades, batch, *items, channels], got {list(multivectors.shape)}"
            )
        axes = tuple(range(1, component.dim()))
        return component.sum(axes, keepdim=True) if 0 in component.shape else component.mean(axes, keepdim=True)
    each = component.mean(-1)
    sequences = as_sequences("cu_seqlens", cu_seqlens).check(each.shape[-1])
    return means_of_sequences(each, sequences).unsqueeze(-1)


class GATransformer(Networked):
    """A geometric algebra transformer: a linear layer, blocks, a linear layer.

    Over Cl(3,0,1) it is GATr, over Cl(1,3) L-GATr, over Cl(3,0) and Cl(4,1) like E-GATr and C-GATr
    (:func:`geometry_of` says how they differ).

    Shapes:
        - multivectors ``[blades, batch, items, in_channels]`` to ``[blades, batch, items, out_channels]``
        - scalars ``[batch, items, in_scalars]`` to ``[batch, items, out_scalars]``
        - ragged batches: ``[blades, items, in_channels]`` with ``cu_seqlens``

    Args:
        geometry: an algebra, or a :class:`Geometry`.
        in_channels: multivector channels of the input.
        out_channels: multivector channels of the output.
        hidden_channels: multivector channels of the blocks.
        in_scalars: scalar channels of the input; may be 0.
        out_scalars: scalar channels of the output; may be 0.
        hidden_scalars: scalar channels of the blocks; may be 0.
        blocks: how many blocks.
        attention: arguments of :class:`SelfAttention`, such as ``{"heads": 8}``.
        reinsert_channels: input channels that queries and keys of every block see.
        reinsert_scalars: input scalars that they see; none where the blocks have no scalars.
        checkpoint_blocks: whether blocks are computed again in the backward pass, which needs less memory.
        mlp_ratio, mlp_layers, affine, activation, scalar_activation, dropout, shared_norm: as for :class:`Block`.

    >>> import torch, flashcliff
    >>> net = GATransformer(flashcliff.Algebra(3, 0, 1), 1, 1, 8, hidden_scalars=16, blocks=2)
    >>> mv, scalars = net(torch.randn(16, 2, 5, 1))
    >>> mv.shape, scalars
    (torch.Size([16, 2, 5, 1]), None)
    """

    def __init__(
        self,
        geometry: GeometryLike,
        in_channels: int,
        out_channels: int,
        hidden_channels: int,
        in_scalars: int = 0,
        out_scalars: int = 0,
        hidden_scalars: int = 0,
        *,
        blocks: int = 10,
        attention: Mapping[str, Any] | None = None,
        reinsert_channels: Sequence[int] = (),
        reinsert_scalars: Sequence[int] = (),
        mlp_ratio: int = 2,
        mlp_layers: int = 2,
        affine: bool = False,
        activation: str = "gelu_tanh",
        scalar_activation: str | None = None,
        dropout: float | None = None,
        checkpoint_blocks: bool = False,
        shared_norm: bool = False,
    ) -> None:
        super().__init__()
        self.geometry = geometry_of(geometry)
        self.reinsert_channels = indices_of("reinsert_channels", reinsert_channels, in_channels)
        self.reinsert_scalars = reinserted_scalars(
            "reinsert_scalars", reinsert_scalars, in_scalars, hidden_scalars
        )
        self.checkpoint_blocks = checks.flag("checkpoint_blocks", checkpoint_blocks)
        # Known here, since wrappers of the first layer have no such attribute.
        self.in_channels = in_channels
        self.linear_in = EquiLinear(
            self.geometry, in_channels, hidden_channels, in_scalars, hidden_scalars
        )
        attention = {
            **checks.mapping("attention", attention),
            "extra_channels": len(self.reinsert_channels),
            "extra_scalars": len(self.reinsert_scalars),
        }
        self.blocks = nn.ModuleList(
            Block(
                self.geometry,
                hidden_channels,
                hidden_scalars,
                attention=attention,
                mlp_ratio=mlp_ratio,
                mlp_layers=mlp_layers,
                affine=affine,
                activation=activation,
                scalar_activation=scalar_activation,
                dropout=dropout,
                shared_norm=shared_norm,
            )
            for _ in range(check_count("blocks", blocks))
        )
        self.linear_out = EquiLinear(
            self.geometry, hidden_channels, out_channels, hidden_scalars, out_scalars
        )

    def forward(
        self,
        multivectors: Tensor,
        scalars: Tensor | None = None,
        *,
        reference: Tensor | None = None,
        **options: Any,
    ) -> Pair:
        """From ``[blades, batch, items, in_channels]`` and ``[batch, items, in_scalars]`` to ``out_channels`` and
        ``out_scalars``.

        Args:
            multivectors: the input.
            scalars: the scalar input, or ``None`` for none.
            reference: that of :func:`equi_join`; :func:`join_reference` of the input by default, in which padded items
                count.
            options: the options of :func:`attend`: ``mask``, ``is_causal``, ``cu_seqlens``.
        """
        check_multivectors(
            "multivectors", multivectors, self.geometry.algebra, self.in_channels
        )
        doors.check_open("GATransformer", (multivectors, scalars), ("multivectors", "scalars"))
        if options.get("cu_seqlens") is not None:
            if options.get("cu_seqlens_key") is options["cu_seqlens"]:
                del options["cu_seqlens_key"]
            # All blocks share them, so they are read once.
            options["cu_seqlens"] = as_sequences("cu_seqlens", options["cu_seqlens"])
        if self.geometry.join and reference is None:
            reference = join_reference(multivectors, options.get("cu_seqlens"))
        extra = None
        if self.reinsert_channels:
            extra = _chosen(multivectors, self.reinsert_channels)
        extra_s = None
        if self.reinsert_scalars:
            if scalars is None:
                raise ValueError(
                    "scalars: expected a tensor, because scalars are reinserted, got None"
                )
            extra_s = _chosen(scalars, self.reinsert_scalars)
        again = self.checkpoint_blocks and torch.is_grad_enabled()
        seen = extra, extra_s
        given = Given((multivectors, scalars), reference, seen, options=options, again=again)
        return run_chain(self, self._parts(), self.geometry, given, self._called)

    def _parts(self) -> list[nn.Module]:
        """The modules that the network calls one after another."""
        return [self.linear_in, *self.blocks, self.linear_out]

    def variant(self) -> Variant:
        """The call that the network was made for, without a mask."""
        extra = len(self.reinsert_channels), len(self.reinsert_scalars)
        channels = self.linear_in.in_channels, self.linear_in.in_scalars
        return Variant(channels, extra if any(extra) else None, has_reference=True)

    def describe(self, network: Description, x: Tokens) -> Tokens:
        """Adds the network to another one."""
        return network.calls(self._parts(), x)

    def _called(self, part: nn.Module, given: Given) -> Pair:
        """The result of a part by its call."""
        if part is self.linear_in or part is self.linear_out:
            return part(*given.here)  # type: ignore[no-any-return]
        if self.checkpoint_blocks and torch.is_grad_enabled():
            arguments = *given.here, *given.extra, given.reference
            return computed_again(part, *arguments, **given.options)  # type: ignore[no-any-return]
        return part(*given.here, *given.extra, given.reference, **given.options)  # type: ignore[no-any-return]


def indices_of(name: str, given: Iterable[int] | None, count: int) -> tuple[int, ...]:
    """Indices of so many channels; negative ones count from the end.

    Raises:
        ValueError: an index is out of range.
    """
    found = checks.integers(name, () if given is None else given)
    if not all(-count <= index < count for index in found):
        raise ValueError(f"{name}: expected indices below {count}, got {found}")
    return found


def reinserted_scalars(
    name: str, given: Iterable[int] | None, inputs: int, hidden: int
) -> tuple[int, ...]:
    """Indices of input scalars that queries and keys of blocks with so many scalars see.

    Raises:
        ValueError: an index is out of range, or the blocks have no scalars, to which these would be added.
    """
    found = indices_of(name, given, inputs)
    if found and not hidden:
        raise ValueError(f"{name}: expected none where the blocks have no scalars, got {found}")
    return found


def _chosen(x: Tensor, channels: tuple[int, ...]) -> Tensor:
    # A list as an index would be copied to the device in each call, which no CUDA graph can capture.
    of_x = tuple(channel % x.shape[-1] for channel in channels)
    if len(set(of_x)) == len(of_x):
        return x.index_select(-1, indices(of_x, x))
    return rows_by(x.movedim(-1, 0), of_x).movedim(0, -1)
