"""Finds what somebody put into a module from outside, which its counterpart would not have.

A class names in its code all attributes, parameters, buffers and modules that it gives itself. What an instance has
besides was given by somebody else.
"""

from __future__ import annotations

import dis
import functools
import sys
import types
from collections.abc import Iterator, Mapping
from typing import Any

from torch import Tensor, nn

from .counterpart import Changed, NotReplaced

__all__ = [
    "attributes",
    "check_contents",
    "check_known",
    "check_methods",
    "empty_caches",
    "odd_part",
]

# Attributes that every module has.
_OF_MODULES = frozenset((*vars(nn.Module()), "_is_full_backward_hook", "training"))
_CONTAINERS = nn.ModuleList, nn.ModuleDict, nn.Sequential, nn.ParameterList, nn.ParameterDict


def check_contents(module: nn.Module) -> None:
    """Checks for hooks, parameters of one plain kind, and one mode.

    Raises:
        Changed: something would be lost.
    """
    first: Tensor | None = None
    for name, inner in module.named_modules(remove_duplicate=False):
        where = _where(name)
        for key, value in vars(inner).items():
            if "_hook" in key and isinstance(value, Mapping) and value:
                raise Changed(f"{where} has hooks, which would be lost")
        if inner.training != module.training:
            modes = {True: "training", False: "evaluation"}
            raise Changed(
                f"{where} is in the mode of {modes[inner.training]} and the whole in that of {modes[module.training]}"
            )
        for leaf, parameter in inner._parameters.items():
            if parameter is not None:
                path = f"{name}.{leaf}" if name else leaf
                first = parameter if first is None else first
                _check_parameter(path, parameter, first)


def _check_parameter(path: str, parameter: Tensor, first: Tensor) -> None:
    if type(parameter) is not nn.Parameter or parameter.layout != first.layout:
        raise Changed(f"its parameter `{path}` is no plain torch.nn.Parameter")
    if parameter.is_meta:
        raise Changed(
            f"its parameter `{path}` has no data yet: call accelerate when it is on a device"
        )
    if (parameter.dtype, parameter.device) != (first.dtype, first.device):
        raise Changed(
            f"its parameter `{path}` is {parameter.dtype} on {parameter.device}, others are {first.dtype} "
            f"on {first.device}"
        )


def check_known(module: nn.Module) -> None:
    """Checks that a module and all within it have only what the code of their classes names.

    Raises:
        Changed: a module has its own method in place of its class's method, or more parameters, buffers or modules.
    """
    for name, inner in module.named_modules(remove_duplicate=False):
        kind, where = type(inner), _where(name)
        for key, value in vars(inner).items():
            # What its own code has compiled is its own.
            if _is_compiled(value) and not _assigns(kind, key):
                raise Changed(
                    f"{where} is compiled: call accelerate first, and compile what it returns"
                )
            of_class = getattr(kind, key, None)
            if key not in _OF_MODULES and callable(of_class) and value is not of_class:
                if not _assigns(kind, key):
                    raise Changed(
                        f"{where} has a `{key}` of its own, in place of that of its class"
                    )
        if not isinstance(inner, _CONTAINERS) and _top(kind) != "flashcliff":
            for key in (*inner._parameters, *inner._buffers, *inner._modules):
                if not _knows(kind, key):
                    raise Changed(
                        f"{where} has a `{key}`, which the code of its class does not name"
                    )
        _check_matrix(where, inner)


def _check_matrix(where: str, inner: nn.Module) -> None:
    if type(inner) is nn.Linear:
        found, wanted = tuple(inner.weight.shape), (inner.out_features, inner.in_features)
        if found != wanted:
            raise Changed(
                f"the weight of {where} has the shape {found}, where its sizes say {wanted}"
            )


def odd_part(module: nn.Module) -> str | None:
    """Says which module within a module somebody put there: its class is of another package, and the code around it does
    not name it. ``None`` where there is none."""
    for name, inner in module.named_modules(remove_duplicate=False):
        owner = _owner(module, name)
        kind, around = type(inner), type(owner)
        if _top(kind) not in ("torch", _top(around)) and not _names_class(around, kind):
            return f"`{name}` is a {kind.__qualname__}, which the code around it does not name"
    return None


def _owner(module: nn.Module, name: str) -> nn.Module:
    """The module whose code has made the inner one of a name; lists are made by what has them."""
    if not name:
        return module.get_submodule(name)
    owner = module.get_submodule(name.rpartition(".")[0])
    above = name.rpartition(".")[0]
    return _owner(module, above) if isinstance(owner, _CONTAINERS) and above else owner


def _top(kind: type) -> str:
    return kind.__module__.split(".")[0]


