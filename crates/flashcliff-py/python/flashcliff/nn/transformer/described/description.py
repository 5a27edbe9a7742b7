"""A network that layers add their steps to, with the places of their parameters."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from .... import _core
from ....operators import Operator
from ..geometry import Geometry
from .recorded import Recorded

__all__ = ["Channels", "Description", "Slot", "Tokens", "Undescribed", "Variant"]

Channels = tuple[int, int]
"""Channels of multivectors, and of scalars."""

Slot = tuple[dict[str, Any], str]
"""An entry of a dictionary, such as a parameter of a module."""


class Undescribed(Exception):
    """A network cannot say what a layer computes. The message says why."""


class Tokens(NamedTuple):
    """A value of a network: items with their channels."""

    value: int
    channels: Channels
    geometry: Geometry


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


class Description:
    """A network in the making. Inputs are added when a layer asks for them.

    Args:
        geometry: the geometry of the input.
        variant: the call.
        owner: the module whose state dict names the parameters; without one they are numbered.
    """

    def __init__(
        self, geometry: Geometry, variant: Variant, owner: nn.Module | None = None
    ) -> None:
        self.network = Recorded()
        self.variant = variant
        self._prefixes = {
            id(inner._parameters): f"{name}." if name else ""
            for name, inner in ([] if owner is None else owner.named_modules())
        }
        self.inputs: list[str] = []
        """The inputs in the order of the network, as fields of :class:`.call.Given`."""
        self.slots: list[Slot] = []
        """The parameters in the order of the network."""
        self.shapes: list[torch.Size] = []
        """The shapes of the parameters."""
        self.facts: list[Slot] = []
        """Attributes that the description depends on."""
        self.tensors: list[tuple[Tensor, int]] = []
        """Tensors whose numbers it depends on, with their versions."""
        self.drop_count = 0
        """The number of layers that drop channels in such a call."""
        self.dtype: torch.dtype | None = None
        """The type that attention asks for, if it asks for one."""
        self.without_gradients = False
        """Whether parts are computed again in the backward pass, so that the network serves calls without one."""
        self._known: dict[str, Any] = {}
        self._parameters: dict[tuple[int, str], int] = {}
        self._components: dict[int, Tokens] = {}
        self.here = self._tokens("here", variant.channels, geometry)

    def call(self, module: Any, x: Tokens, *more: Any) -> Tokens:
        """The result of a module in the place of a layer."""
        describe = getattr(module, "describe", None)
        if describe is None:
            raise Undescribed(f"a layer is of the class {type(module).__name__}")
        found: Tokens = describe(self, x, *more)
        return found

    def calls(self, modules: Iterable[Any], x: Tokens) -> Tokens:
        """The result of modules one after another, each in the place of a layer."""
        for module in modules:
            x = self.call(module, x)
        return x

    def reads(self, module: nn.Module, *names: str) -> None:
        """Notes attributes that the description depends on."""
        self.facts += [(module.__dict__, name) for name in names]

    def expect(self, module: nn.Module, name: str, value: object, what: str) -> None:
        """Checks an attribute that a network has only one value for."""
        self.reads(module, name)
        found = getattr(module, name)
        if found != value:
            raise Undescribed(f"{what} {found!r} is not {value!r}")

    def parameter(self, module: nn.Module, name: str, shape: Sequence[int]) -> int:
        """Adds a parameter of a module, once."""
        of = module._parameters
        known = self._parameters.get((id(of), name))
        if known is not None:
            return known
        found = of.get(name)
        if found is None:
            raise Undescribed(f"{name} of {type(module).__name__} is no parameter")
        if found.shape != torch.Size(shape):
            raise Undescribed(
                f"{name} of {type(module).__name__} has another shape than it was made with"
            )
        self.slots.append((of, name))
        self.shapes.append(found.shape)
        prefix = self._prefixes.get(id(of), f"{len(self.slots)}.")
        made = self.network.parameter(prefix + name, list(shape))
        self._parameters[id(of), name] = made
        return made

    def optional(self, module: nn.Module, name: str, shape: Sequence[int]) -> int | None:
        """Adds a parameter, unless the module has ``None`` in its place."""
        if getattr(module, name, None) is not None:
            return self.parameter(module, name, shape)
        self.facts += [(module.__dict__, name), (module._parameters, name)]
        return None

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
        """Linear layers of one input, whose outputs lie side by side; behind them the scalars of the input, if they are kept."""
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
        return Tokens(value, (sum(mv for mv, _ in outputs), scalars), geometry)

    def norm(
        self, geometry: Geometry, x: Tokens, eps: float, gains: tuple[int | None, int | None]
    ) -> Tokens:
        of = core_geometry(geometry)
        return x._replace(value=self._step(self.network.norm, of, x.value, x.channels, eps, gains))

    def gate(self, x: Tokens, activations: tuple[str, str]) -> Tokens:
        of = core_geometry(x.geometry)
        return x._replace(value=self._step(self.network.gate, of, x.value, x.channels, activations))

    def dropout(self, geometry: Geometry, module: nn.Module, x: Tokens) -> Tokens:
        """Dropout of grades by a module, in calls that drop. The class says which attribute is the probability (`drops`)."""
        name: str = type(module).drops  # type: ignore[attr-defined]
        self.reads(module, name)
        p, place = getattr(module, name), self.drop_count
        if not self.variant.drops or p == 0:
            return x
        self.drop_count += 1
        of = core_geometry(geometry)
        return x._replace(value=self._step(self.network.dropout, of, x.value, x.channels, p, place))

    def products(self, geometry: Geometry, x: Tokens, each: int) -> Tokens:
        """Products, and joins, of factors of so many channels each."""
        reference = self.reference() if geometry.join else None
        scalars = x.channels[1]
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
        """An operator of a program on tensors of so many channels ``each``, which lie side by side: ``outputs`` multivectors, and scalars."""
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
        return self._changed(x, True)

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
        return x._replace(value=self._step(self.network.sum, x.value, y.value))

    def _step(self, add: Any, *arguments: Any, **options: Any) -> int:
        try:
            value: int = add(*arguments, **options)
        except _core.UnsupportedError as error:
            raise Undescribed(str(error)) from None
        return value


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
