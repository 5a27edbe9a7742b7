"""Parts of the configurations of GATr and L-GATr."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

__all__ = ["Config", "activations", "known"]

C = TypeVar("C", bound="Config")
T = TypeVar("T")


class Config:
    """The base of the configurations: they can be made from mappings."""

    @classmethod
    def cast(cls: type[C], config: Any) -> C:
        """A configuration from one, which is returned as it is, or from a mapping."""
        if isinstance(config, cls):
            return config
        if isinstance(config, Mapping):
            return cls(**config)
        raise ValueError(f"config: expected a {cls.__name__} or a mapping, got {config!r}")


def known(name: str, channels: T | None) -> T:
    """Channels that a configuration must say."""
    if channels is None:
        raise ValueError(f"{name}: expected a number of channels, got None")
    return channels


def activations(name: str, activation: str, allowed: tuple[str, ...]) -> tuple[str, str]:
    """The names here of an activation, for multivectors and for scalars. GELU is that with tanh for multivectors, and the
    exact one for scalars."""
    if activation not in allowed:
        raise ValueError(f"{name}: expected one of {', '.join(allowed)}, got {activation!r}")
    return ("gelu_tanh" if activation == "gelu" else activation), activation
