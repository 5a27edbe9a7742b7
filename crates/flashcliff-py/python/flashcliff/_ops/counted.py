"""Tells PyTorch's counter of operations, ``torch.utils.flop_counter``, how many the registered operators have.

The counter imports Triton, which takes longer than importing this package, so formulas are registered when a program imports it.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Iterable
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

__all__ = ["when_imported"]

_COUNTER = "torch.utils.flop_counter"


def when_imported(operators: Iterable[Any]) -> None:
    """Registers the formulas of operators and of their gradients, now or when the counter is imported."""
    given = list(operators)
    counter = sys.modules.get(_COUNTER)
    if counter is not None:
        _register(counter, given)
    else:
        sys.meta_path.insert(0, _Finder(given))


class _Finder:
    """Finds the counter once, and registers formulas after its import."""

    def __init__(self, operators: list[Any]) -> None:
        self._operators = operators

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if name != _COUNTER:
            return None
        if self in sys.meta_path:
            sys.meta_path.remove(self)
        found = importlib.util.find_spec(name)
        if found is not None and found.loader is not None:
            run = found.loader.exec_module

            def exec_module(module: ModuleType) -> None:
                run(module)
                _register(module, self._operators)

            found.loader.exec_module = exec_module  # type: ignore[method-assign]
        return found


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
