"""A network in the making, with a record of what was added to it, by which networks are compared."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import Any

from .... import _core

__all__ = ["Recorded"]


class Recorded:
    """A ``_core.Network`` that notes its steps. Two of them with the same notes are the same network."""

    def __init__(self) -> None:
        self._network = _core.Network()
        self._steps: list[Hashable] = []

    def __getattr__(self, name: str) -> Callable[..., Any]:
        add = getattr(self._network, name)

        def noted(*arguments: Any, **options: Any) -> Any:
            self._steps.append((name, _hashable(arguments), _hashable(options)))
            return add(*arguments, **options)

        return noted

    def function(self, output: int) -> _core.NetworkFunction:
        """The network as a function."""
        return self._network.function(output)

    def steps(self) -> tuple[Hashable, ...]:
        """The steps with their arguments, in order."""
        return tuple(self._steps)

    def __str__(self) -> str:
        return str(self._network)


def _hashable(x: Any) -> Hashable:
    if isinstance(x, Mapping):
        return tuple((name, _hashable(own)) for name, own in sorted(x.items()))
    if isinstance(x, list | tuple):
        return tuple(map(_hashable, x))
    found: Hashable = x
    return found
