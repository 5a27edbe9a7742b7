"""Checks of options and sizes, for functions and modules alike. Wrong types are ``TypeError``,
wrong values ``ValueError``."""

from __future__ import annotations

import operator
from collections.abc import Iterable
from typing import Any

_LARGEST = (1 << 63) - 1


def integer(name: str, value: Any, expected: str = "an integer") -> int:
    """An integer of any type. Operators are found by their options, and ``1.0`` and ``True`` would
    find that of ``1``."""
    if type(value) is int:
        return value
    if not isinstance(value, bool):
        try:
            return operator.index(value)
        except TypeError:
            pass
    raise TypeError(f"{name}: expected {expected}, got {value!r}")


def number(name: str, value: Any) -> float:
    """A number as a float; operators say which they take."""
    try:
        return float(value)
    except OverflowError:
        raise ValueError(f"{name}: expected a finite number, got {value!r}") from None


def word(name: str, value: Any) -> str:
    """A name of something; operators say which there are."""
    if isinstance(value, str):
        return value
    raise TypeError(f"{name}: expected a string, got {value!r}")


def block_bytes(value: Any) -> int | None:
    """What a block of rows may take on CUDA; ``None`` leaves it to the library."""
    if value is None:
        return None
    value = integer("block_bytes", value, "an integer or None")
    if value < 1:
        raise ValueError(f"block_bytes: expected at least 1, or None, got {value}")
    if value > _LARGEST:
        raise ValueError(f"block_bytes: expected at most {_LARGEST}, got {value}")
    return value


def grades(dim: int, name: str, values: Iterable[Any], empty: bool = False) -> tuple[int, ...]:
    """Grades of an algebra in ascending order, each once."""
    found = tuple(sorted({integer(name, value) for value in values}))
    if not (found or empty) or found and (found[0] < 0 or found[-1] > dim):
        raise ValueError(f"{name}: expected grades from 0 to {dim}, got {found}")
    return found
