"""Attention between multivectors: features whose dot product is invariant, and ragged batches."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..._ops import checks
from .geometry import GeometryLike, constant, geometry_of, indices

__all__ = ["GeometricAttention", "attend", "distance_features"]


def distance_features(points: Tensor, eps: float = 1e-3) -> tuple[Tensor, Tensor]:
    """Features of a query and of a key whose dot product is minus a squared distance of points.

    ``points`` are the blades of grade n of Cl(n,0,1), ``[n + 1, ...]``, the last without the null vector: ``(p, w)``.
    With ``w' = w^2 / (w^2 + eps)`` and ``p' = p w / (w^2 + eps)`` the dot product of the features, ``[n + 2, ...]``
    each, is ``-|p'_q w'_k - p'_k w'_q|^2``.

    Source: GATr (arXiv 2305.18415, appendix A).
    """
    wide = points.to(torch.promote_types(points.dtype, torch.float32))
    weight = wide[-1:]
    scaled = wide * (weight / (weight * weight + eps))
    place, weight = scaled[:-1], scaled[-1:]
    square = (place * place).sum(0, keepdim=True)
    unit = weight * weight
    mixed = weight * place
    query = torch.cat((square, unit, mixed))
    key = torch.cat((-unit, -square, 2 * mixed))
    return query.to(points.dtype), key.to(points.dtype)


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
    """

    log_weights: Tensor | None

    def __init__(
        self,
        geometry: GeometryLike,
        channels: int,
        heads: int,
        *,
        eps: float = 1e-3,
    ) -> None:
        super().__init__()
        self.geometry = geometry_of(geometry)
        self.heads = heads
        self.eps = checks.epsilon("eps", eps)
        self.log_weights = None
        algebra = self.geometry.algebra
        norms = self.geometry.norms
        self._inner = tuple(blade for blade, norm in enumerate(norms) if norm != 0)
        if self.geometry.distances:
            self.log_weights = nn.Parameter(torch.zeros(heads, 1, channels))
            # The weight of a point belongs to its distance.
            self._inner = tuple(i for i in self._inner if i != algebra.blade_count - 2)
        self._signs = tuple(float(norms[i]) for i in self._inner)

    def forward(
        self,
        query: tuple[Tensor, Tensor | None],
        key: tuple[Tensor, Tensor | None],
        value: tuple[Tensor, Tensor | None],
        **options: object,
    ) -> tuple[Tensor, Tensor | None]:
        """Attends.

        Args:
            query: multivectors ``[blades, *batch, items, channels, heads]`` and scalars ``[*batch, items, heads,
                scalars]`` or ``None``.
            key: the same of the keys; one head stands for all.
            value: the same of the values; one head stands for all.
            options: those of :func:`attend`.

        Returns:
            Multivectors ``[blades, *batch, items, heads * channels]`` and scalars ``[*batch, items, heads * scalars]``,
            heads outermost.
        """
        blades = self.geometry.algebra.blade_count
        (q, q_s), (k, k_s), (v, v_s) = query, key, value
        inner = indices(self._inner, q)
        plain = len(self._inner) == blades
        q_parts = [q if plain else q.index_select(0, inner)]
        k_parts = [k if plain else k.index_select(0, inner)]
        if min(self._signs) < 0:
            q_parts[0] = q_parts[0] * constant(self._signs, q).view(-1, *[1] * (q.dim() - 1))
        if self.log_weights is not None:
            last = blades - 1
            first = last - self.geometry.algebra.dim
            q_distance, _ = distance_features(q[first:last], self.eps)
            _, k_distance = distance_features(k[first:last], self.eps)
            weights = self.log_weights.exp()[:, 0, :].t().to(q.dtype)
            q_parts.append(q_distance * weights)
            k_parts.append(k_distance)
        packed_q, packed_k, packed_v = (
            _packed(q_parts, q_s),
            _packed(k_parts, k_s),
            _packed([v], v_s),
        )
        out = attend(packed_q, packed_k, packed_v, **options)  # type: ignore[arg-type]
        channels = v.shape[-2]
        mv, s = out[..., : blades * channels], out[..., blades * channels :]
        # [*batch, heads, items, blades * channels] becomes [blades, *batch, items, heads * channels].
        mv = mv.unflatten(-1, (blades, channels)).movedim(-2, 0).movedim(-3, -2).flatten(-2)
        return mv, None if v_s is None else s.movedim(-3, -2).flatten(-2)


def _packed(parts: list[Tensor], scalars: Tensor | None) -> Tensor:
    """Features ``[*batch, heads, items, features]`` from multivector features ``[features, *batch, items, channels,
    heads]`` and scalars ``[*batch, items, heads, scalars]``."""
    moved = [part.movedim(-1, 1).movedim(0, -2).flatten(-2) for part in parts]
    # The heads are first now, and go before the items.
    moved = [part.movedim(0, -3) for part in moved]
    if scalars is not None:
        moved.append(scalars.movedim(-2, -3))
    return moved[0] if len(moved) == 1 else torch.cat(moved, dim=-1)


def attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    mask: Tensor | None = None,
    is_causal: bool = False,
    cu_seqlens: Tensor | None = None,
    cu_seqlens_key: Tensor | None = None,
) -> Tensor:
    """Scaled dot-product attention, ``[*batch, heads, items, features]``, with PyTorch's fused kernels.

    Args:
        query: queries. The logits are divided by the root of their feature count.
        key: keys, of as many features; one head stands for all.
        value: values, of any number of features; one head stands for all.
        mask: booleans (true: may attend) or numbers that are added to the logits, ``[*batch, heads, items, items]`` or
            any shape that broadcasts to it.
        is_causal: whether items see earlier items only.
        cu_seqlens: boundaries of the sequences of a **ragged batch**, ``[sequences + 1]`` integers from 0 to the number
            of items; each item then attends within its sequence, without padding. Sequences of one length are computed
            together; the boundaries are read on the host.
        cu_seqlens_key: boundaries of the keys; those of the queries by default.

    Returns:
        ``[*batch, heads, items, features of value]``
    """
    heads = query.shape[-3]
    key, value = (x.expand(*x.shape[:-3], heads, -1, -1) for x in (key, value))
    scale = 1 / math.sqrt(query.shape[-1])
    width = value.shape[-1]
    longest = max(query.shape[-1], width)
    if query.is_cuda:
        longest = -(-longest // 8) * 8
    query, key, value = (_padded(x, longest) for x in (query, key, value))
    if cu_seqlens is not None:
        if mask is not None:
            raise ValueError("mask: expected none with cu_seqlens, which say who attends to whom")
        keys = cu_seqlens if cu_seqlens_key is None else cu_seqlens_key
        out = _ragged(
            query,
            key,
            value,
            boundaries("cu_seqlens", cu_seqlens, query.shape[-2]).tolist(),
            boundaries("cu_seqlens_key", keys, key.shape[-2]).tolist(),
            scale,
            is_causal,
        )
    else:
        out = F.scaled_dot_product_attention(
            query, key, value, attn_mask=mask, is_causal=is_causal, scale=scale
        )
    return out[..., :width]


def _padded(x: Tensor, features: int) -> Tensor:
    """Zeros do not change dot products, and fused kernels want equal feature counts."""
    missing = features - x.shape[-1]
    return F.pad(x, (0, missing)) if missing else x


def boundaries(name: str, given: object, items: int) -> Tensor:
    """Checked boundaries of the sequences of a ragged batch, on the host, where attention reads them."""
    if not isinstance(given, Tensor):
        raise TypeError(f"{name}: expected a tensor of integers, got {given!r}")
    if given.is_floating_point() or given.dtype == torch.bool:
        raise TypeError(f"{name}: expected a tensor of integers, got {given.dtype}")
    found = given.cpu()
    fits = found.dim() == 1 and len(found) > 0 and found[0] == 0 and found[-1] == items
    if not fits or (found.diff() < 0).any():
        raise ValueError(f"{name}: expected ascending boundaries from 0 to {items}, got {found}")
    return found


def _ragged(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    of_query: Sequence[int],
    of_key: Sequence[int],
    scale: float,
    is_causal: bool,
) -> Tensor:
    if len(of_query) != len(of_key):
        raise ValueError(
            f"cu_seqlens_key: expected {len(of_query)} boundaries, as cu_seqlens has, got {len(of_key)}"
        )
    groups: dict[tuple[int, int], list[int]] = {}
    for at in range(len(of_query) - 1):
        lengths = (of_query[at + 1] - of_query[at], of_key[at + 1] - of_key[at])
        groups.setdefault(lengths, []).append(at)
    parts, places = [], []
    for (rows, columns), members in groups.items():
        if rows == 0:
            continue
        if columns == 0:
            raise ValueError(
                "cu_seqlens_key: expected at least one key in each sequence with queries"
            )
        read_q = _places(of_query, members, rows, query.device)
        read_k = _places(of_key, members, columns, key.device)
        # [*batch, heads, items, features] becomes [*batch, heads, members, rows, features].
        q = query.index_select(-2, read_q).unflatten(-2, (len(members), rows))
        k = key.index_select(-2, read_k).unflatten(-2, (len(members), columns))
        v = value.index_select(-2, read_k).unflatten(-2, (len(members), columns))
        flat = [x.flatten(0, -4) if x.dim() > 4 else x for x in (q, k, v)]
        out = F.scaled_dot_product_attention(
            flat[0], flat[1], flat[2], is_causal=is_causal, scale=scale
        )
        parts.append(out.view(*q.shape[:-1], out.shape[-1]).flatten(-3, -2))
        places.append(read_q)
    if not parts:
        return value.new_empty(*query.shape[:-1], value.shape[-1])
    joined = parts[0] if len(parts) == 1 else torch.cat(parts, dim=-2)
    order = places[0] if len(places) == 1 else torch.cat(places)
    return joined.index_select(-2, torch.argsort(order))


def _places(
    bounds: Sequence[int], members: Sequence[int], length: int, device: torch.device
) -> Tensor:
    starts = torch.tensor([bounds[at] for at in members], device=device)
    return (starts[:, None] + torch.arange(length, device=device)).flatten()
