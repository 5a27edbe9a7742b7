"""The sequences of a ragged batch, and attention within them."""

from __future__ import annotations

import weakref

import torch
from torch import Tensor

from . import launches

__all__ = ["Sequences", "as_sequences", "of_items", "paired", "ragged_attention"]


class Sequences:
    """The sequences of a ragged batch: their boundaries among the items, and the longest length.

    On CUDA boundaries are on the device. Where ``longest`` is given they are never read on the host, so calls do not
    wait for the GPU and can be captured in a CUDA graph; wrong boundaries are then an assertion on the device. Without
    it they are read once.

    Boundaries that are changed in place are read and checked again by the next call. A CUDA graph that captured a call
    reads the boundaries at the moment of its replay. PyTorch does not count the changes of tensors made in inference
    mode, so such boundaries are read again by every call.

    Args:
        bounds: ``[sequences + 1]`` integers, ascending from 0 to the number of items.
        longest: the length of the longest sequence, or more. Only CUDA needs it.
        name: the argument that an error names.

    Example:
        >>> import torch
        >>> from flashcliff.nn.transformer import Sequences
        >>> len(Sequences(torch.tensor([0, 3, 8])).bounds)
        3
    """

    def __init__(
        self, bounds: Tensor, longest: int | None = None, *, name: str = "cu_seqlens"
    ) -> None:
        if not isinstance(bounds, Tensor):
            raise TypeError(f"{name}: expected a tensor of integers, got {bounds!r}")
        if bounds.is_floating_point() or bounds.is_complex() or bounds.dtype == torch.bool:
            raise TypeError(f"{name}: expected a tensor of integers, got {bounds.dtype}")
        if bounds.dim() != 1 or bounds.shape[0] == 0:
            raise ValueError(
                f"{name}: expected boundaries [sequences + 1], got the shape {list(bounds.shape)}"
            )
        self.name = name
        self.bounds = bounds
        self.given = longest
        # A tensor made in inference mode has no versions.
        self._has_versions = torch.compiler.is_compiling() or not bounds.is_inference()
        self._made_in_graph = _is_captured(bounds)
        self._is_simple = self._has_versions and not bounds.is_cuda
        self._last: _Derived | None = None

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_last": None}

    def check(self, items: int) -> Sequences:
        """Checks the boundaries of this many items, once."""
        known = self._known()
        if known.checked == items:
            return self
        if self._stays_on_device:
            assert self.given is not None
            bounds = self._moved(known, self.bounds.device)
            lengths = bounds.diff()
            fits = (bounds[0] == 0) & (bounds[-1] == items) & (lengths >= 0).all()
            torch._assert_async(fits & (lengths <= self.given).all(), f"{self.name}: wrong")
        else:
            host = self._read(known)
            ascends = all(a <= b for a, b in zip(host, host[1:]))
            if host[0] or host[-1] != items or not ascends:
                raise ValueError(
                    f"{self.name}: expected ascending boundaries from 0 to {items}, got {self.bounds.cpu()}"
                )
        known.checked = items
        return self

    def settled(self) -> Sequences:
        """The same boundaries for one call: of a copy, where their changes could not be noticed."""
        if self._is_simple or self._version() is not None:
            return self
        # A tensor made in inference mode could not be saved for a later backward pass.
        with torch.inference_mode(False):
            return Sequences(self.bounds.clone(), self.given, name=self.name)

    @property
    def host(self) -> list[int]:
        """The boundaries on the host."""
        return self._read(self._known())

    def some_bounds(self, items: int) -> list[int]:
        """The boundaries on the host. Where these stay on the device, boundaries of as many sequences, none longer than the longest."""
        if not self._stays_on_device:
            return self.host
        return [min(at * self.longest, items) for at in range(len(self.bounds))]

    @property
    def longest(self) -> int:
        """The length of the longest sequence."""
        if self._stays_on_device:
            assert self.given is not None
            return self.given
        host = self.host
        return max((b - a for a, b in zip(host, host[1:])), default=0)

    @property
    def may_be_empty(self) -> bool:
        """Whether a sequence has no items, or nobody has looked."""
        host = [] if self._stays_on_device else self.host
        return not host or any(a == b for a, b in zip(host, host[1:]))

    def on(self, device: torch.device) -> Tensor:
        """The boundaries on a device, ``[sequences + 1]`` of int32: a copy, which stays as it is."""
        return self._moved(self._known(), device)

    def of_items(self, items: int, device: torch.device) -> Tensor:
        """The sequence of each item, ``[items]``."""
        return of_items(self.on(device), items)

    def groups(self, keys: Sequences, device: torch.device) -> _Groups:
        """The groups of sequences that have as many queries and as many keys as each other."""
        known = self._known()
        of = known if keys is self else keys._known()
        found = known.groups_with(of)
        if device not in found:
            with torch.inference_mode(False):
                found[device] = _Groups(self._read(known), keys._read(of), device)
        return found[device]

    @property
    def _stays_on_device(self) -> bool:
        return self.bounds.is_cuda and self.given is not None

    def _version(self) -> int | None:
        """A number that changes with the boundaries; ``None`` where they can change without one."""
        if torch.compiler.is_compiling():
            return 0
        # Replays of a graph read what the boundaries are then.
        if not self._has_versions or (_is_captured(self.bounds) and not self._made_in_graph):
            return None
        return self.bounds._version

    def _known(self) -> _Derived:
        last = self._last
        if self._is_simple and last is not None and not torch.compiler.is_compiling():
            # Most calls end here.
            if last.version == self.bounds._version:
                return last
        version = self._version()
        if last is None or version is None or last.version != version:
            last = self._last = _Derived(version)
        return last

    def _read(self, known: _Derived) -> list[int]:
        if known.host is None:
            known.host = self.bounds.tolist()
        return known.host

    def _moved(self, known: _Derived, device: torch.device) -> Tensor:
        if device not in known.on:
            # A tensor made in inference mode could not be saved for a later backward pass.
            with torch.inference_mode(False):
                known.on[device] = self.bounds.to(device, torch.int32, copy=True)
        return known.on[device]


