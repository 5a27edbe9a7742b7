"""Warnings about surprises with equivariance, each kind once."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

from ..errors import EquivarianceWarning

_PACKAGE = str(Path(__file__).resolve().parents[1])
_SAID: set[str] = set()


def gates_without_scalars(
    operator: str, gate: str, left: tuple[int, ...] | None, right: tuple[int, ...] | None
) -> None:
    """Warns if an operand is gated by a scalar that it does not carry."""
    if (left is None and right is None) or gate == "none":
        return
    sides = {"x": left, "y": right}
    closed = [f"`{name}`" for name, grades in sides.items() if grades and 0 not in grades]
    if closed:
        _warn(
            "gates",
            f"{operator}: {' and '.join(closed)} without scalars, which gates read: gate={gate!r} "
            f"multiplies by the constant {0.5 ** len(closed)}, 0.5 for each operand; write "
            'gate="none", or give scalars',
        )


def bias_on_every_blade(module: str) -> None:
    """Warns that a module is not equivariant once its bias has moved."""
    _warn(
        "bias",
        f'{module}: bias_mode="every_blade" adds the bias to every blade, so the layer is no longer '
        'equivariant once training moves the bias off zero; bias_mode="scalar" is',
    )


def _warn(kind: str, message: str) -> None:
    if kind in _SAID:
        return
    # This is the first line of the caller outside of this package.
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and _is_ours(frame.f_code.co_filename):
        frame, level = frame.f_back, level + 1
    warnings.warn(message, EquivarianceWarning, stacklevel=level)
    # This comes after the warning, so that a filter that makes it an error does so each time.
    _SAID.add(kind)


def _is_ours(file: str) -> bool:
    return str(Path(file).resolve()).startswith(_PACKAGE)
