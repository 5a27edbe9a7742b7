"""The sequences of a ragged batch, and attention within them."""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch import Tensor

from .fused import fused_attention

__all__ = ["Sequences", "as_sequences", "ragged_attention"]


class Sequences:
    """The sequences of a ragged batch: their boundaries among the items, and the longest length.

    On CUDA boundaries are on the device. Where ``longest`` is given they are never read on the host, so calls do not
    wait for the GPU and can be captured in a CUDA graph; wrong boundaries are then an assertion on the device. Without
    it they are read once.

    Args:
        bounds: ``[sequences + 1]`` integers, ascending from 0 to the number of items.
        longest: the length of the longest sequence, or more. Only CUDA needs it.
        name: the argument that an error names.
    """

    def __init__(
        self, bounds: Tensor, longest: int | None = None, *, name: str = "cu_seqlens"
    ) -> None:
        if not isinstance(bounds, Tensor):
            raise TypeError(f"{name}: expected a tensor of integers, got {bounds!r}")
        if bounds.is_floating_point() or bounds.dtype == torch.bool:
            raise TypeError(f"{name}: expected a tensor of integers, got {bounds.dtype}")
        self.name = name
        self.bounds = bounds
        self.given = longest
        self._host: list[int] | None = None
        self._on: dict[torch.device, Tensor] = {}
        self._checked: int | None = None
        self._groups: dict[Any, Any] = {}

    def check(self, items: int) -> Sequences:
        """Checks the boundaries of this many items, once."""
        if self._checked == items:
            return self
        if self._stays_on_device:
            assert self.given is not None
            lengths = self.on(self.bounds.device).diff()
            fits = (self.bounds[0] == 0) & (self.bounds[-1] == items) & (lengths >= 0).all()
            torch._assert_async(fits & (lengths <= self.given).all(), f"{self.name}: wrong")
        else:
            host = self.host
            ascends = all(a <= b for a, b in zip(host, host[1:]))
            if self.bounds.dim() != 1 or not host or host[0] or host[-1] != items or not ascends:
                raise ValueError(
                    f"{self.name}: expected ascending boundaries from 0 to {items}, got {self.bounds.cpu()}"
                )
        self._checked = items
        return self

    @property
    def _stays_on_device(self) -> bool:
        return self.bounds.is_cuda and self.given is not None

    @property
    def host(self) -> list[int]:
        """The boundaries on the host."""
        if self._host is None:
            self._host = self.bounds.reshape(-1).tolist()
        return self._host

    @property
    def longest(self) -> int:
        """The length of the longest sequence."""
        if self._stays_on_device:
            assert self.given is not None
            return self.given
        return max((b - a for a, b in zip(self.host, self.host[1:])), default=0)

    def on(self, device: torch.device) -> Tensor:
        """The boundaries on a device, ``[sequences + 1]`` of int32."""
        if device not in self._on:
            # A tensor made in inference mode could not be saved for a later backward pass.
            with torch.inference_mode(False):
                self._on[device] = self.bounds.to(device, torch.int32)
        return self._on[device]

    def of_items(self, items: int, device: torch.device) -> Tensor:
        """The sequence of each item, ``[items]``."""
        return torch.bucketize(
            torch.arange(items, device=device, dtype=torch.int32), self.on(device)[1:], right=True
        )

    def groups(self, keys: Sequences, device: torch.device) -> _Groups:
        """The groups of sequences that have as many queries and as many keys as each other."""
        # A key that is the queries' own would refer to itself.
        of = None if keys is self else keys
        if (of, device) not in self._groups:
            with torch.inference_mode(False):
                self._groups[of, device] = _Groups(self.host, keys.host, device)
        found: _Groups = self._groups[of, device]
        return found


def as_sequences(name: str, given: object, longest: int | None = None) -> Sequences:
    """Boundaries of a ragged batch; ``name`` is the argument that an error names."""
    if isinstance(given, Sequences):
        return given
    return Sequences(given, longest, name=name)  # type: ignore[arg-type]


def ragged_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    of_query: Sequences,
    of_key: Sequences,
    scale: float,
    is_causal: bool,
) -> Tensor:
    """Attention ``[*batch, heads, items, features]`` within sequences, without padding.

    On CUDA it is one call of PyTorch's flash attention for 16 bits from compute capability 8.0 on, else of its
    memory-efficient kernel. Elsewhere, in float64 and with a batch of several
    elements, sequences of one length are computed together.
    """
    one = query.shape[:-3].numel() == 1
    if query.is_cuda and one and query.dtype != torch.float64:
        return _by_kernel(query, key, value, of_query, of_key, scale, is_causal)
    return of_query.groups(of_key, query.device).attention(query, key, value, scale, is_causal)


