"""A network of tokens, which layers add their steps to."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from torch import nn

from .... import _core
from ....operators import Operator
from ..geometry import Geometry
from .draft import Draft, Undescribed

__all__ = ["Channels", "Description", "Tokens", "Variant"]

Channels = tuple[int, int]
"""Channels of multivectors, and of scalars."""


class Tokens(NamedTuple):
    """A value of a network: items with their channels."""

    value: int
    channels: Channels
    geometry: Geometry

    @property
    def sizes(self) -> tuple[int, int, int]:
        """The blades, channels and scalars of an item."""
        return self.geometry.blade_count, *self.channels


class Variant(NamedTuple):
    """The part of a call on which its network depends."""

    channels: Channels
    extra: Channels | None = None
    """The channels that queries and keys see besides, if a call has some."""
    context: Channels | None = None
    """The channels of the items that cross-attention attends to."""
    has_reference: bool = False
    mask: tuple[bool, bool, bool] | None = None
    """For the axes of samples, heads and items of a mask whether they have the length 1; ``None`` without a mask."""
    context_mask: tuple[bool, bool, bool] | None = None
    """For the mask of cross-attention whether its axes have the length 1."""
    drops: bool = False
    """Whether layers drop channels."""
    has_frames: bool = False
    """Whether each item has a frame."""
    again: bool = False
    """Whether each part of a chain is computed again in the backward pass."""

    def draft(self, geometry: Geometry, owner: nn.Module | None = None) -> Description:
        """A network of such calls in the making."""
        return Description(geometry, self, owner)


class _Part(NamedTuple):
    """What the multivectors, or the scalars, of a value are made of in the step that makes it."""

    parameters: frozenset[int]
    """Parameters, by their places among all."""
    parts: tuple[tuple[int, int], ...]
    """Multivectors, 0, and scalars, 1, of other values."""


_OF_SCALARS = frozenset(("mvs2s.weight", "mvs2s.bias", "s2s.weight"))
"""The parameters of a linear layer with which it makes scalars."""


class Description(Draft):
    """A network of tokens in the making. Inputs are added when a layer asks for them.

    Args:
        geometry: the geometry of the input.
        variant: the call.
        owner: the module whose state dict names the parameters; without one they are numbered.
    """

    def __init__(
        self, geometry: Geometry, variant: Variant, owner: nn.Module | None = None
    ) -> None:
        super().__init__(owner)
        self.variant, self.again = variant, variant.again
        self._known: dict[str, Any] = {}
        self._components: dict[int, Tokens] = {}
        self._parts: dict[tuple[int, int], _Part] = {}
        self._before: dict[int, int] = {}
        """For each value how many parameters there were when it was made. It depends on no others; inputs depend on none."""
        self.here = self._tokens("here", variant.channels, geometry)

    def extra(self) -> Tokens | None:
        """The items whose channels queries and keys see besides."""
        return self._others("extra", self.variant.extra)

    def context(self) -> Tokens:
        """The items that cross-attention attends to."""
        found = self._others("context", self.variant.context)
        if found is None:
            raise Undescribed("there are no items to attend to")
        return found

    def _others(self, name: str, channels: Channels | None) -> Tokens | None:
        if channels is None:
            return None
        if name not in self._known:
            self._known[name] = self._tokens(name, channels, self.here.geometry)
        found: Tokens = self._known[name]
        return found

    def _tokens(self, name: str, channels: Channels, geometry: Geometry) -> Tokens:
        self.inputs.append(name)
        blades = geometry.blade_count
        called = "tokens" if name == "here" else name
        value = self.network.tokens(called, blades, channels, name == "context")
        return Tokens(value, channels, geometry)

    def reference(self) -> int:
        """The reference of joins, a number for each item."""
        if not self.variant.has_reference:
            raise Undescribed(
                "the reference of joins is missing, or differs from channel to channel"
            )
        return self._input("reference", lambda: self.network.rows("reference"))

    def frames(self) -> int:
        """The frames of items, row by row."""
        if not self.variant.has_frames:
            raise Undescribed("items have no frames")
        geometry = self.here.geometry
        channels = 0, geometry.algebra.dim**2
        return self._input(
            "frames",
            lambda: self.network.tokens("frames", geometry.blade_count, channels, False),
        )

    def mask(self, heads: int, crossing: bool) -> int | None:
        """The mask of attention, or of cross-attention, if a call has one."""
        name = "context_mask" if crossing else "mask"
        ones = self.variant.context_mask if crossing else self.variant.mask
        if ones is None:
            return None
        heads_before = self._known.setdefault(f"heads of {name}", heads)
        if heads_before != heads and not ones[1]:
            raise Undescribed("layers with different numbers of heads have one mask")
        return self._input(name, lambda: self.network.mask(name, heads, ones, crossing))

    def _input(self, name: str, make: Any) -> int:
        if name not in self._known:
            self.inputs.append(name)
            self._known[name] = make()
        found: int = self._known[name]
        return found

    # Steps, with the channels of their results.

    def linear(
        self,
        geometry: Geometry,
        x: Tokens,
        outputs: Sequence[Channels],
        parameters: Sequence[Mapping[str, int]],
        keeps_scalars: bool = False,
    ) -> Tokens:
        """Linear layers of one input, whose outputs lie side by side. The scalars of the input follow, if they are kept."""
        of = core_geometry(geometry)
        value = self._step(
            self.network.linear,
            of,
            x.value,
            x.channels,
            list(outputs),
            list(parameters),
            keeps_scalars,
        )
        scalars = x.channels[1] if keeps_scalars else sum(s for _, s in outputs)
        found = Tokens(value, (sum(mv for mv, _ in outputs), scalars), geometry)
        own: tuple[list[int], list[int]] = [], []
        for name, number in (pair for layer in parameters for pair in layer.items()):
            own[name in _OF_SCALARS].append(number)
        crosses = [any(f"{n}.weight" in layer for layer in parameters) for n in ("s2mvs", "mvs2s")]
        return self.apart(found, (x,), own, (crosses[0], crosses[1]))

    def norm(
        self, geometry: Geometry, x: Tokens, eps: float, gains: tuple[int | None, int | None]
    ) -> Tokens:
        of = core_geometry(geometry)
        found = x._replace(value=self._step(self.network.norm, of, x.value, x.channels, eps, gains))
        return self.apart(found, (x,), (gains[:1], gains[1:]))

    def gate(self, x: Tokens, activations: tuple[str, str]) -> Tokens:
        of = core_geometry(x.geometry)
        found = x._replace(value=self._step(self.network.gate, of, x.value, x.channels, activations))
        return self.apart(found, (x,))

    def dropout(self, geometry: Geometry, module: nn.Module, x: Tokens) -> Tokens:
        """Dropout of grades by a module, in calls that drop. The class says which attribute is the probability (`drops`)."""
        name: str = type(module).drops  # type: ignore[attr-defined]
        self.reads(module, name)
        p, place = getattr(module, name), self.drop_count
        if not self.variant.drops or p == 0:
            return x
        self.drop_count += 1
        of = core_geometry(geometry)
        value = self._step(self.network.dropout, of, x.value, x.channels, p, place)
        return self.apart(x._replace(value=value), (x,))

    def products(self, geometry: Geometry, x: Tokens) -> Tokens:
        """Products, and joins, of factors side by side."""
        reference = self.reference() if geometry.join else None
        factors, scalars = x.channels
        each = factors // (4 if geometry.join else 2)
        value = self._step(
            self.network.products, core_geometry(geometry), x.value, each, scalars, reference
        )
        return Tokens(value, (each * (2 if geometry.join else 1), scalars), geometry)

    def lanes(
        self,
        operator: Operator,
        x: Tokens,
        each: Channels,
        outputs: tuple[int, int],
        parameters: Sequence[int] = (),
    ) -> Tokens:
        """An operator of a program on tensors that lie side by side, each with the channels ``each``. The result has as many
        multivectors and scalars as ``outputs`` says, each with these channels too."""
        blades = x.geometry.blade_count
        value = self._step(
            self.network.lanes, operator._core, x.value, blades, each, list(parameters)
        )
        return x._replace(value=value, channels=(outputs[0] * each[0], outputs[1] * each[1]))

    def attention(
        self,
        geometry: Geometry,
        x: Tokens,
        heads: int,
        head: Channels,
        *,
        shared: bool,
        context: Tokens | None = None,
        log_weights: int | None = None,
        rotary_base: int | None = None,
    ) -> Tokens:
        """Attention of queries, keys and values side by side; of queries to keys and values of a context."""
        value = self._step(
            self.network.attention,
            core_geometry(geometry),
            x.value,
            heads,
            head,
            shared=shared,
            context=None if context is None else context.value,
            mask=self.mask(heads, context is not None),
            log_weights=log_weights,
            rotary_base=rotary_base,
        )
        return Tokens(value, (heads * head[0], heads * head[1]), x.geometry)

    def head_gains(self, x: Tokens, heads: int, gains: int) -> Tokens:
        of = core_geometry(x.geometry)
        return x._replace(
            value=self._step(self.network.head_gains, of, x.value, x.channels, heads, gains)
        )

    def beside(self, x: Tokens, y: Tokens | None) -> Tokens:
        """The channels of two values side by side; of the first alone without a second."""
        if y is None:
            return x
        (mv, s), (more, more_s) = x.channels, y.channels
        if more_s and not s:
            raise Undescribed("queries and keys see scalars besides none")
        blades = x.geometry.blade_count
        value = self._step(self.network.beside, blades, x.value, x.channels, y.value, y.channels)
        return x._replace(value=value, channels=(mv + more, s + more_s))

    def in_frames(self, x: Tokens) -> Tokens:
        """Items in their frames."""
        return self._changed(x, False)

    def out_of_frames(self, x: Tokens) -> Tokens:
        """Items that are in their frames, in the frame of all."""
        return self._changed(x, True) if x.channels[0] else x

    def _changed(self, x: Tokens, inverse: bool) -> Tokens:
        of, frames = core_geometry(x.geometry), self.frames()
        value = self._step(self.network.frames, of, x.value, x.channels, frames, inverse)
        return x._replace(value=value)

    def components(self, x: Tokens) -> Tokens:
        """Multivectors and scalars as scalars."""
        if not x.channels[0]:
            return x
        known = self._components.get(x.value)
        if known is None:
            blades = x.geometry.blade_count
            value = self._step(self.network.components, blades, x.value, x.channels, False)
            known = x._replace(value=value, channels=(0, blades * x.channels[0] + x.channels[1]))
            self._components[x.value] = known
        return known

    def of_components(self, x: Tokens, channels: Channels) -> Tokens:
        """Multivectors and scalars of which these are the components."""
        if not channels[0]:
            return x
        value = self._step(
            self.network.components, x.geometry.blade_count, x.value, channels, True
        )
        self._components[value] = x
        return x._replace(value=value, channels=channels)

    def sum(self, x: Tokens, y: Tokens) -> Tokens:
        if x.channels == y.channels and {x.value, y.value} <= self._components.keys():
            # Layers of components, between which nothing needs to be multivectors.
            total = self.sum(self._components[x.value], self._components[y.value])
            return self.of_components(total, x.channels)
        if x.channels != y.channels:
            raise Undescribed("a residual has other channels than what it is added to")
        found = x._replace(value=self._step(self.network.sum, x.value, y.value))
        return self.apart(found, (x, y))

    def _step(self, add: Any, *arguments: Any, **options: Any) -> Any:
        found = super()._step(add, *arguments, **options)
        self._before[found] = len(self.slots)
        return found

    def apart(
        self,
        result: Tokens,
        of: Sequence[Tokens],
        parameters: Sequence[Sequence[int | None]] = ((), ()),
        crosses: tuple[bool, bool] = (False, False),
    ) -> Tokens:
        """Notes what the parts of a step's result are made of, and returns it. Without a note each is made of all that came before.

        Args:
            result: the result of the step.
            of: values whose multivectors its multivectors are made of, and whose scalars its scalars are made of.
            parameters: parameters that its multivectors, and that its scalars, are made with.
            crosses: whether its multivectors are made of scalars too, and its scalars of multivectors.
        """
        places = {number: at for at, number in enumerate(self._parameters.values())}
        for part in (0, 1):
            own = frozenset(places[number] for number in parameters[part] if number is not None)
            read = (part, 1 - part) if crosses[part] else (part,)
            parts = tuple((x.value, which) for x in of for which in read)
            self._parts[result.value, part] = _Part(own, parts)
        return result

    def ends(self, result: Tokens) -> None:
        """Notes which parameters the multivectors of a result do not depend on, and which its scalars do not depend on."""
        every = frozenset(range(len(self.slots)))
        self.idle = tuple(every - self._reached(result.value, part) for part in (0, 1))

    def _reached(self, value: int, part: int) -> set[int]:
        """The parameters that the multivectors, or the scalars, of a value may depend on."""
        found: set[int] = set()
        left, seen = [(value, part)], {(value, part)}
        while left:
            at = left.pop()
            known = self._parts.get(at)
            if known is None:
                found.update(range(self._before.get(at[0], 0)))
                continue
            found |= known.parameters
            left += [own for own in known.parts if own not in seen]
            seen.update(known.parts)
        return found


@functools.cache
def core_geometry(geometry: Geometry) -> _core.TokenGeometry:
    """The geometry of a network."""
    return _core.TokenGeometry(
        geometry.algebra._core,
        geometry.group,
        vectors=geometry.vectors,
        unit_maps=geometry.unit_maps,
        join=geometry.join,
        distances=geometry.distances,
        bivectors=geometry.bivectors,
        head_norm=geometry.head_norm,
    )
