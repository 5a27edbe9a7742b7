"""Features of multivectors and scalars side by side, for one dot product."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from . import packed
from .geometry import Geometry, constant, indices
from .norm import (
    EPS,
    Norms,
    equi_layer_norm,
    gradient,
    normalised,
    scalar_gradient,
    scalar_layer_norm,
    scalar_normalised,
)

__all__ = ["joined_features", "merged_heads", "normalised_features"]


def joined_features(
    parts: Sequence[Tensor], scalars: Tensor | None, blades: tuple[int, ...] | None = None
) -> Tensor:
    """Features ``[*batch, heads, items, features]``, a feature's channels side by side.

    Args:
        parts: features of multivectors ``[features, *batch, items, channels, heads]``.
        scalars: ``[*batch, items, heads, scalars]``, or ``None``.
        blades: those of the first part that are taken; all by default.
    """
    if packed.is_plain(parts[0]):
        given = parts if scalars is None else (*parts, scalars)
        out: Tensor = _Joined.apply(len(parts), blades, *given)
        return out
    first, *others = parts
    if blades is not None:
        first = first.index_select(0, indices(blades, first))
    # Heads come first, and then go before the items.
    moved = [part.movedim(-1, 1).movedim(0, -2).flatten(-2) for part in (first, *others)]
    moved = [part.movedim(0, -3) for part in moved]
    if scalars is not None:
        moved.append(scalars.movedim(-2, -3))
    return moved[0] if len(moved) == 1 else torch.cat(moved, dim=-1)


class _Joined(torch.autograd.Function):
    """The features, read from where they are by one kernel; their gradients are views of the result's."""

    @staticmethod
    def forward(ctx: Any, parts: int, blades: tuple[int, ...] | None, *given: Tensor) -> Tensor:
        ctx.parts, ctx.blades = parts, blades
        ctx.shapes = [part.shape for part in given]
        pieces: list[Tensor] = []
        for at, part in enumerate(given[:parts]):
            # [features, rows, heads, channels]
            each = part.flatten(1, -3).transpose(-1, -2).unbind(0)
            pieces += each if at or blades is None else [each[blade] for blade in blades]
        pieces += [scalars.flatten(0, -3) for scalars in given[parts:]]
        # With three axes. Of four whose heads are the fastest, `cat` takes one kernel each, and the result has the
        # heads fastest too, which fused attention does not take.
        return torch.cat(pieces, -1).unflatten(0, given[0].shape[1:-2]).movedim(-2, -3)

    @staticmethod
    def backward(ctx: Any, joined: Tensor) -> Any:
        found, at = [], 0
        for number, shape in enumerate(ctx.shapes):
            if number >= ctx.parts:
                found.append(joined[..., at:].movedim(-3, -2))
                break
            chosen = None if number else ctx.blades
            features, channels = len(chosen) if chosen else shape[0], shape[-2]
            part = joined[..., at : at + features * channels].unflatten(-1, (features, channels))
            part = part.movedim(-2, 0).movedim(-3, -1)
            if chosen:
                part = part.new_zeros(shape).index_copy(0, indices(chosen, part), part)
            found.append(part)
            at += features * channels
        return None, None, *found


def normalised_features(
    multivectors: Tensor, scalars: Tensor | None, geometry: Geometry, signs: tuple[float, ...]
) -> tuple[Tensor, ...]:
    """Features ``[*batch, heads, items, features]`` of parts such as queries, keys and values, normalised by head.

    Args:
        multivectors: ``[blades, *batch, items, parts, channels, heads]``.
        scalars: ``[*batch, items, parts, scalars, heads]``, or ``None``.
        signs: factors of the blades of the first part.
    """
    given = [multivectors.flatten(1, -4)] + ([] if scalars is None else [scalars.flatten(0, -4)])
    parts = _Normalised.apply(geometry, signs, *given)
    return tuple(part.unflatten(0, multivectors.shape[1:-3]).movedim(-2, -3) for part in parts)


