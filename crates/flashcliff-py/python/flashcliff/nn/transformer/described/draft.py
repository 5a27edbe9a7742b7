"""A network in the making, whatever its values are, with the places of its parameters."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from .... import _core
from .recorded import Recorded

__all__ = ["Draft", "Slot", "Undescribed"]

Slot = tuple[dict[str, Any], str]
"""An entry of a dictionary, such as a parameter of a module."""


class Undescribed(Exception):
    """A network cannot say what a layer computes. The message says why."""


class Draft:
    """A network in the making.

    Args:
        owner: the module whose state dict names the parameters; without one they are numbered.
    """

    here: Any
    """The first input."""
    method = "describe"
    """The method by which a layer adds itself to such a network."""

    def __init__(self, owner: nn.Module | None = None) -> None:
        self.network = Recorded()
        self._prefixes = {
            id(of): f"{name}." if name else ""
            for name, inner in ([] if owner is None else owner.named_modules())
            for of in (inner._parameters, inner._buffers)
        }
        self.inputs: list[str] = []
        """The inputs in the order of the network, as fields of the arguments of a call."""
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
        self.again = False
        """Whether blocks are computed again in the backward pass, by the plan."""
        self.idle: tuple[frozenset[int], ...] = ()
        """For each part of the result the parameters on which it does not depend, by their places among all."""
        self._parameters: dict[tuple[int, str], int] = {}

    def call(self, module: Any, x: Any, *more: Any, sees: Sequence[str] = ()) -> Any:
        """The result of a module in the place of a layer. ``sees``: what its call gets besides values, as fields of the arguments
        of a call; a network has inputs for these where layers ask."""
        describe = getattr(module, self.method, None)
        if describe is None:
            raise Undescribed(f"a layer is of the class {type(module).__name__}")
        return describe(self, x, *more)

    def block(self) -> None:
        """Begins a block. What a plan computes again, it computes block by block."""
        self.network.block()

    def calls(self, modules: Iterable[Any], x: Any) -> Any:
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

    def parameter(
        self,
        module: nn.Module,
        name: str,
        shape: Sequence[int],
        seen: Sequence[int] | None = None,
    ) -> int:
        """Adds a parameter of a module, once. ``seen``: its shape in the network, where that has other axes."""
        return self._added(module._parameters, module, name, shape, seen)

    def buffer(
        self,
        module: nn.Module,
        name: str,
        shape: Sequence[int],
        seen: Sequence[int] | None = None,
    ) -> int:
        """Adds a buffer of a module, such as statistics, once: it is a parameter of the network. The arguments are as for
        :meth:`parameter`."""
        return self._added(module._buffers, module, name, shape, seen)

    def _added(
        self,
        of: dict[str, Any],
        module: nn.Module,
        name: str,
        shape: Sequence[int],
        seen: Sequence[int] | None,
    ) -> int:
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
        made = self.network.parameter(prefix + name, list(shape if seen is None else seen))
        self._parameters[id(of), name] = made
        return made

    def optional(
        self,
        module: nn.Module,
        name: str,
        shape: Sequence[int],
        seen: Sequence[int] | None = None,
    ) -> int | None:
        """Adds a parameter, unless the module has ``None`` in its place."""
        if getattr(module, name, None) is not None:
            return self.parameter(module, name, shape, seen)
        self.facts += [(module.__dict__, name), (module._parameters, name)]
        return None

    def _step(self, add: Any, *arguments: Any, **options: Any) -> Any:
        """The result of a method of the network, by which it grows."""
        try:
            return add(*arguments, **options)
        except _core.UnsupportedError as error:
            raise Undescribed(str(error)) from None