def _names_class(parent: type, kind: type) -> bool:
    for base in parent.__mro__:
        module = sys.modules.get(base.__module__)
        for value in vars(module).values() if module else ():
            if value is kind:
                return True
            # A module that is imported as a whole, or a function that makes the class.
            inner = vars(value) if isinstance(value, types.ModuleType) else {}
            inner = value.__globals__ if isinstance(value, types.FunctionType) else inner
            if any(found is kind for found in inner.values()):
                return True
    return False


def check_methods(new: nn.Module, old: nn.Module) -> None:
    """Checks that ours has all methods that others may call.

    Raises:
        NotReplaced: it lacks one, as where somebody derived a class to add it.
    """
    for base in type(old).__mro__:
        if _top(base) not in ("torch", "builtins"):
            for name, value in vars(base).items():
                public = name[0] != "_" and isinstance(value, types.FunctionType | property)
                # It is called when a module is made.
                if public and name != "reset_parameters" and not hasattr(type(new), name):
                    raise NotReplaced(f"its class has a `{name}`, which ours has not")


def attributes(module: nn.Module) -> list[tuple[str, str, Any, bool]]:
    """The attributes that modules have besides the attributes of all modules.

    Returns:
        For each the name of the module, the name of the attribute, its value, and whether somebody else gave it.
    """
    found = []
    for name, inner in module.named_modules(remove_duplicate=False):
        for key, value in vars(inner).items():
            if key not in _OF_MODULES:
                foreign = not _knows(type(inner), key) and not hasattr(type(inner), key)
                found.append((name, key, value, foreign))
    return found


def _is_compiled(value: Any) -> bool:
    """Whether an attribute is what :func:`torch.compile` makes of a function."""
    while value is not None:
        if hasattr(value, "_torchdynamo_orig_callable"):
            return True
        value = getattr(value, "__wrapped__", None)
    return False


def _where(name: str) -> str:
    return f"`{name}`" if name else "it"


def _knows(kind: type, key: str) -> bool:
    """Whether the code of a class names an attribute, or a beginning of its name, as loops do."""
    names = _names(kind)
    return key in names or any(len(n) > 2 and key.startswith(n) for n in names if n.endswith("_"))


def _assigns(kind: type, key: str) -> bool:
    """Whether the code of a class gives its instances an attribute."""
    return any(key in _stored(kind, started) for started in (True, False))


def empty_caches(module: nn.Module) -> None:
    """Gives attributes in which a module and those within it keep what they can compute again the values that they had at
    first: those that the code of a class sets to a constant at the start and to something else later."""
    for inner in module.modules():
        kind: Any = type(inner)
        first, later = (_stored(kind, started) for started in (True, False))
        for key in vars(inner).keys() & first.keys() & later.keys():
            if first[key] is not _NOT_CONSTANT:
                vars(inner)[key] = first[key]


_NOT_CONSTANT = object()


@functools.cache
def _stored(kind: type, started: bool) -> dict[str, Any]:
    """The attributes that the code of a class stores when an instance is made, or later, with the constants they get."""
    found: dict[str, Any] = {}
    for base in kind.__mro__:
        if base in (nn.Module, object):
            continue
        for name, value in vars(base).items():
            if (name == "__init__") == started:
                for code in _codes(value):
                    found = _stores(code) | found
    return found


def _stores(code: types.CodeType) -> dict[str, Any]:
    steps = list(dis.get_instructions(code))
    found = {}
    for number, step in enumerate(steps):
        if step.opname == "STORE_ATTR":
            # The value is loaded first, then the owner.
            value = steps[number - 2]
            constant = value.argval if value.opname == "LOAD_CONST" else _NOT_CONSTANT
            found[step.argval] = constant
    return found


@functools.cache
def _names(kind: type) -> frozenset[str]:
    """All names and strings in the code of a class and its bases, as far as :class:`torch.nn.Module`."""
    found: set[str] = set()
    for base in kind.__mro__:
        if base in (nn.Module, object):
            continue
        found |= set(getattr(base, "__annotations__", {}))
        for value in vars(base).values():
            for code in _codes(value):
                found |= {*code.co_names, *(c for c in code.co_consts if isinstance(c, str))}
    return frozenset(found)


def _codes(value: Any) -> Iterator[types.CodeType]:
    """The code of a function and of what it wraps and contains."""
    if isinstance(value, staticmethod | classmethod):
        value = value.__func__
    if isinstance(value, property):
        for part in (value.fget, value.fset):
            yield from _codes(part)
    while value is not None:
        code = getattr(value, "__code__", None)
        if isinstance(code, types.CodeType):
            yield from _within(code)
        value = getattr(value, "__wrapped__", None)


def _within(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _within(constant)
