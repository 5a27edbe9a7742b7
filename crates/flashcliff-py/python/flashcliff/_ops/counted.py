"""Tells PyTorch's counter of operations, ``torch.utils.flop_counter``, how many the registered operators have.

The counter imports Triton, which takes longer than importing this package, so formulas are registered when a program imports it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from . import imports

__all__ = ["when_imported"]

_COUNTER = "torch.utils.flop_counter"


def when_imported(operators: Iterable[Any]) -> None:
    """Registers the formulas of operators and of their gradients, now or when the counter is imported."""
    imports.when_imported(_COUNTER, partial(_register, operators=list(operators)))


def _register(counter: Any, operators: list[Any]) -> None:
    for registered in operators:
        for overload, backward in ((registered.forward, False), (registered.backward, True)):
            tell = counter.register_flop_formula(overload.overloadpacket, get_raw=True)
            tell(_formula(registered, backward))


def _formula(registered: Any, backward: bool) -> Callable[..., int]:
    def formula(*args: Any, out_val: Any = None, **named: Any) -> int:
        # Counting is rare, and the costs are a part of profiles.
        from .._profile.registered import operations

        return operations(registered, args, named, backward)

    return formula
