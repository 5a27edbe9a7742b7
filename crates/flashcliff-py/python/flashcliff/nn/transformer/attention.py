"""Attention between multivectors: features whose dot product is invariant."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..._ops import checks, doors, remedies
from .._module import check_features
from . import kernel, launches, path
from .described.description import Channels, Description, Tokens
from .described.draft import Undescribed
from .features import joined_features, merged_heads
from .geometry import GeometryLike, check_floating, constant, geometry_of
from .ragged import Sequences, paired, ragged_attention

__all__ = ["GeometricAttention", "Pair", "attend", "attention_dtype", "distance_features"]

Pair = tuple[Tensor, Tensor | None]
"""Multivectors and scalars."""


def distance_features(points: Tensor, eps: float = 1e-3) -> tuple[Tensor, Tensor]:
    """Features of a query and of a key whose dot product is minus a squared distance of points.

    ``points`` are the blades of grade n of Cl(n,0,1), ``[n + 1, ...]``, the last without the null vector: ``(p, w)``.
    With ``w' = w^2 / (w^2 + eps)`` and ``p' = p w / (w^2 + eps)`` the dot product of the features, ``[n + 2, ...]``
    each, is ``-|p'_q w'_k - p'_k w'_q|^2``.

    Source: GATr (arXiv 2305.18415, appendix A).
    """
    query, key = _query_features(points, eps), _key_features(points, eps)
    return torch.cat(query), torch.cat(key)


def _query_features(points: Tensor, eps: float, weights: Tensor | None = None) -> list[Tensor]:
    """``(2 w' p', -w'^2)`` and ``-|p'|^2``, times weights of distances."""
    products, square = _weighed(points, eps)
    factors = constant((2.0,) * (len(points) - 1) + (-1.0,) * 2, products)
    factors = factors.view(-1, *[1] * (points.dim() - 1))
    if weights is not None:
        factors = factors * weights
    weighed = products * factors[:-1], square * factors[-1:]
    return [part.to(points.dtype) for part in weighed]


def _key_features(points: Tensor, eps: float) -> list[Tensor]:
    """``w' p'``, ``|p'|^2`` and ``w'^2``, in the order of the query's factors."""
    products, square = _weighed(points, eps)
    return [part.to(points.dtype) for part in (products[:-1], square, products[-1:])]


def _weighed(points: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """``(w' p', w'^2)`` and ``|p'|^2``, in float32 at least."""
    wide = points.to(torch.promote_types(points.dtype, torch.float32))
    weight = wide[-1:]
    scaled = wide * (weight / (weight * weight + eps))
    return scaled * scaled[-1:], scaled[:-1].square().sum(0, keepdim=True)


@path.stands_for
class GeometricAttention(nn.Module):
    """Scaled dot-product attention of heads over multivectors and scalars.

    The logits are the invariant inner products of query and key channels, of their scalars, and with
    ``geometry.distances`` minus squared distances, with a weight ``exp(log_weights[head, 0, channel])``; all over the
    root of the number of features.

    Args:
        geometry: an algebra, or a :class:`Geometry`.
        channels: multivector channels of a head.
        heads: heads.
        eps: regularises the distance of points without weight.
        dtype: the type of features, such as ``torch.bfloat16``: of queries, keys, values and of what they attend to.
            ``None`` is the type of the items. Softmax and sums are in float32 at least. A squared distance is a sum of
            features as large as the squares of coordinates: in 16 bits it is off by some thousandths of these.

    Example:
        >>> import torch
        >>> from flashcliff import Algebra
        >>> from flashcliff.nn.transformer import GeometricAttention
        >>> item = torch.randn(16, 10, 4, 2), torch.randn(10, 2, 8)
        >>> layer = GeometricAttention(Algebra(3, 0, 1), channels=4, heads=2)
        >>> mv, s = layer(item, item, item)
        >>> mv.shape, s.shape
        (torch.Size([16, 10, 8]), torch.Size([10, 16]))
    """

    log_weights: Tensor | None
    dtype: torch.dtype | None

    def __init__(
        self,
        geometry: GeometryLike,
        channels: int,
        heads: int,
        *,
        eps: float = 1e-3,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.geometry = geometry_of(geometry)
        self.channels = channels = check_features("channels", channels)
        self.heads = heads = check_features("heads", heads)
        self.eps = checks.epsilon("eps", eps)
        self.dtype = _feature_dtype(dtype)
        self.log_weights = None
        algebra = self.geometry.algebra
        norms = self.geometry.norms
        self._inner = tuple(blade for blade, norm in enumerate(norms) if norm != 0)
        if self.geometry.distances:
            self.log_weights = nn.Parameter(torch.zeros(heads, 1, channels))
            # The weight of a point belongs to its distance.
            self._inner = tuple(i for i in self._inner if i != algebra.blade_count - 2)
        # Blades without a norm are not read.
        self._signs = tuple(float(norm or 1) for norm in norms)

    def forward(
        self,
        query: Pair,
        key: Pair,
        value: Pair,
        **options: object,
    ) -> Pair:
        """Attends.

        Args:
            query: multivectors ``[blades, *batch, items, channels, heads]`` and scalars ``[*batch, items, heads,
                scalars]`` or ``None``.
            key: the same of the keys; one head stands for all.
            value: the same of the values; one head stands for all.
            options: the options of :func:`attend`.

        Returns:
            Multivectors ``[blades, *batch, items, heads * channels]`` and scalars ``[*batch, items, heads * scalars]``,
            heads outermost.
        """
        q, k, v = self.features(self.distance_weights(), query, key, value)
        return self.of_features(q, k, v, query[0].dtype, **options)

    def describe(
        self,
        network: Description,
        x: Tokens,
        context: Tokens | None,
        head: Channels,
        *,
        shared: bool,
        head_norm: bool,
        rotary_base: int | None,
    ) -> Tokens:
        """Adds the attention of queries, keys and values side by side to a network, or of queries to keys and values of a
        context."""
        network.reads(self, "geometry", "channels", "heads", "dtype")
        if self.dtype is not None:
            if network.dtype not in (None, self.dtype):
                raise Undescribed("layers have different types of attention")
            network.dtype = self.dtype
        log_weights = None
        if self.geometry.distances:
            network.expect(self, "eps", 1e-3, "the regularisation of distances")
            log_weights = network.parameter(self, "log_weights", (self.heads, 1, self.channels))
        if self.channels != head[0]:
            raise Undescribed("attention has other heads than its projections")
        geometry = replace(self.geometry, head_norm=head_norm)
        return network.attention(
            geometry,
            x,
            self.heads,
            head,
            shared=shared,
            context=context,
            log_weights=log_weights,
            rotary_base=rotary_base,
        )

    def distance_weights(self) -> Tensor | None:
        """The weights of distances ``[channels, heads]``, if there are any."""
        return None if self.log_weights is None else self.log_weights.exp()[:, 0, :].t()

    def features(
        self, weights: Tensor | None, query: Pair, key: Pair, value: Pair
    ) -> tuple[Tensor, Tensor, Tensor]:
        """The features ``[*batch, heads, items, features]`` of queries, keys and values as :meth:`forward` takes them."""
        blades = self.geometry.blade_count
        (q, q_s), (k, k_s), (v, v_s) = query, key, value
        q_parts, k_parts = [q], [k]
        if min(self._signs) < 0:
            q_parts[0] = q * constant(self._signs, q).view(-1, *[1] * (q.dim() - 1))
        if weights is not None:
            first, last = self._points
            q_parts += _query_features(q[first:last], self.eps, weights)
            k_parts += _key_features(k[first:last], self.eps)
        inner = None if len(self._inner) == blades else self._inner
        dtype = self.dtype or q.dtype
        return (
            joined_features(q_parts, q_s, inner).to(dtype),
            joined_features(k_parts, k_s, inner).to(dtype),
            joined_features([v], v_s).to(dtype),
        )

    @property
    def _points(self) -> tuple[int, int]:
        """The blades of points: of the first coordinate, and one after the weight of the point."""
        last = self.geometry.algebra.blade_count - 1
        return last - self.geometry.algebra.dim, last

    def of_features(
        self, query: Tensor, key: Tensor, value: Tensor, dtype: torch.dtype, **options: object
    ) -> Pair:
        """Attends.

        Args:
            query, key: features ``[*batch, heads, items, features]``.
            value: multivectors and scalars ``[*batch, heads, items, blades * channels + scalars]``.
            dtype: the type of the result.
            options: the options of :func:`attend`.

        Returns:
            As :meth:`forward`.
        """
        out = attend(query, key, value, **options)  # type: ignore[arg-type]
        return merged_heads(out, self.geometry.blade_count, self.channels, dtype)


def attention_dtype(module: nn.Module, dtype: torch.dtype | None) -> int:
    """Sets the type of features in all attention of a module, such as a network that :func:`flashcliff.accelerate` made.

    Features of 16 bits take half the memory and the faster kernels of attention; everything else keeps its type.
    ``bfloat16`` has 8 bits of precision and needs no scaling of the loss. ``float16`` has 11, and needs a scaled loss
    (``torch.amp.GradScaler``): without one, some runs of an L-GATr learned nothing.

    Args:
        module: the module.
        dtype: ``torch.bfloat16``, ``torch.float16``, ``torch.float32``, or ``None`` for the type of the items.

    Returns:
        The number of attention layers that were set.
    """
    checked, count = _feature_dtype(dtype), 0
    for layer in module.modules():
        if isinstance(layer, GeometricAttention):
            layer.dtype = checked
            count += 1
    return count


_FEATURE_DTYPES = (None, torch.bfloat16, torch.float16, torch.float32)


def _feature_dtype(dtype: torch.dtype | None) -> torch.dtype | None:
    if dtype not in _FEATURE_DTYPES:
        raise ValueError(
            f"dtype: expected torch.bfloat16, torch.float16, torch.float32 or None for attention, got {dtype}"
        )
    return dtype


def attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    mask: Tensor | None = None,
    is_causal: bool = False,
    scale: float | None = None,
    cu_seqlens: Tensor | Sequences | None = None,
    cu_seqlens_key: Tensor | Sequences | None = None,
) -> Tensor:
    """Scaled dot-product attention, ``[*batch, heads, items, features]``, or of one head ``[items, features]``.

    On CUDA float32, and 16 bits within sequences of up to 16 items, are one kernel of our own, for up to 96 features and
    without a mask; all else is PyTorch's fused kernels.

    Args:
        query: queries.
        key: keys, of as many features; one head stands for all.
        value: values, of any number of features; one head stands for all.
        mask: booleans (true: may attend) or numbers that are added to the logits, ``[*batch, heads, items, items]`` or
            any shape that broadcasts to it. It says who attends to whom and nothing else: :func:`join_reference` counts
            padded items.
        is_causal: whether items see earlier items only.
        scale: the factor of the logits; by default one over the root of the number of features.
        cu_seqlens: boundaries of the sequences of a **ragged batch**, ``[sequences + 1]`` integers from 0 to the number
            of items; each item then attends within its sequence, without padding. :class:`Sequences` are read on the
            host at most once, also if many layers take them.
        cu_seqlens_key: boundaries of the keys; by default the boundaries of the queries.

    Returns:
        ``[*batch, heads, items, features of value]``; zeros for queries that may attend to nothing.

    Derivatives of every order exist on the CPU, and on CUDA where the kernel is our own; PyTorch's fused kernels on CUDA, and within
    masks there, have first derivatives unless ``torch.nn.attention.sdpa_kernel(SDPBackend.MATH)`` is entered.
    """
    for name, x in (("query", query), ("key", key), ("value", value)):
        check_floating(f"attend: {name}", x)
    doors.check_open("attend", (query, key, value), ("query", "key", "value"))
    if query.dim() < 3 or key.dim() < 3 or value.dim() < 3:
        options: dict[str, Any] = {"cu_seqlens": cu_seqlens, "cu_seqlens_key": cu_seqlens_key}
        options |= {"mask": mask, "is_causal": is_causal, "scale": scale}
        return attend(*_one_head(query, key, value), **options).squeeze(0)
    if scale is None:
        scale = 1 / math.sqrt(query.shape[-1] or 1)
    width = value.shape[-1]
    if mask is not None and cu_seqlens is not None:
        raise ValueError("mask: expected none with cu_seqlens, which say who attends to whom")
    is_causal = checks.flag("is_causal", is_causal)
    if mask is not None:
        _check_mask(mask, (*query.shape[:-1], key.shape[-2]))
        mask, is_causal = _mask_of_kernels(mask, query, key, is_causal), False
    ragged = paired(cu_seqlens, cu_seqlens_key, query.shape[-2], key.shape[-2])
    if 0 in query.shape[:-1] or key.shape[-2] == 0:
        # Sums over nothing, which autograd still sees to be of queries, keys, values and numbers of a mask.
        scores = query @ key.transpose(-1, -2)
        if mask is not None and mask.is_floating_point():
            scores = scores + mask.to(scores.dtype)
        return scores @ value
    query, key, value = _padded(query, key, value)
    if mask is None and not is_causal and kernel.serves(query, key, value, ragged):
        return kernel.attend_by_kernel(query, key, value, scale, ragged)[..., :width]
    shared = key.shape[-3] == value.shape[-3] == 1
    if shared and mask is None and ragged is None and not is_causal and _folds(query):
        # One head of all queries, in the order of their memory: nothing is read or added up once for each head.
        by_item = query.movedim(-3, -2)
        ordered = by_item if by_item.is_contiguous() else query
        folded = ordered.reshape(*query.shape[:-3], 1, -1, query.shape[-1])
        out = launches.attention(folded, key, value, scale=scale)
        out = out.view(*ordered.shape[:-1], -1)
        return (out if ordered is query else out.movedim(-3, -2))[..., :width]
    if ragged is not None:
        heads = query.shape[-3]
        key, value = (x.expand(*x.shape[:-3], heads, -1, -1) for x in (key, value))
        out = ragged_attention(query, key, value, *ragged, scale, is_causal)
    else:
        out = launches.attention(query, key, value, mask=mask, is_causal=is_causal, scale=scale)
    return out[..., :width]


def _check_mask(mask: object, scores: Sequence[int]) -> None:
    """Raises unless a mask says of each pair of items whether one attends to the other."""
    if not isinstance(mask, Tensor) or not (mask.dtype == torch.bool or mask.is_floating_point()):
        got = mask.dtype if isinstance(mask, Tensor) else type(mask).__name__
        raise TypeError(
            f"mask: expected a tensor of booleans or of floating-point numbers, got {got}"
        )
    remedies.check_dense("mask", mask)
    pairs = zip(reversed(mask.shape), reversed(scores))
    if mask.dim() > len(scores) or any(n != 1 and m != 1 and n != m for n, m in pairs):
        raise ValueError(
            f"mask: expected a shape that broadcasts to [*batch, heads, items, items], {list(scores)}, got {list(mask.shape)}"
        )


def _mask_of_kernels(mask: Tensor, query: Tensor, key: Tensor, is_causal: bool) -> Tensor:
    """A mask as PyTorch's kernels take it: with two axes or more, and of a type that they add.

    With ``is_causal`` the mask hides later items, since few kernels take a mask and hide later items too.
    """
    if mask.is_floating_point() and mask.dtype not in (query.dtype, torch.float32):
        mask = mask.to(query.dtype)
    if mask.dim() < 2:
        mask = mask.reshape(*[1] * (2 - mask.dim()), *mask.shape)
    if not is_causal:
        return mask
    items = query.shape[-2], key.shape[-2]
    earlier = torch.ones(items, dtype=torch.bool, device=mask.device).tril()
    return mask & earlier if mask.dtype == torch.bool else mask.where(earlier, -torch.inf)


def _one_head(*features: Tensor) -> list[Tensor]:
    """Features ``[items, features]`` as the features of one head."""
    if any(x.dim() != 2 for x in features):
        shapes = ", ".join(str(list(x.shape)) for x in features)
        raise ValueError(
            "query, key, value: expected [*batch, heads, items, features] each, or [items, features] each, "
            f"got {shapes}"
        )
    return [x.unsqueeze(0) for x in features]


def _folds(query: Tensor) -> bool:
    """Whether heads that share keys are one head of more queries: on the CPU, where batch elements are enough work for
    all threads. Backwards PyTorch gives each thread heads."""
    if torch.compiler.is_compiling() or not query.is_cpu or query.shape[-3] == 1:
        return False
    return query.shape[:-3].numel() >= torch.get_num_threads()


def _padded(query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Zeros do not change dot products, and fused kernels want certain feature counts."""
    features, width = padded_counts(query.shape[-1], value.shape[-1], query.dtype, query.is_cuda)
    return widened(query, features), widened(key, features), widened(value, width)


def padded_counts(
    features: int, width: int, dtype: torch.dtype, on_cuda: bool
) -> tuple[int, int]:
    """The counts of features that fused kernels want: of queries and keys, and of values.

    On CUDA, kernels of float32 want multiples of 4 and take values of another count. Kernels of 16 bits want multiples
    of 8, and equal counts, as on the CPU.
    """
    step = 1
    if on_cuda:
        step = 4 if dtype == torch.float32 else 8
    features, width = (-(-count // step) * step for count in (features, width))
    if step != 4:
        features = width = max(features, width)
    return features, width


def widened(x: Tensor, features: int) -> Tensor:
    """Features and zeros up to a count."""
    missing = features - x.shape[-1]
    return F.pad(x, (0, missing)) if missing else x
