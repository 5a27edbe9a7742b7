"""Finds functions and methods of a package that somebody replaced."""

from __future__ import annotations

import functools
import importlib.util
import os
import sys
import sysconfig
import types
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from .counterpart import Changed

__all__ = ["check_code"]


def check_code(module: nn.Module) -> None:
    """Checks that the functions of a module's packages, and the methods of its classes, come from files of the package.

    Classes of PyTorch are not looked at, nor packages that were not imported from files.

    Raises:
        Changed: a function does not; the message names it.
    """
    classes = {c for inner in module.modules() for c in type(inner).__mro__}
    tops = {c.__module__.split(".")[0] for c in classes} - {"builtins", "torch", "flashcliff"}
    for top in sorted(tops):
        roots = _roots(top)
        if roots is None:
            continue
        for kind in classes:
            if kind.__module__.split(".")[0] == top:
                for name, value in vars(kind).items():
                    if not _comes_from(value, roots, top):
                        raise Changed(f"`{kind.__qualname__}.{name}` was replaced")
        names = _defined(top)
        for place, name, value in _globals(top):
            if name in names and not isinstance(value, type) and not _comes_from(value, roots, top):
                raise Changed(f"the function `{place}.{name}` was replaced")


def _roots(top: str) -> tuple[str, ...] | None:
    """The folders of a package, and of the libraries whose decorators it may use."""
    package = sys.modules.get(top)
    folders = list(getattr(package, "__path__", ()))
    if not folders:
        return None
    paths = sysconfig.get_paths()
    libraries = [*torch.__path__, paths["stdlib"], paths["platstdlib"]]
    return tuple(os.path.realpath(folder) + os.sep for folder in (*folders, *libraries))


def _globals(top: str) -> Iterator[tuple[str, str, Any]]:
    for place, module in list(sys.modules.items()):
        if isinstance(module, types.ModuleType) and place.split(".")[0] == top:
            for name, value in list(vars(module).items()):
                yield place, name, value


def _defined(top: str) -> set[str]:
    """The names of all functions that modules of a package define."""
    names: set[str] = set()
    for place in list(sys.modules):
        if place.split(".")[0] == top:
            names |= _defined_in(place)
    return names


@functools.cache
def _defined_in(place: str) -> frozenset[str]:
    try:
        spec = importlib.util.find_spec(place)
        code = spec.loader.get_code(place)  # type: ignore[union-attr]
    except (AttributeError, ImportError, ValueError):
        return frozenset()
    if code is None:
        return frozenset()
    inner = (c for c in code.co_consts if isinstance(c, types.CodeType))
    # Bodies of classes have no new locals.
    return frozenset(c.co_name for c in inner if c.co_flags & 2 and c.co_name[0] != "<")


def _comes_from(value: Any, roots: tuple[str, ...], top: str) -> bool:
    """Whether the code of a function, and of what it wraps, stands in files of the folders, or it is an object of the
    package ``top``."""
    if isinstance(value, staticmethod | classmethod):
        value = value.__func__
    if isinstance(value, property):
        return all(_comes_from(f, roots, top) for f in (value.fget, value.fset, value.fdel) if f)
    if isinstance(value, functools.partialmethod):
        return False
    if isinstance(value, functools.cached_property):
        value = value.func
    while value is not None:
        if isinstance(value, types.FunctionType):
            # Methods of dataclasses have no file.
            file = value.__code__.co_filename
            if file != "<string>" and not os.path.realpath(file).startswith(roots):
                return False
        elif not hasattr(value, "__wrapped__"):
            kind = type(value).__module__.split(".")[0]
            return not callable(value) or kind in ("builtins", "torch", "typing", top)
        value = getattr(value, "__wrapped__", None)
    return True
