"""Where the numbers of tokens are, and which rows belong together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from ..operations import Operations, Size, Tensor

__all__ = ["Channels", "Rows", "Token", "axis_of", "channels_of", "packed", "unpacked"]


class Channels(NamedTuple):
    """The channels of a token."""

    multivectors: int
    scalars: int


class Token(NamedTuple):
    """Multivectors ``[blades, rows, channels]`` and scalars ``[rows, scalars]``; ``None`` where there are no such channels."""

    multivectors: Tensor | None
    scalars: Tensor | None


@dataclass
class Rows:
    """The items of samples.

    Attributes:
        samples: the number of samples.
        items: the items of each sample; of a ragged batch the items of the longest sample.
        places: of a ragged batch, for each sample and item the row, ``[samples * items]``; items that are not there have any.
        seen: what is added to scores of keys that may not be there, ``[samples, 1, 1, items]``.
        back: of a ragged batch, for each row its sample and item.
        positions: the position of each row among items, ``[rows, 1]``; through all rows of a ragged batch.
    """

    samples: Size
    items: Size
    places: Tensor | None = None
    seen: Tensor | None = None
    back: Tensor | None = None
    positions: Tensor | None = None


def axis_of(record: Any) -> int | str:
    """An axis of a file: a size, or the name of rows that a run gives."""
    if isinstance(record, str):
        return record
    ((kind, of),) = record.items()
    if kind == "fixed":
        return int(of)
    if kind == "others":
        return f"others_{of}"
    multivectors, scalars = channels_of(of["channels"])
    return int(of["blades"]) * multivectors + scalars


def channels_of(record: dict[str, Any]) -> Channels:
    return Channels(record["multivectors"], record["scalars"])


def unpacked(ops: Operations, x: Tensor, blades: int, channels: Channels) -> Token:
    """Tokens ``[rows, token]``: blade by blade with channels innermost, then the scalars."""
    width = blades * channels.multivectors
    mv = s = None
    if width:
        own = ops.slice(x, 1, 0, width) if channels.scalars else x
        mv = ops.transpose(ops.reshape(own, [-1, blades, channels.multivectors]), (1, 0, 2))
    if channels.scalars:
        s = ops.slice(x, 1, width, width + channels.scalars) if width else x
    return Token(mv, s)


def packed(ops: Operations, token: Token, blades: int, channels: Channels) -> Tensor:
    """The inverse of :func:`unpacked`."""
    parts = []
    if token.multivectors is not None:
        own = ops.transpose(token.multivectors, (1, 0, 2))
        parts.append(ops.reshape(own, [-1, blades * channels.multivectors]))
    if token.scalars is not None:
        parts.append(token.scalars)
    return ops.concatenate(parts, 1)