def _by_kernel(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    of_query: Sequences,
    of_key: Sequences,
    scale: float,
    is_causal: bool,
) -> Tensor:
    # The batch has one element, so these are views, and so are their gradients.
    q, k, v = (x.reshape(x.shape[-3:]) for x in (query, key, value))
    # Causal masks of the faster kernel end at the last item of both, where there are fewer queries than keys.
    aligned = not is_causal or of_query is of_key
    fits = q.shape[-1] == v.shape[-1] <= 256 and q.shape[-1] % 8 == 0
    if q.dtype.itemsize == 2 and aligned and fits and _has_flash(q.get_device()):
        found = torch.ops.aten._flash_attention_forward(
            *(x.transpose(0, 1) for x in (q, k, v)),
            of_query.on(query.device),
            of_key.on(query.device),
            of_query.longest,
            of_key.longest,
            0.0,
            is_causal,
            False,
            scale=scale,
        )
        out: Tensor = found[0]
        return out.transpose(0, 1).reshape(*query.shape[:-1], v.shape[-1])
    found = torch.ops.aten._efficient_attention_forward(
        *(x.transpose(0, 1).unsqueeze(0) for x in (q, k, v)),
        None,
        of_query.on(query.device),
        of_key.on(query.device),
        of_query.longest,
        of_key.longest,
        0.0,
        # Masks by number: none, causal from the first item.
        int(is_causal),
        torch.is_grad_enabled() and (q.requires_grad or k.requires_grad or v.requires_grad),
        scale=scale,
    )
    out = found[0]
    return out.squeeze(0).transpose(0, 1).reshape(*query.shape[:-1], v.shape[-1])


@functools.cache
def _has_flash(device: int) -> bool:
    return torch.cuda.get_device_capability(device) >= (8, 0)


class _Groups:
    """Sequences by their numbers of queries and keys, and where their items are."""

    def __init__(self, of_query: list[int], of_key: list[int], device: torch.device) -> None:
        if len(of_query) != len(of_key):
            raise ValueError(
                f"cu_seqlens_key: expected {len(of_query)} boundaries, as cu_seqlens has, got {len(of_key)}"
            )
        found: dict[tuple[int, int], list[int]] = {}
        for at in range(len(of_query) - 1):
            lengths = (of_query[at + 1] - of_query[at], of_key[at + 1] - of_key[at])
            found.setdefault(lengths, []).append(at)
        self.groups: list[tuple[int, int, int, Tensor, Tensor]] = []
        for (rows, columns), members in found.items():
            if rows == 0:
                continue
            if columns == 0:
                raise ValueError(
                    "cu_seqlens_key: expected at least one key in each sequence with queries"
                )
            read_q = _places(of_query, members, rows, device)
            read_k = _places(of_key, members, columns, device)
            self.groups.append((len(members), rows, columns, read_q, read_k))
        places = [group[3] for group in self.groups]
        self.order = torch.argsort(torch.cat(places)) if places else None

    def attention(
        self, query: Tensor, key: Tensor, value: Tensor, scale: float, is_causal: bool
    ) -> Tensor:
        parts = []
        for members, rows, columns, read_q, read_k in self.groups:
            # [*batch, heads, items, features] becomes [*batch, heads, members, rows, features].
            q = query.index_select(-2, read_q).unflatten(-2, (members, rows))
            k = key.index_select(-2, read_k).unflatten(-2, (members, columns))
            v = value.index_select(-2, read_k).unflatten(-2, (members, columns))
            flat = [x.flatten(0, -4) if x.dim() > 4 else x for x in (q, k, v)]
            out = fused_attention(*flat, is_causal=is_causal, scale=scale)
            parts.append(out.view(*q.shape[:-1], out.shape[-1]).flatten(-3, -2))
        if self.order is None:
            return value.new_empty(*query.shape[:-1], value.shape[-1])
        joined = parts[0] if len(parts) == 1 else torch.cat(parts, dim=-2)
        return joined.index_select(-2, self.order)


def _places(bounds: list[int], members: list[int], length: int, device: torch.device) -> Tensor:
    starts = torch.tensor([bounds[at] for at in members], device=device)
    return (starts[:, None] + torch.arange(length, device=device)).flatten()
