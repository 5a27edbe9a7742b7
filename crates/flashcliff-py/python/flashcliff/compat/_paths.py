"""Modules of other libraries, by the paths in which these keep them.

A path such as ``layers.attention.config`` needs no file here: its module is made of names that are elsewhere, so an import
changes nothing but the name of the package.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from types import ModuleType

__all__ = ["offer"]


def offer(package: str, paths: Iterable[tuple[str, ModuleType, str]]) -> None:
    """Makes names importable by the paths of another library.

    Args:
        package: the package whose inner paths are offered; all its modules must be imported.
        paths: a path, the module that has names, and the names. A module that exists at a path gets names that it
            lacks. Outer paths come before inner ones.
    """
    for path, source, names in paths:
        full = f"{package}.{path}"
        module = sys.modules.get(full)
        if module is None:
            module = sys.modules[full] = ModuleType(full, f"Names of :mod:`{source.__name__}`.")
            parent, _, last = full.rpartition(".")
            # A function may have the name of the module that it is in, as `dual` of GATr has.
            vars(sys.modules[parent]).setdefault(last, module)
        for name in names.split():
            vars(module).setdefault(name, getattr(source, name))
