"""Calls functions when a program imports a module that takes longer to import than this package."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

__all__ = ["when_imported"]


def when_imported(name: str, then: Callable[[Any], None]) -> None:
    """Calls a function of a module, now or when the module is imported."""
    module = sys.modules.get(name)
    if module is not None:
        then(module)
    else:
        sys.meta_path.insert(0, _Finder(name, then))


class _Finder:
    """Finds a module once, and calls the function after its import."""

    def __init__(self, name: str, then: Callable[[Any], None]) -> None:
        self._name = name
        self._then = then

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if name != self._name:
            return None
        if self in sys.meta_path:
            sys.meta_path.remove(self)
        found = importlib.util.find_spec(name)
        if found is not None and found.loader is not None:
            run = found.loader.exec_module

            def exec_module(module: ModuleType) -> None:
                run(module)
                self._then(module)

            found.loader.exec_module = exec_module  # type: ignore[method-assign]
        return found