class _Normalised(torch.autograd.Function):
    """Norms that write the features of all parts, ``[rows, heads, features]`` each, to where attention reads them."""

    @staticmethod
    def forward(
        ctx: Any, geometry: Geometry, signs: tuple[float, ...], x: Tensor, *scalars: Tensor
    ) -> tuple[Tensor, ...]:
        blades, rows, parts, channels, heads = x.shape
        width = blades * channels + sum(s.shape[-2] for s in scalars)
        out = x.new_empty(parts, rows, heads, width)
        to_x, to_scalars = _parted(out, blades, channels)
        _, norms = normalised(x, geometry, EPS, -2, to_x)
        saved = [x, *norms]
        for s in scalars:
            _, *moments = scalar_normalised(s, -2, to_scalars)
            saved += [s, *moments]
        _flip(to_x, signs)
        ctx.geometry, ctx.signs = geometry, signs
        ctx.save_for_backward(*saved)
        return out.unbind(0)

    @staticmethod
    def backward(ctx: Any, *found: Tensor) -> Any:
        x, mean, grades, *of_scalars = ctx.saved_tensors
        if torch.is_grad_enabled():
            # Operations that have derivatives.
            given = [x, *of_scalars[:1]]
            parts = _composed(ctx.geometry, ctx.signs, *given)
            wanted = [t for t in given if t.requires_grad]
            made = iter(torch.autograd.grad(parts, wanted, found, create_graph=True))
            return None, None, *(next(made) if t.requires_grad else None for t in given)
        g = torch.stack(found)
        of_x, of_s = _parted(g, x.shape[0], x.shape[-2])
        _flip(of_x, ctx.signs)
        blades, rows, *of_blade = x.shape
        sizes = [part.numel() // max(rows, 1) for part in (x, *of_scalars[:1])]
        # Side by side, as the linear layer before reads them.
        to_x, *to_s = x.new_empty(rows, sum(sizes)).split(sizes, 1)
        to_x = to_x.unflatten(1, (blades, *of_blade)).transpose(0, 1)
        gradient(x, of_x, ctx.geometry, Norms(mean, grades), EPS, -2, to_x)
        if of_scalars:
            s, mean, scale = of_scalars
            to_s = [to_s[0].unflatten(1, s.shape[1:])]
            scalar_gradient(s, of_s, mean, scale, -2, to_s[0])
        return None, None, to_x, *to_s


def _parted(features: Tensor, blades: int, channels: int) -> tuple[Tensor, Tensor]:
    """Views of features ``[parts, rows, heads, features]``: multivectors ``[blades, rows, parts, channels, heads]`` and
    scalars ``[rows, parts, scalars, heads]``."""
    x = features[..., : blades * channels].unflatten(-1, (blades, channels))
    return x.permute(3, 1, 0, 4, 2), features[..., blades * channels :].permute(1, 0, 3, 2)


def _flip(x: Tensor, signs: tuple[float, ...]) -> None:
    """Multiplies the blades of the first part by their signs, in place."""
    if min(signs) < 0:
        x[:, :, 0].mul_(constant(signs, x).view(-1, 1, 1, 1))


def _composed(
    geometry: Geometry, signs: tuple[float, ...], x: Tensor, s: Tensor | None = None
) -> list[Tensor]:
    """The result of :class:`_Normalised`, computed by operations that have derivatives."""
    query, *others = equi_layer_norm(x, geometry, dim=-2).unbind(2)
    parts = [query * constant(signs, x).view(-1, 1, 1, 1), *others]
    of_scalars: Sequence[Tensor | None] = [None] * len(parts)
    if s is not None:
        of_scalars = scalar_layer_norm(s.transpose(-1, -2)).to(x.dtype).unbind(1)
    pairs = zip(parts, of_scalars, strict=True)
    return [joined_features([part], of_s).transpose(0, 1) for part, of_s in pairs]


def merged_heads(features: Tensor, blades: int, channels: int) -> tuple[Tensor, Tensor | None]:
    """Multivectors ``[blades, *batch, items, heads * channels]`` and scalars ``[*batch, items, heads * scalars]`` of
    features ``[*batch, heads, items, blades * channels + scalars]``; ``None`` for no scalars."""
    if packed.is_plain(features):
        mv, *given = _Merged.apply(blades, channels, features)
        return mv, given[0] if given else None
    mv, s = features[..., : blades * channels], features[..., blades * channels :]
    mv = mv.unflatten(-1, (blades, channels)).movedim(-2, 0).movedim(-3, -2).flatten(-2)
    return mv, s.movedim(-3, -2).flatten(-2) if s.shape[-1] else None


class _Merged(torch.autograd.Function):
    """Multivectors and scalars written side by side, as the linear layer after reads them."""

    @staticmethod
    def forward(ctx: Any, blades: int, channels: int, features: Tensor) -> tuple[Tensor, ...]:
        *batch, heads, items, width = features.shape
        scalars = width - blades * channels
        ctx.sizes = heads, channels, scalars
        rows = features.new_empty(*batch, items, heads * width)
        # [*batch, items, heads, features]
        by_item, at = features.movedim(-3, -2), blades * heads * channels
        of_blades = by_item[..., : blades * channels].unflatten(-1, (blades, channels))
        rows[..., :at].unflatten(-1, (blades, heads, channels)).copy_(of_blades.transpose(-3, -2))
        # Tensors of their own on the same memory, not views, which no caller could change in place.
        storage, strides = rows.untyped_storage(), rows.stride()[:-1]
        shape = (blades, *batch, items, heads * channels)
        mv = rows.new_empty(0).set_(storage, 0, shape, (heads * channels, *strides, 1))
        if not scalars:
            return (mv,)
        rows[..., at:].unflatten(-1, (heads, scalars)).copy_(by_item[..., blades * channels :])
        shape = (*batch, items, heads * scalars)
        return mv, rows.new_empty(0).set_(storage, at, shape, (*strides, 1))

    @staticmethod
    def backward(ctx: Any, mv: Tensor, s: Tensor | None = None) -> Any:
        heads, channels, scalars = ctx.sizes
        part = mv.unflatten(-1, (heads, channels)).transpose(-1, -2)
        of_s = None if s is None else s.unflatten(-1, (heads, scalars))
        return None, None, joined_features([part], of_s)
