"""Norms, gates and the features of attention as single kernels on CUDA, with their gradients; features as compiled
functions on the CPU too.

Results lie side by side, an item in a row, so that the next linear layer reads them without a copy. Gradients of
gradients are those of the same functions composed of operations of PyTorch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..._ops import doors, equivariant, items
from ..._ops.again import Composed
from ..._ops.again import again as _again
from ..._ops.items import Eps, Gains, Pair, Part, Split, serves_features
from ...algebra import Algebra
from . import packed

__all__ = [
    "Heads",
    "Role",
    "Split",
    "gated",
    "head_features",
    "merged",
    "normalised",
    "normalised_sum",
    "products",
    "rows_of",
    "serves",
    "serves_features",
]


def serves(algebra: Algebra, *tensors: Tensor | None) -> bool:
    """Whether the functions of this module take tensors, of which the first is not ``None``."""
    first = tensors[0]
    assert first is not None
    return packed.is_plain(first) and items.serves(algebra, *tensors)


def normalised(
    algebra: Algebra, eps: Eps, gains: Gains, pair: Pair, composed: Composed
) -> Pair:
    """The norms of multivectors ``[blades, *batch, channels]`` and of scalars ``[*batch, scalars]``, times gains.

    ``composed`` takes the gains, and then the tensors of the pair.
    """
    return _pair(_Norm.apply(algebra, eps, composed, *gains, *_given(pair)))


def normalised_sum(
    algebra: Algebra, eps: Eps, gains: Gains, pair: Pair, added: Pair, composed: Composed
) -> tuple[Pair, Pair]:
    """The sum of two pairs, and its norm times gains. Both have scalars, or neither."""
    found = _SumNorm.apply(algebra, eps, composed, *gains, *_given(pair), *_given(added))
    half = len(found) // 2
    return _pair(found[:half]), _pair(found[half:])


def gated(
    algebra: Algebra, activations: tuple[str, str], pair: Pair, composed: Composed
) -> Pair:
    """Multivectors times an activation of their scalar blade, and an activation of scalars."""
    return _pair(_Gate.apply(algebra, activations, composed, *_given(pair)))


def products(
    algebra: Algebra,
    factors: Tensor | None,
    scalars: Tensor | None,
    pairs: Sequence[tuple[Tensor, Tensor]],
    composed: Composed,
) -> Pair:
    """The geometric product of a pair of multivectors ``[blades, *batch, channels]``, and beside it the regressive
    product of a second pair times factors, if there is one; and the scalars ``[*batch, scalars]``, unchanged.

    ``composed`` takes the factors of the regressive product, and then the tensors of the pairs.
    """
    given = [tensor for pair in pairs for tensor in pair]
    return _pair(_Products.apply(algebra, composed, factors, scalars, *given))


class Role(NamedTuple):
    """The features that queries, keys or values have."""

    taken: int
    """The blades that are features, as a set of bits."""
    negative: int = 0
    """The blades that are negated, as a set of bits."""
    distances: str | None = None
    """``"query"`` or ``"key"`` for features of distances."""


class Heads(NamedTuple):
    """Queries, keys and values among the channels of some pairs."""

    channels: int
    """Multivector channels of a head."""
    scalars: int
    """Scalar channels of a head."""
    pairs: tuple[tuple[int, int], ...]
    """For each pair the number of parts side by side, and of heads: channels are ``[parts, channels, heads]``."""
    roles: tuple[Role, ...]
    """The roles of all parts, in order."""
    dtype: torch.dtype
    """The type of features."""
    widths: tuple[int, ...]
    """The elements of a head's features in memory, of all parts in order: zeros follow the features."""

    def features(self, role: Role, split: Split) -> int:
        """The number of features of a head."""
        more = 0 if role.distances is None else split.points[1] + 2
        return self.channels * (role.taken.bit_count() + more) + self.scalars


def head_features(
    algebra: Algebra,
    heads: Heads,
    split: Split,
    weights: Tensor | None,
    pairs: Sequence[Pair],
    composed: Composed,
) -> list[Tensor]:
    """The features ``[*batch, heads, items, width]`` of all parts.

    Args:
        algebra: the algebra.
        heads: what the channels of the pairs are.
        split: the norm of heads, and the points of distances.
        weights: the weights of distances ``[channels, heads]``, or ``None``.
        pairs: multivectors ``[blades, *batch, items, channels]`` and scalars ``[*batch, items, scalars]``.
        composed: the same features ``[rows, heads, width]`` of weights and pairs.
    """
    given = [tensor for pair in pairs for tensor in _given(pair)]
    weights = None if weights is None else weights.contiguous()
    found = _Heads.apply(algebra, heads, split, composed, weights, *given)
    batch = pairs[0][0].shape[1:-1]
    return [part.view(*batch, *part.shape[1:]).movedim(-2, -3) for part in found]


