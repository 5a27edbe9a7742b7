"""Parts of the configurations of GATr and L-GATr."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

__all__ = ["Config", "Heads", "activations", "extra", "known", "output"]

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


class Heads(Config):
    """The base of L-GATr's configurations of attention."""

    _queries = "in"
    """The start of the names of the channels that queries are made from."""
    _ratio = "attn_ratio"
    """The name of the factor of channels."""
    _of_none = False
    """Whether heads have scalar channels where queries have 0, unlike ``None``."""

    num_heads: int
    multi_query: bool
    head_scale: bool

    def _of_queries(self, kind: str) -> tuple[str, int | None]:
        name = f"{self._queries}_{kind}_channels"
        return name, getattr(self, name)

    def _of_head(self, channels: int, least: int) -> int:
        return max(int(getattr(self, self._ratio)) * channels // self.num_heads, least)

    @property
    def hidden_mv_channels(self) -> int:
        """Multivector channels of a head."""
        return self._of_head(known(*self._of_queries("mv")), 1)

    @property
    def hidden_s_channels(self) -> int | None:
        """Scalar channels of a head."""
        _, channels = self._of_queries("s")
        if channels is None or not (channels or self._of_none):
            return channels
        return self._of_head(channels, 4)

    def heads(self) -> dict[str, Any]:
        """The arguments of attention of :mod:`flashcliff.nn.transformer` that a network passes on."""
        return {
            "heads": self.num_heads,
            "ratio": getattr(self, self._ratio),
            "multi_query": self.multi_query,
            "head_scale": self.head_scale,
        }


def known(name: str, channels: T | None) -> T:
    """Channels that a configuration must say."""
    if channels is None:
        raise ValueError(f"{name}: expected a number of channels, got None")
    return channels


def extra(config: Any) -> dict[str, Any]:
    """The arguments of :class:`flashcliff.nn.transformer.SelfAttention` for what queries and keys see besides."""
    return {
        "extra_channels": config.additional_qk_mv_channels,
        "extra_scalars": config.additional_qk_s_channels,
    }


def output(config: Any) -> dict[str, Any]:
    """The arguments of attention of :mod:`flashcliff.nn.transformer` for its output."""
    return {
        "dropout": config.dropout_prob,
        "initialization": config.output_init,
        "out_channels": known("out_mv_channels", config.out_mv_channels),
        "out_scalars": config.out_s_channels or 0,
    }


def activations(name: str, activation: str, allowed: tuple[str, ...]) -> tuple[str, str]:
    """The names here of an activation, for multivectors and for scalars. GELU is that with tanh for multivectors, and the
    exact one for scalars."""
    if activation not in allowed:
        raise ValueError(f"{name}: expected one of {', '.join(allowed)}, got {activation!r}")
    return ("gelu_tanh" if activation == "gelu" else activation), activation
