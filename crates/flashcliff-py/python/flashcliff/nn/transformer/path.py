"""The choice between the calls of modules and a function that stands for them, and the reason for it.

A module is what its user made of it: hooks, parametrizations, another class or another ``forward`` count at every call, so
a function stands for the call of a module only while the module is as its class made it.
"""

from __future__ import annotations

from collections.abc import Iterable
from operator import attrgetter
from typing import Any, TypeVar

import torch
from torch import nn
from torch.nn.modules import module as modules_of_torch

from ... import _core

__all__ = ["Watch", "known", "of_call", "stands_for", "why_called", "why_other"]

Kind = TypeVar("Kind", bound=type[nn.Module])

_PACKAGE = __name__.partition(".")[0]
_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
_GLOBAL_HOOKS = (
    *(f"_global{hooks}" for hooks in _HOOKS),
    "_global_forward_hooks_always_called",
    "_global_forward_hooks_with_kwargs",
)
_REPLACED = ("forward", "_call_impl", "_compiled_call_impl")
"""What runs in the place of a class's functions, if a module itself has an attribute of this name."""
_calls_of = attrgetter("forward", "__call__", "_call_impl")
_CALL, _CALL_IMPL = nn.Module.__call__, nn.Module._call_impl
_MADE: dict[type, Any] = {}
"""The functions that a call of a module runs, as its class was made."""


def stands_for(kind: Kind) -> Kind:
    """Enters a class for whose calls other functions may stand."""
    _MADE[kind] = _calls_of(kind)
    return kind


_NAMED = nn.BatchNorm1d, nn.Dropout, nn.Identity
"""Classes that count only within modules whose class names them as its ``describes``."""
for _kind in (nn.Linear, nn.ModuleList, nn.ReLU, nn.Sequential, nn.SiLU, *_NAMED):
    stands_for(_kind)


def known() -> frozenset[type]:
    """The classes for whose calls other functions may stand."""
    return frozenset(_MADE).difference(_NAMED)


def of_call(module: nn.Module, kind: type[nn.Module]) -> str | None:
    """The reason why the call of a module must be made; ``None`` if a function may stand for calls of its class."""
    if not torch.compiler.is_compiling():
        return _why(module, kind)
    # The guards of a compiler follow what it reads, and it cannot read how classes were made.
    own = module.__dict__
    as_made = type(module) is kind and not any(own[name] for name in _HOOKS)
    return None if as_made and not any(name in own for name in _REPLACED) else "a compiler traces its call"


def _why(module: Any, kind: type | None, named: Iterable[type] = ()) -> str | None:
    """What a call of a module would run besides its class's ``forward``. ``kind``: the class; for ``None`` any known or named one."""
    if kind is None:
        kind = type(module)
        if kind not in _MADE or (kind in _NAMED and kind not in named):
            return f"is of the class {kind.__name__}"
    if type(module) is not kind:
        return f"is of the class {type(module).__name__}, not {kind.__name__}"
    own = _why_of_its_own(module, _HOOKS, _REPLACED)
    if own is not None:
        return own
    if _calls_of(kind) != _MADE[kind]:
        return f"has a class, {kind.__name__}, whose forward was replaced"
    if _has_global_hooks():
        return "is called with global hooks of modules"
    return None


def _has_global_hooks() -> bool:
    """Whether PyTorch calls something at the call of any module."""
    return any(getattr(modules_of_torch, name) for name in _GLOBAL_HOOKS)


def _why_of_its_own(module: Any, hooks: Iterable[str], replaced: Iterable[str]) -> str | None:
    """The hooks of a module, or what it has in the place of a function of its class."""
    own = module.__dict__
    for name in hooks:
        if own[name]:
            return f"has hooks ({name.strip('_')})"
    for name in replaced:
        if name in own:
            return f"has {name} as an attribute of its own"
    return None


def why_other(module: nn.Module) -> str | None:
    """The reason why a module, or one within it, gives another result than its class, or one that this package derives from it."""
    kind = type(module)
    own = _why_of_its_own(module, _HOOKS[:2], _REPLACED[:2])
    if own is None and not kind.forward.__module__.startswith(f"{_PACKAGE}."):
        own = f"is of the class {kind.__name__}, which has a forward of its own"
    return why_called(module, False) if own is None else f"it {own}"


def why_called(module: nn.Module, with_itself: bool = True) -> str | None:
    """The reason why a module within another, or the module itself, must be called, with its name; ``None`` if there is none."""
    named = getattr(type(module), "describes", ())
    for name, inner in module.named_modules():
        if inner is module and not with_itself:
            continue
        why = _why(inner, None, named)
        if why is not None:
            return f"{name} {why}" if name else f"it {why}"
    return None


class Watch:
    """A module with the modules within it, as they are, so that every change is noticed at little cost.

    It refers to the dictionaries in which modules have their parts. It does not keep the module itself alive.

    Args:
        module: the module. Its own hooks follow its call, which this is a part of.
        facts: entries of other dictionaries that count, too.
    """

    def __init__(self, module: nn.Module, facts: Iterable[tuple[dict[str, Any], str]]) -> None:
        inner = [x for x in module.modules() if x is not module]
        slots = [(x._modules, name) for x in (module, *inner) for name in x._modules]
        slots += [(x.__dict__, name) for x in inner for name in (*_HOOKS, *_REPLACED)]
        slots += facts
        hooks = [x.__dict__[name] for x in inner for name in _HOOKS]
        sizes = [*(x._modules for x in (module, *inner)), *hooks]
        owners, names = [owner for owner, _ in slots], [name for _, name in slots]
        self._slots = _core.Slots(owners, names, sizes, inner)
        self._classes = [kind for kind in dict.fromkeys(map(type, inner)) if kind in _MADE]

    def is_same(self) -> bool:
        """Whether all is as it was."""
        return self._slots.are_same()

    def why_called(self) -> str | None:
        """The reason why all modules must be called, if there is one."""
        if _has_global_hooks():
            return "modules are called with global hooks"
        for kind, calls in zip(self._classes, map(_calls_of, self._classes)):
            if calls != _MADE[kind]:
                return f"the class {kind.__name__} has a forward that was replaced"
        return None