def merged(
    algebra: Algebra, channels: int, features: Tensor, dtype: torch.dtype, composed: Composed
) -> Pair:
    """Multivectors ``[blades, *batch, items, heads * channels]`` and scalars ``[*batch, items, heads * scalars]`` of
    a type, of features ``[*batch, heads, items, blades * channels + scalars]``."""
    return _pair(_Merge.apply(algebra, channels, dtype, composed, features))


class _Norm(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        algebra: Algebra,
        eps: Eps,
        composed: Composed,
        gain: Tensor | None,
        gain_s: Tensor | None,
        *given: Tensor,
    ) -> Any:
        ctx.algebra, ctx.eps, ctx.composed = algebra, eps, composed
        ctx.save_for_backward(gain, gain_s, *given)
        to = _empty_like(given)
        items.norm(algebra, eps, (gain, gain_s), _rows(given), None, _rows(to))
        return to

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        gain, gain_s, *given = ctx.saved_tensors
        if torch.is_grad_enabled() or doors.composes(*gradients):
            return None, None, None, *_again(ctx.composed, (gain, gain_s, *given), gradients)
        to, gains = _empty_like(given), (gain, gain_s)
        of_gains = items.norm_gradient(
            ctx.algebra, ctx.eps, gains, _rows(given), _rows(gradients), None, _rows(to)
        )
        return None, None, None, *of_gains, *to


