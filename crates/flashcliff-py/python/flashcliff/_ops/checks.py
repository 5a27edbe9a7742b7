"""Checks of options and sizes, for functions and modules alike. Wrong types are ``TypeError``,
wrong values ``ValueError``."""

from __future__ import annotations

import math
import operator
import sys
import warnings
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from .._derived.choices import OLD_SPELLINGS

_LARGEST = (1 << 63) - 1
_PACKAGE = str(Path(__file__).resolve().parents[1])


def integer(name: str, value: Any, expected: str = "an integer") -> int:
    """An integer of any type. ``1.0`` and ``True`` are refused, because operators are found by
    their options and these would find the operator of ``1``."""
    if type(value) is int:
        return value
    if not _is_boolean(value):
        try:
            return operator.index(value)
        except TypeError:
            pass
    raise TypeError(f"{name}: expected {expected}, got {value!r}")


def broadcasts(shape: Sequence[Any], to: Sequence[Any]) -> bool:
    """Whether a shape broadcasts to another one."""
    missing = len(to) - len(shape)
    return missing >= 0 and all(n in (1, m) for n, m in zip(shape, to[missing:]))


def count(name: str, value: Any) -> int:
    """A number of parts, at least 0."""
    value = integer(name, value)
    if value < 0:
        raise ValueError(f"{name}: expected at least 0, got {value}")
    return value


def number(name: str, value: Any) -> float:
    """A real number as a float. Operators check its range. A tensor of no axes is a number."""
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


def finite(name: str, value: Any) -> float:
    """A real number that is finite."""
    found = number(name, value)
    if not math.isfinite(found):
        raise ValueError(f"{name}: expected a finite number, got {value!r}")
    return found


def epsilon(name: str, value: Any) -> float:
    """The epsilon that a norm adds to a mean square: finite, and not negative."""
    found = number(name, value)
    if not (math.isfinite(found) and found >= 0):
        raise ValueError(f"{name}: expected a finite number, at least 0, got {value!r}")
    return found


def positive(name: str, value: Any) -> float:
    """A length or another number that is finite and above 0."""
    found = number(name, value)
    if not (math.isfinite(found) and found > 0):
        raise ValueError(f"{name}: expected a finite number above 0, got {value!r}")
    return found


def flag(name: str, value: Any) -> bool:
    """A boolean. Everything is true or false in Python, even ``"False"``, so only booleans are
    accepted."""
    if type(value) is bool:
        return value
    if _is_boolean(value) and getattr(value, "shape", None) == ():
        return bool(value)
    raise TypeError(f"{name}: expected True or False, got {value!r}")


def word(name: str, value: Any) -> str:
    """A string that names something. Operators check that the name exists."""
    if isinstance(value, str):
        return value
    raise TypeError(f"{name}: expected a string, got {value!r}")


def one_of(name: str, value: Any, names: Iterable[str]) -> str:
    """One of some names."""
    if word(name, value) in names:
        return str(value)
    raise ValueError(f"{name}: expected one of {', '.join(names)}, got {value!r}")


def mapping(name: str, value: Any) -> Mapping[str, Any]:
    """Options by name; ``None`` stands for none."""
    if value is None:
        return {}
    if isinstance(value, Mapping):
        return value
    raise TypeError(f"{name}: expected a mapping of options by name, got {value!r}")


def choice(name: str, value: Any) -> str:
    """One of the names that an option has, in its present spelling. Operators refuse unknown names."""
    found = word(name, value)
    old = OLD_SPELLINGS.get(name)
    if old is None or found not in old:
        return found
    present = old[found]
    message = f'{name}="{found}" is an earlier spelling: write {name}="{present}"'
    if sys.version_info >= (3, 12):
        warnings.warn(message, DeprecationWarning, skip_file_prefixes=(_PACKAGE,))
    else:
        # Functions are called by users; constructors of modules are one level deeper.
        warnings.warn(message, DeprecationWarning, stacklevel=3)
    return present


def block_bytes(value: Any) -> int | None:
    """The most bytes that a block of rows may take on CUDA; ``None`` leaves the limit to the
    library."""
    if value is None:
        return None
    value = integer("block_bytes", value, "an integer or None")
    if value < 1:
        raise ValueError(f"block_bytes: expected at least 1, or None, got {value}")
    if value > _LARGEST:
        raise ValueError(f"block_bytes: expected at most {_LARGEST}, got {value}")
    return value


def integers(name: str, values: Any, what: str = "integers") -> tuple[int, ...]:
    """Integers of an iterable, in its order."""
    try:
        each = iter(values)
    except TypeError:
        raise TypeError(f"{name}: expected {what} as an iterable, got {values!r}") from None
    return tuple(integer(name, value) for value in each)


def grades(dim: int, name: str, values: Iterable[Any], empty: bool = False) -> tuple[int, ...]:
    """Grades of an algebra in ascending order, each once."""
    found = tuple(sorted(set(integers(name, values, "grades"))))
    if not (found or empty) or found and (found[0] < 0 or found[-1] > dim):
        raise ValueError(f"{name}: expected grades from 0 to {dim}, got {found}")
    return found


def _is_real(value: Any) -> bool:
    """Whether a value claims to be one number. Strings of NumPy and complex numbers do so too."""
    if isinstance(value, (str, bytes)) or "complex" in str(getattr(value, "dtype", "")):
        return False
    return hasattr(type(value), "__float__") and getattr(value, "shape", ()) == ()


def _is_boolean(value: Any) -> bool:
    """Whether a value is a boolean of any library, which Python would treat as 0 or 1."""
    return isinstance(value, bool) or str(getattr(value, "dtype", "")) in ("bool", "torch.bool")
