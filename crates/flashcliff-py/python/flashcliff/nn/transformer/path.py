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

__all__ = ["Watch", "known", "of_call", "of_calls", "stands_for"]

Kind = TypeVar("Kind", bound=type[nn.Module])

_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
_REPLACED = ("forward", "_call_impl", "_compiled_call_impl")
"""What runs in the place of a class's functions, if a module has it as an attribute of its own."""
_calls_of = attrgetter("forward", "__call__", "_call_impl")
_CALL, _CALL_IMPL = nn.Module.__call__, nn.Module._call_impl
_MADE: dict[type, Any] = {}
"""The functions that a call of a module runs, as its class was made."""


def stands_for(kind: Kind) -> Kind:
    """Enters a class for whose calls other functions may stand."""
    _MADE[kind] = _calls_of(kind)
    return kind


for _kind in (nn.Linear, nn.ModuleList):
    stands_for(_kind)


def known() -> frozenset[type]:
    """The classes for whose calls other functions may stand."""
    return frozenset(_MADE)


def of_call(module: Any, kind: type[nn.Module]) -> str | None:
    """The reason why the call of a module must be made; ``None`` if a function may stand for calls of its class."""
    return of_calls((module,), kind)


def of_calls(modules: Iterable[Any], kind: type[nn.Module]) -> str | None:
    """The reason why the calls of modules of one class must be made; those that are ``None`` are left out."""
    # The guards of a compiler follow what it reads, and it cannot read how classes were made.
    all_as_made = torch.compiler.is_compiling() or (
        kind.forward is _MADE[kind][0]
        and kind.__call__ is _CALL
        and kind._call_impl is _CALL_IMPL
        and not modules_of_torch._has_any_global_hook()
    )
    for module in modules:
        if module is None:
            continue
        own = module.__dict__
        if (
            type(module) is not kind
            or own["_forward_hooks"]
            or own["_forward_pre_hooks"]
            or own["_backward_hooks"]
            or own["_backward_pre_hooks"]
            or "forward" in own
            or "_call_impl" in own
            or "_compiled_call_impl" in own
            or not all_as_made
        ):
            return "a compiler traces its call" if torch.compiler.is_compiling() else _why(module, kind)
    return None


def _why(module: Any, kind: type | None) -> str | None:
    """What a call of a module would run besides its class's ``forward``. ``kind``: the class; any known one for ``None``."""
    if kind is None:
        kind = type(module)
        if kind not in _MADE:
            return f"is of the class {kind.__name__}"
    if type(module) is not kind:
        return f"is of the class {type(module).__name__}, not {kind.__name__}"
    own = module.__dict__
    for name in _HOOKS:
        if own[name]:
            return f"has hooks ({name.strip('_')})"
    for name in _REPLACED:
        if name in own:
            return f"has {name} as an attribute of its own"
    if _calls_of(kind) != _MADE[kind]:
        return f"has a class, {kind.__name__}, whose forward was replaced"
    if modules_of_torch._has_any_global_hook():
        return "is called with global hooks of modules"
    return None


class Watch:
    """The modules within one, as they are when a function is made that stands for all their calls.

    It refers to the dictionaries in which modules have their parts, so it notices every change that goes by them, at
    little cost. It does not keep the outer module alive.
    """

    def __init__(self, module: nn.Module) -> None:
        named = [(name, inner) for name, inner in module.named_modules() if inner is not module]
        self.names = [name for name, _ in named]
        self.modules = found = [inner for _, inner in named]
        self._kinds = [type(inner) for inner in found]
        self._classes = [kind for kind in dict.fromkeys(self._kinds) if kind in _MADE]
        self._made = [_MADE[kind] for kind in self._classes]
        # The dictionaries of submodules, their keys and their values.
        links = [
            (inner._modules, name, child)
            for inner in (module, *found)
            for name, child in inner._modules.items()
        ]
        self._holders, self._keys, self._held = ([x[at] for x in links] for at in range(3))
        self._counts = list(map(len, self._holders))
        # Hooks of the module itself follow its call, which this is a part of.
        watched = [(inner.__dict__, name) for inner in found for name in (*_HOOKS, *_REPLACED)]
        self._owners, self._watched = [x for x, _ in watched], [name for _, name in watched]
        self.foreign = next(
            (
                f"{name} {_why(inner, None)}"
                for name, inner in named
                if type(inner) not in _MADE
            ),
            None,
        )

    def is_current(self) -> bool:
        """Whether the module has the modules that it had when this was made."""
        # Modules are equal only to themselves. These loops run in every call, so they are those of built-in functions.
        same = list(map(dict.get, self._holders, self._keys)) == self._held
        return (
            same
            and list(map(len, self._holders)) == self._counts
            and list(map(type, self.modules)) == self._kinds
        )

    def note(self, owners: list[dict[str, Any]], names: list[str]) -> _core.Slots:
        """All that :meth:`is_current` and :meth:`reason` read of the modules as it is now, and entries of other dictionaries."""
        hooks = [inner.__dict__[name] for inner in self.modules for name in _HOOKS]
        return _core.Slots(
            [*self._holders, *self._owners, *owners],
            [*self._keys, *self._watched, *names],
            [*self._holders, *hooks],
            self.modules,
        )

    def reason(self, unchanged: bool = False) -> str | None:
        """The reason why the calls of modules must be made, with the name of the first; ``None`` if there is none.

        ``unchanged``: whether the modules are known to be as they were when there was none.
        """
        if self.foreign is not None:
            return self.foreign
        changed = not unchanged and any(map(dict.get, self._owners, self._watched))
        if not changed and list(map(_calls_of, self._classes)) == self._made:
            if not modules_of_torch._has_any_global_hook():
                return None
        for name, inner in zip(self.names, self.modules, strict=True):
            why = _why(inner, None)
            if why is not None:
                return f"{name} {why}"
        return None