class _SumNorm(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        algebra: Algebra,
        eps: Eps,
        composed: Composed,
        gain: Tensor | None,
        gain_s: Tensor | None,
        *given: Tensor,
    ) -> Any:
        ctx.algebra, ctx.eps, ctx.composed = algebra, eps, composed
        ctx.set_materialize_grads(False)
        first, second = given[: len(given) // 2], given[len(given) // 2 :]
        total, to = _empty_like(first), _empty_like(first)
        sums = _rows(second), _rows(total)
        items.norm(algebra, eps, (gain, gain_s), _rows(first), sums, _rows(to))
        ctx.save_for_backward(gain, gain_s, *total)
        return *total, *to

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> Any:
        gain, gain_s, *total = ctx.saved_tensors
        through, g = gradients[: len(total)], gradients[len(total) :]
        of_gains: tuple[Tensor | None, Tensor | None] = None, None
        if all(part is None for part in g):
            found = list(through)
        elif torch.is_grad_enabled() or doors.composes(*gradients):
            of_gain, of_gain_s, *of_norm = _again(
                ctx.composed, (gain, gain_s, *total), _filled(g, total)
            )
            of_gains = of_gain, of_gain_s
            found = [_sum(a, b) for a, b in zip(through, of_norm, strict=True)]
        else:
            to = _empty_like(total)
            has_other = any(part is not None for part in through)
            other = _rows(_filled(through, total)) if has_other else None
            own = _rows(_filled(g, total))
            gains = gain, gain_s
            of_gains = items.norm_gradient(
                ctx.algebra, ctx.eps, gains, _rows(total), own, other, _rows(to)
            )
            found = list(to)
        return None, None, None, *of_gains, *found, *found


class _Products(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        algebra: Algebra,
        composed: Composed,
        factors: Tensor | None,
        scalars: Tensor | None,
        *given: Tensor,
    ) -> Any:
        ctx.algebra, ctx.composed = algebra, composed
        ctx.has_scalars = scalars is not None
        ctx.save_for_backward(factors, *given)
        first = given[0]
        channels = sum(x.shape[-1] for x in given[::2])
        shape = (*first.shape[:-1], channels)
        count = None if scalars is None else scalars.shape[-1]
        to = packed.empty_items(first, shape, count)
        if scalars is not None:
            # Beside the products, where the next linear layer reads both without a copy of the products.
            to[1].copy_(scalars)
        for kind, x, y, place in zip(_KINDS, given[::2], given[1::2], _side(to[0], given)):
            items.product(algebra, kind, _matrix(x), _matrix(y), _matrix(place))
            if factors is not None and kind == "regressive":
                place.mul_(factors)
        return to

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        factors, *given = ctx.saved_tensors
        g, of_scalars = gradients[0], gradients[1] if ctx.has_scalars else None
        if torch.is_grad_enabled() or doors.composes(*gradients):
            found = _again(lambda *x: ctx.composed(factors, *x), given, [g])
            return None, None, None, of_scalars, *found
        to = packed.empty_together(given)
        sides = zip(_KINDS, given[::2], given[1::2], _side(g, given), to[::2], to[1::2])
        for kind, x, y, own, to_x, to_y in sides:
            if kind == "regressive":
                own = own * factors
            places = _matrix(to_x), _matrix(to_y)
            items.product_gradient(ctx.algebra, kind, _matrix(x), _matrix(y), _matrix(own), places)
        return None, None, None, of_scalars, *to


_KINDS = ("geometric", "regressive")
"""The products of a bilinear layer, in order."""


def _side(x: Tensor, factors: Sequence[Tensor]) -> Sequence[Tensor]:
    """The channels of the products of pairs of factors, side by side."""
    return x.split([factor.shape[-1] for factor in factors[::2]], -1)


def _matrix(x: Tensor) -> Tensor:
    """Multivectors ``[blades, rows, channels]`` whose last axis is contiguous."""
    return _rows((x,))[0]


class _Gate(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        algebra: Algebra,
        activations: tuple[str, str],
        composed: Composed,
        *given: Tensor,
    ) -> Any:
        ctx.algebra, ctx.activations, ctx.composed = algebra, activations, composed
        ctx.save_for_backward(*given)
        to = _empty_like(given)
        items.gate(algebra, activations, _rows(given), _rows(to))
        return to

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        given = ctx.saved_tensors
        if torch.is_grad_enabled() or doors.composes(*gradients):
            return None, None, None, *_again(ctx.composed, given, gradients)
        to = _empty_like(given)
        g = _rows(gradients)
        items.gate_gradient(ctx.algebra, ctx.activations, _rows(given), g, _rows(to))
        return None, None, None, *to


class _Heads(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        algebra: Algebra,
        heads: Heads,
        split: Split,
        composed: Composed,
        weights: Tensor | None,
        *given: Tensor,
    ) -> Any:
        ctx.algebra, ctx.heads, ctx.split, ctx.composed = algebra, heads, split, composed
        ctx.by_kernels = items.serves(algebra, *given)
        ctx.save_for_backward(weights, *given)
        parts = []
        for (pair, of, role), width in zip(_parts(heads, given), heads.widths, strict=True):
            mv = pair[0]
            features = mv.new_empty(mv.shape[1], of, width, dtype=heads.dtype)
            parts.append(Part(pair, features, of, *role))
        parts = [part._replace(weights=weights) if part.distances == "query" else part for part in parts]
        by = items if ctx.by_kernels else equivariant
        by.heads(algebra, split, parts)
        return tuple([part.features for part in parts])

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        weights, *given = ctx.saved_tensors
        if torch.is_grad_enabled() or doors.composes(*gradients):
            found = _again(ctx.composed, (weights, *given), gradients)
            return None, None, None, None, *found
        heads = ctx.heads
        by, empty = (items, _empty_like) if ctx.by_kernels else (equivariant, _empty_apart)
        to = [
            tensor
            for pair in _by_pair(heads, given)
            for tensor in empty(tuple(t for t in pair if t is not None))
        ]
        of_weights = None
        parts = []
        for (pair, of, role), gradient in zip(_parts(heads, given), gradients, strict=True):
            part = Part(pair, gradient.contiguous(), of, *role)
            if role.distances == "query" and weights is not None:
                # Kernels write the share of each row.
                shares = pair[0].shape[1] if ctx.by_kernels else 1
                of_weights = weights.new_empty(shares, *weights.shape)
                part = part._replace(weights=weights, of_weights=of_weights)
            parts.append(part)
        places = [pair for pair, _, _ in _parts(heads, to)]
        by.heads_gradient(ctx.algebra, ctx.split, parts, places)
        return None, None, None, None, None if of_weights is None else of_weights.sum(0), *to


class _Merge(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        algebra: Algebra,
        channels: int,
        dtype: torch.dtype,
        composed: Composed,
        features: Tensor,
    ) -> Any:
        ctx.algebra, ctx.composed = algebra, composed
        *batch, heads, inner, width = features.shape
        ctx.shape = features.shape
        # Only gradients of gradients read them, and then for their type and place alone: the function is linear.
        ctx.save_for_backward(features.new_empty(0))
        blades = algebra.blade_count
        scalars = width - blades * channels
        shape = blades, *batch, inner, heads * channels
        like = features.new_empty(0, dtype=dtype)
        to = packed.empty_items(like, shape, heads * scalars or None)
        outer = features.reshape(-1 if features.numel() else 0, heads, inner, width)
        if width > 1 and outer.stride(-1) != 1:
            outer = outer.contiguous()
        items.merge(algebra, outer, _rows(to), False)
        return to

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        (like,) = ctx.saved_tensors
        *batch, heads, inner, width = ctx.shape
        if torch.is_grad_enabled() or doors.composes(*gradients):
            zeros = like.new_zeros(ctx.shape).requires_grad_()
            (found,) = _again(ctx.composed, (zeros,), gradients)
            return None, None, None, None, found
        rows = like.new_empty(torch.Size(batch).numel(), inner, heads, width)
        items.merge(ctx.algebra, rows.movedim(-2, -3), _rows(gradients), True)
        of_features = rows.view(*batch, inner, heads, width).movedim(-2, -3)
        return None, None, None, None, of_features


def _given(pair: Pair) -> tuple[Tensor, ...]:
    """The tensors of a pair."""
    mv, s = pair
    return (mv,) if s is None else (mv, s)


def _pair(found: Sequence[Tensor]) -> Pair:
    """The pair of given tensors."""
    return found[0], found[1] if len(found) > 1 else None


def rows_of(pair: Sequence[Tensor | None]) -> Pair:
    """Multivectors ``[blades, *batch, channels]`` and scalars ``[*batch, scalars]``, or ``None``, with one axis of rows and a
    contiguous last axis."""
    mv, s = pair
    assert mv is not None
    # Each operation costs the host a microsecond, so none is called for nothing.
    if mv.dim() != 3:
        mv = mv.reshape(mv.shape[0], mv.shape[1:-1].numel(), mv.shape[-1])
    if s is not None and s.dim() != 2:
        s = s.reshape(s.shape[:-1].numel(), s.shape[-1])
    return _last(mv), None if s is None else _last(s)


def _rows(given: Sequence[Tensor]) -> Pair:
    return rows_of(_pair(given))


def _last(x: Tensor) -> Tensor:
    return x if x.stride(-1) == 1 or x.shape[-1] <= 1 else x.contiguous()


def _empty_like(given: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """Tensors of the shapes of some, side by side."""
    mv, s = _pair(given)
    return packed.empty_items(mv, tuple(mv.shape), None if s is None else s.shape[-1])


def _empty_apart(given: Sequence[Tensor]) -> list[Tensor]:
    """Tensors of the shapes of some, each contiguous, as the compiled layers of the CPU take them."""
    return [tensor.new_empty(tensor.shape) for tensor in given]


def _filled(some: Sequence[Tensor | None], like: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """Gradients, with zeros where there are none."""
    return tuple(
        torch.zeros_like(tensor) if part is None else part
        for part, tensor in zip(some, like, strict=True)
    )


def _sum(a: Tensor | None, b: Tensor | None) -> Tensor | None:
    return b if a is None else a if b is None else a + b


def _by_pair(heads: Heads, given: Sequence[Tensor]) -> list[Pair]:
    step = 2 if heads.scalars else 1
    return [_pair(given[at : at + step]) for at in range(0, len(given), step)]


def _parts(heads: Heads, given: Sequence[Tensor]) -> list[tuple[Pair, int, Role]]:
    """The items of all parts, the number of their heads, and their roles."""
    found, roles = [], iter(heads.roles)
    for pair, (parts, count) in zip(_by_pair(heads, given), heads.pairs, strict=True):
        mv, s = _rows([t for t in pair if t is not None])
        channels, scalars = heads.channels * count, heads.scalars * count
        for at in range(parts):
            own = mv.narrow(-1, at * channels, channels)
            own_s = None if s is None else s.narrow(-1, at * scalars, scalars)
            found.append(((own, own_s), count, next(roles)))
    return found
