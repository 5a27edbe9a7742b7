"""The tensors of a call, as the matrices that a plan reads: an item in a row, its multivectors blade by blade, then its scalars."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from .... import _core
from ...._ops import checks
from ....algebra import Algebra
from ..geometry import Geometry
from ..ragged import Sequences, paired
from .description import Channels, Description, Variant
from .draws import Draw

__all__ = [
    "Call",
    "Given",
    "Maybe",
    "Rows",
    "Types",
    "Unready",
    "bounds_of",
    "matrix",
    "parts",
    "prepared",
    "types_of",
    "variant_of",
]

Maybe = tuple[Tensor | None, Tensor | None]
"""Multivectors and scalars, as far as there are any."""

_TOKENS = {"here", "extra", "context"}
"""The inputs of networks that are multivectors and scalars."""
_OPTIONS = {"mask", "is_causal", "cu_seqlens", "cu_seqlens_key"}


class Unready(Exception):
    """The function does not serve a call. The message says why."""


class Given(NamedTuple):
    """The arguments of a call of a layer."""

    here: tuple[Tensor, Tensor | None]
    """Multivectors and scalars."""
    reference: Tensor | None = None
    """The reference of joins."""
    extra: Maybe = (None, None)
    """Multivectors and scalars that queries and keys see besides."""
    context: Maybe = (None, None)
    """Multivectors and scalars that cross-attention attends to."""
    options: Mapping[str, Any] = {}
    """Options of attention."""
    context_options: Mapping[str, Any] = {}
    """Options of cross-attention."""
    frames: Tensor | None = None
    """The frame of each item, ``[*batch, items, dim, dim]``."""
    keeps_float32: bool = False
    """Whether steps hand tokens to each other in float32, also under autocast."""
    again: bool = False
    """Whether what lies between parts of a chain is all that is kept for the backward pass."""

    def tensors(self) -> tuple[Tensor | None, ...]:
        """The tensors of items."""
        return (*self.tokens(), self.reference, self.frames)

    def tokens(self) -> tuple[Tensor | None, ...]:
        """The multivectors and scalars."""
        return (*self.here, *self.extra, *self.context)

    @property
    def known_reference(self) -> tuple[Tensor, ...]:
        """The reference of joins, if there is one."""
        return () if self.reference is None else (self.reference,)

    def masks(self) -> tuple[Tensor | None, ...]:
        """The masks of attention and of cross-attention."""
        return self.options.get("mask"), self.context_options.get("mask")


class Bounds(NamedTuple):
    """The boundaries of sequences, as they are in a call."""

    host: list[int]
    """The boundaries. Where these stay on the device, the list has boundaries of as many sequences, none longer than the longest."""
    on_device: Tensor | None
    """The boundaries as int32 on the device; ``None`` without a context."""

    @property
    def address(self) -> int:
        return 0 if self.on_device is None else self.on_device.data_ptr()


class Types(NamedTuple):
    """The types that a call computes in."""

    plan: torch.dtype
    """The type of the plan: float64, or float32 also where tensors have 16 bits."""
    result: torch.dtype
    parameters: frozenset[torch.dtype]
    """The types that parameters may have."""
    rounds: bool
    """Whether matrix products on a GPU may round float32 to TF32."""
    features: torch.dtype | None = None
    """The type of 16 bits that a GPU keeps tokens in between steps where there are gradients; ``None``: the type of the plan."""

    @property
    def is_one(self) -> bool:
        """Whether parameters can only have the type of the plan."""
        return self.parameters == {self.plan}


Rows = tuple[int, ...]
"""The numbers of samples, of their items, and of the items that cross-attention attends to; of the edges and graphs of graphs,
whose nodes are samples of one item; and of the rows of further sets, if there are any."""

_NARROW = frozenset((torch.float32, torch.bfloat16, torch.float16))
"""The types that autocast changes."""
_SERVED = _NARROW | {torch.float64}


def types_of(tensors: Iterable[Tensor | None], takes_tf32: bool) -> Types:
    """The types of a call, where matrix products of float32 may round to TF32 or not.

    Tensors of 16 bits are computed in float32, and so is everything under autocast: positions and momenta lose too much in 16 bits.
    TF32 has as many digits as float16. Under autocast steps hand tokens to each other in its type, but for sums that pass whole networks.
    """
    there = [t for t in tensors if t is not None]
    found = {t.dtype for t in there}
    if not _SERVED.issuperset(found):
        raise Unready("the tensors are not of floating-point types of a plan")
    if _NARROW.issuperset(found) and torch.is_autocast_enabled(there[0].device.type):
        of_autocast = torch.get_autocast_dtype(there[0].device.type)
        features = of_autocast if of_autocast.itemsize == 2 else None
        return Types(torch.float32, torch.float32, _NARROW, True, features)
    if len(found) > 1:
        raise Unready("the tensors are not all of one type")
    (dtype,) = found
    plan = torch.float64 if dtype == torch.float64 else torch.float32
    return Types(plan, dtype, frozenset(found), dtype.itemsize < 4 or takes_tf32)


class Call(NamedTuple):
    """A call that the function serves."""

    description: Description
    function: _core.NetworkFunction
    batch: tuple[int, ...]
    """The axes of items."""
    rows: Rows
    geometry: Geometry
    channels: Channels
    """The channels of the result."""
    sequences: tuple[Bounds, Bounds] | None
    """The sequences of a ragged batch, and the sequences of the context."""
    options: tuple[Mapping[str, Any], Mapping[str, Any]]
    """Options of attention, and of cross-attention."""
    tensors: Sequence[Tensor | None]
    """Two for each input: multivectors and scalars; or one and ``None``."""
    types: Types
    """The types of the plan and of the result."""
    draw: Draw | None
    """The random number of dropout, if some layer drops."""

    @property
    def relations(self) -> tuple[Tensor, ...]:
        """The tensors of relations between rows, of which tokens have none."""
        return ()

    @property
    def algebra(self) -> Algebra:
        return self.geometry.algebra

    def together(self, name: str, pair: Sequence[Tensor | None]) -> Tensor:
        """The tensors of an input as one."""
        mv, s = pair
        assert mv is not None
        return matrix((mv, s), self.types.plan) if name in _TOKENS else mv

    def apart(self, name: str, gradient: Tensor | None, mv: Tensor, s: Tensor | None) -> Maybe:
        """The gradients of the tensors of an input."""
        if gradient is None or name not in _TOKENS:
            return gradient, None
        channels = mv.shape[-1], 0 if s is None else s.shape[-1]
        types = mv.dtype, mv.dtype if s is None else s.dtype
        return parts(gradient, mv.shape[0], mv.shape[1:-1], channels, types)

    def parts(self, result: Tensor) -> Maybe:
        """The result of a plan as tensors with their own memory."""
        dtype = self.types.result
        return parts(result, self.geometry.blade_count, self.batch, self.channels, (dtype, dtype))

    def seed(self, incoming: Sequence[Tensor | None], like: Tensor) -> Tensor:
        """The gradient of the result of a plan, with zeros where nothing reads multivectors or scalars."""
        mv, s = (*incoming, None)[:2]
        blades, (channels, scalars) = self.geometry.blade_count, self.channels
        if mv is None:
            mv = like.new_zeros(blades, *self.batch, channels)
        if s is None and scalars:
            s = like.new_zeros(*self.batch, scalars)
        return matrix((mv, s), self.types.plan)

    def given(self, tensors: Sequence[Tensor | None]) -> Given:
        """The arguments of a call of layers, from the tensors of a function."""
        pairs = dict(zip(self.description.inputs, zip(tensors[::2], tensors[1::2])))
        here, nothing = pairs["here"], (None, None)
        assert here[0] is not None
        reference, _ = pairs.get("reference", nothing)
        frames, _ = pairs.get("frames", nothing)
        options: tuple[Mapping[str, Any], Mapping[str, Any]] = (
            _masked(self.options[0], pairs.get("mask", nothing)[0], self.batch),
            _masked(self.options[1], pairs.get("context_mask", nothing)[0], self.batch),
        )
        if self.sequences is not None:
            # The boundaries that a caller gave may have changed.
            own, others = (None if x is None else Sequences(x) for _, x in self.sequences)
            options = {"cu_seqlens": own}, {"cu_seqlens": own, "cu_seqlens_key": others}
        return Given(
            (here[0], here[1]),
            None if reference is None else reference.view(*self.batch, 1),
            pairs.get("extra", nothing),
            pairs.get("context", nothing),
            *options,
            None if frames is None else _square(frames, self.batch),
        )


def _square(frames: Tensor, batch: Sequence[int]) -> Tensor:
    """Frames as matrices, from rows of their numbers."""
    dim = math.isqrt(frames.shape[-1])
    return frames.view(*batch, dim, dim)


def _masked(
    options: Mapping[str, Any], mask: Tensor | None, batch: Sequence[int]
) -> Mapping[str, Any]:
    """Options with the numbers of a mask as a function got them, if these have a gradient."""
    if mask is None or not mask.requires_grad:
        return options
    elements = batch[:-1] if len(mask) > 1 else [1] * (len(batch) - 1)
    mask = mask.reshape(*elements, *mask.shape[1:])
    return {**options, "mask": mask.to(options["mask"].dtype)}


def variant_of(given: Given) -> Variant:
    """The part of a call on which its network depends."""
    mv, s = given.here
    blades, batch, reference = mv.shape[0], mv.shape[1:-1], given.reference
    fits = reference is not None and checks.broadcasts(reference.shape, (*batch, 1))
    extra = None
    if given.extra != (None, None):
        extra = _channels("extra channels", given.extra, batch, blades)
    context = None
    if given.context[0] is not None:
        of_context = given.context[0].shape[1:-1]
        context = _channels("the condition", given.context, of_context, blades)
    return Variant(
        _channels("the input", (mv, s), batch, blades),
        extra,
        context,
        fits,
        _ones(given.options, batch),
        _ones(given.context_options, batch),
        has_frames=given.frames is not None,
        again=given.again,
    )


def _channels(what: str, pair: Maybe, batch: Sequence[int], blades: int) -> Channels:
    mv, s = pair
    if mv is None:
        raise Unready(f"{what} have scalars alone")
    if mv.shape[:1] != (blades,):
        raise Unready(f"{what} has other blades than the input")
    if mv.dim() < 3 or not mv.shape[-1] or mv.shape[1:-1] != batch:
        raise Unready(f"{what} has no axis of items, no channels, or another shape than the items")
    if s is None:
        return mv.shape[-1], 0
    if s.shape[:-1] != batch:
        raise Unready(f"the scalars of {what} have another shape than its multivectors")
    return mv.shape[-1], s.shape[-1]


def _ones(options: Mapping[str, Any], batch: Sequence[int]) -> tuple[bool, bool, bool] | None:
    """For each of the first three axes of a mask whether it has the length 1."""
    if not _OPTIONS.issuperset(options):
        raise Unready("attention has other options than a mask and boundaries")
    mask = options.get("mask")
    causal = bool(options.get("is_causal"))
    if (mask is not None) + causal + (options.get("cu_seqlens") is not None) > 1:
        raise Unready("attention has a mask besides another, or within sequences")
    if mask is None:
        return (True, True, False) if causal else None
    if mask.dtype != torch.bool and not mask.is_floating_point():
        # Integers would be added to logits.
        raise Unready("a mask has neither booleans nor floating-point numbers")
    if mask.dim() < 2:
        raise Unready("a mask has no axes of queries and keys")
    *of_batch, heads, queries, _ = _wide(mask, len(batch) + 2).shape
    return math.prod(of_batch) == 1, heads == 1, queries == 1


def _wide(mask: Tensor, axes: int) -> Tensor:
    """A mask with so many axes: the axes of batches, then heads, queries and keys."""
    if mask.dim() > axes:
        raise Unready("a mask has more axes than the items")
    return mask.reshape(*[1] * (axes - mask.dim()), *mask.shape)


def prepared(given: Given, description: Description, dtype: torch.dtype) -> tuple[Any, ...]:
    """The batch axes, the rows, the sequences and the tensors of a call by a plan of a type."""
    mv = given.here[0]
    batch = tuple(mv.shape[1:-1])
    *elements, items = batch
    others, of_context = 0, given.context[0]
    if of_context is not None:
        *more, others = of_context.shape[1:-1]
        if more != elements:
            raise Unready("the condition has other batch axes than the items")
    samples = math.prod(elements)
    sequences = _sequences(given, samples, items, others)
    made: dict[str, Maybe] = {"here": given.here, "extra": given.extra, "context": given.context}
    if given.reference is not None and "reference" in description.inputs:
        of_rows = given.reference.to(dtype).expand(*batch, 1).reshape(-1)
        made["reference"] = of_rows.contiguous(), None
    if given.frames is not None and "frames" in description.inputs:
        matrices = given.frames.to(dtype).expand(*batch, *given.frames.shape[-2:])
        made["frames"] = matrices.reshape(math.prod(batch), -1).contiguous(), None
    for name, options, keys in (
        ("mask", given.options, items),
        ("context_mask", given.context_options, others),
    ):
        if name in description.inputs:
            made[name] = _mask(options, mv, keys, dtype), None
    tensors = [tensor for name in description.inputs for tensor in made[name]]
    return batch, (samples, items, others, 0, 0), sequences, tensors


def _sequences(given: Given, samples: int, items: int, others: int) -> tuple[Bounds, Bounds] | None:
    """The sequences of items, and the sequences of the context, if there is one."""
    found = [
        paired(options.get("cu_seqlens"), options.get("cu_seqlens_key"), items, keys)
        for options, keys in ((given.options, items), (given.context_options, others))
        if keys
    ]
    if all(one is None for one in found):
        return None
    if samples != 1:
        raise Unready("a ragged batch has more than one batch element")
    own = found[0]
    if own is None or own[0].bounds is not own[1].bounds:
        raise Unready("queries and keys of self-attention have different sequences")
    crossing = found[-1]
    if crossing is None or crossing[0].bounds is not own[0].bounds:
        raise Unready("self-attention and cross-attention have different sequences")
    return bounds_of((own[0], crossing[1]), (items, others or None), given.here[0].device)


def bounds_of(
    both: tuple[Sequences, Sequences], totals: tuple[int, int | None], device: torch.device
) -> tuple[Bounds, Bounds]:
    """The sequences of so many items and context items, as a call has them; ``None`` without a context."""
    return tuple(
        Bounds([], None) if total is None else Bounds(of.some_bounds(total), of.on(device))
        for of, total in zip((x.settled() for x in both), totals)
    )  # type: ignore[return-value]


def _mask(options: Mapping[str, Any], mv: Tensor, keys: int, dtype: torch.dtype) -> Tensor:
    """The numbers ``[samples or 1, heads or 1, items or 1, keys]`` that are added to logits."""
    *elements, items = mv.shape[1:-1]
    mask = options.get("mask")
    if mask is None:
        mask = torch.ones(items, keys, dtype=torch.bool, device=mv.device).tril()
    mask = _wide(mask, len(elements) + 3)
    wanted = (*elements, mask.shape[-3], items, keys)
    if not checks.broadcasts(mask.shape, wanted) or mask.device != mv.device:
        raise Unready("a mask does not broadcast to the items, or is on another device")
    if mask.dtype == torch.bool:
        mask = mv.new_zeros((), dtype=dtype).where(mask, -math.inf)
    of_batch = mask.shape[: len(elements)]
    if math.prod(of_batch) != 1:
        of_batch = torch.Size(elements)
    mask = mask.to(dtype).expand(*of_batch, *mask.shape[-3:-1], keys)
    return mask.reshape(math.prod(of_batch), *mask.shape[-3:]).contiguous()


def matrix(pair: Maybe, dtype: torch.dtype) -> Tensor:
    """Multivectors ``[blades, *batch, channels]`` and scalars ``[*batch, scalars]``, an item in a row, in a type."""
    mv, s = pair
    assert mv is not None
    blades, rows, channels = mv.shape[0], mv.shape[1:-1].numel(), mv.shape[-1]
    width = blades * channels
    to = mv.new_empty(rows, width + (0 if s is None else s.shape[-1]), dtype=dtype)
    of_blades = to[:, :width].view(rows, blades, channels)
    of_blades.copy_(mv.reshape(blades, rows, channels).transpose(0, 1))
    if s is not None:
        to[:, width:].copy_(s.reshape(rows, s.shape[-1]))
    return to


def parts(
    rows: Tensor,
    blades: int,
    batch: Sequence[int],
    channels: Channels,
    types: tuple[torch.dtype, torch.dtype],
) -> Maybe:
    """The multivectors and scalars of a matrix, each in its own type and memory: the inverse of :func:`matrix`."""
    (mv, s), count = channels, rows.shape[0]
    width = blades * mv
    to = rows.new_empty(blades, *batch, mv, dtype=types[0])
    to.view(blades, count, mv).copy_(rows[:, :width].view(count, blades, mv).transpose(0, 1))
    if not s:
        return to, None
    to_s = rows.new_empty(*batch, s, dtype=types[1])
    to_s.view(count, s).copy_(rows[:, width:])
    return to, to_s