_ByDevice = dict[torch.device, "_Groups"]


class _Derived:
    """What was derived from boundaries, until they change."""

    def __init__(self, version: int | None) -> None:
        self.version = version
        self.host: list[int] | None = None
        self.on: dict[torch.device, Tensor] = {}
        self.checked: int | None = None
        self._own: _ByDevice = {}
        self._others: weakref.WeakKeyDictionary[_Derived, _ByDevice] | None = None

    def groups_with(self, keys: _Derived) -> _ByDevice:
        """The groups with the boundaries of some keys, by device."""
        if keys is self:
            return self._own
        # Keys often have new boundaries in each call, whose groups go with them.
        if self._others is None:
            self._others = weakref.WeakKeyDictionary()
        return self._others.setdefault(keys, {})


def of_items(bounds: Tensor, items: int) -> Tensor:
    """The sequence of each item, ``[items]``, by boundaries of int32."""
    places = torch.arange(items, device=bounds.device, dtype=torch.int32)
    return torch.bucketize(places, bounds[1:], right=True)


def _is_captured(x: Tensor) -> bool:
    """Whether work on a tensor becomes a part of a CUDA graph."""
    return x.is_cuda and torch._C._cuda_isCurrentStreamCapturing()


def as_sequences(name: str, given: object, longest: int | None = None) -> Sequences:
    """Boundaries of a ragged batch, for one call; ``name`` is the argument that an error names."""
    if not isinstance(given, Sequences):
        given = Sequences(given, longest, name=name)  # type: ignore[arg-type]
    return given.settled()


def paired(
    cu_seqlens: Tensor | Sequences | None,
    cu_seqlens_key: Tensor | Sequences | None,
    queries: int,
    keys: int,
) -> tuple[Sequences, Sequences] | None:
    """The checked sequences of so many queries and keys; ``None`` if there are no boundaries."""
    if cu_seqlens is None:
        if cu_seqlens_key is not None:
            raise ValueError("cu_seqlens: expected boundaries, as cu_seqlens_key has, got None")
        return None
    of_query = as_sequences("cu_seqlens", cu_seqlens).check(queries)
    if cu_seqlens_key is None or cu_seqlens_key is cu_seqlens:
        return of_query, of_query if keys == queries else of_query.check(keys)
    of_key = as_sequences("cu_seqlens_key", cu_seqlens_key)
    wanted, got = len(of_query.bounds), len(of_key.bounds)
    if wanted != got:
        raise ValueError(
            f"{of_key.name}: expected {wanted} boundaries, as {of_query.name} has, got {got}"
        )
    return of_query, of_key.check(keys)


def ragged_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    of_query: Sequences,
    of_key: Sequences,
    scale: float,
    is_causal: bool,
) -> Tensor:
    """Attention ``[*batch, heads, items, features]`` of at least one query within sequences, without padding.

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
    out = launches.within(q, k, v, of_query, of_key, scale, is_causal)
    return out.reshape(*query.shape[:-1], v.shape[-1])


class _Groups:
    """Sequences by their numbers of queries and keys, and where their items are."""

    def __init__(self, of_query: list[int], of_key: list[int], device: torch.device) -> None:
        found: dict[tuple[int, int], list[int]] = {}
        for at in range(len(of_query) - 1):
            lengths = (of_query[at + 1] - of_query[at], of_key[at + 1] - of_key[at])
            found.setdefault(lengths, []).append(at)
        self.groups: list[tuple[int, int, int, Tensor, Tensor]] = []
        for (rows, columns), members in found.items():
            if rows:
                read_q = _places(of_query, members, rows, device)
                read_k = _places(of_key, members, columns, device)
                self.groups.append((len(members), rows, columns, read_q, read_k))
        self.order = torch.argsort(torch.cat([group[3] for group in self.groups]))

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
            out = launches.attention(*flat, is_causal=is_causal, scale=scale)
            parts.append(out.view(*q.shape[:-1], out.shape[-1]).flatten(-3, -2))
        joined = parts[0] if len(parts) == 1 else torch.cat(parts, dim=-2)
        return joined.index_select(-2, self.order)


def _places(bounds: list[int], members: list[int], length: int, device: torch.device) -> Tensor:
    starts = torch.tensor([bounds[at] for at in members], device=device)
    return (starts[:, None] + torch.arange(length, device=device)).flatten()
