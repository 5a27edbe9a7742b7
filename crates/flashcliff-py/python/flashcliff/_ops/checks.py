"""Checks of options and sizes, for functions and modules alike. Wrong types are ``TypeError``,
wrong values ``ValueError``."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable
from typing import Any

_LARGEST = (1 << 63) - 1


def integer(name: str, value: Any, expected: str = "an integer") -> int:
    """An integer of any type. Operators are found by their options, and ``1.0`` and ``True`` would
    find that of ``1``."""
    if type(value) is int:
        return value
    if not _is_boolean(value):
        try:
            return operator.index(value)
        except TypeError:
            pass
    raise TypeError(f"{name}: expected {expected}, got {value!r}")


def number(name: str, value: Any) -> float:
    """A real number as a float; operators say which they take. A tensor of no axes is a number."""
    if type(value) is float:
        return value
    if _is_real(value) and not _is_boolean(value):
        try:
            return float(value)
        except OverflowError:
            raise ValueError(f"{name}: expected a finite number, got {value!r}") from None
        except (TypeError, ValueError, RuntimeError):
            pass
    raise TypeError(f"{name}: expected a number, got {value!r}")


def epsilon(name: str, value: Any) -> float:
    """What a norm adds to a mean square: finite, and not negative."""
    found = number(name, value)
    if not (math.isfinite(found) and found >= 0):
        raise ValueError(f"{name}: expected a finite number, at least 0, got {value!r}")
    return found


def flag(name: str, value: Any) -> bool:
    """A choice of two. Everything is true or false in Python, ``"False"`` too, so only booleans
    are taken."""
    if type(value) is bool:
        return value
    if _is_boolean(value) and getattr(value, "shape", None) == ():
        return bool(value)
    raise TypeError(f"{name}: expected True or False, got {value!r}")


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
    try:
        values = iter(values)
    except TypeError:
        raise TypeError(f"{name}: expected grades as an iterable, got {values!r}") from None
    found = tuple(sorted({integer(name, value) for value in values}))
    if not (found or empty) or found and (found[0] < 0 or found[-1] > dim):
        raise ValueError(f"{name}: expected grades from 0 to {dim}, got {found}")
    return found


def _is_real(value: Any) -> bool:
    """Whether a value says that it is one number; strings of NumPy and complex numbers do too."""
    if isinstance(value, (str, bytes)) or "complex" in str(getattr(value, "dtype", "")):
        return False
    return hasattr(type(value), "__float__") and getattr(value, "shape", ()) == ()


def _is_boolean(value: Any) -> bool:
    """Whether a value is a boolean of any library, which Python would take as 0 or 1."""
    return isinstance(value, bool) or str(getattr(value, "dtype", "")) in ("bool", "torch.bool")
