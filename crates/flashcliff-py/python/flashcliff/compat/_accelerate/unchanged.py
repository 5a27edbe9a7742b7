"""Finds what somebody changed in a module, by comparing it with a fresh one of the same configuration."""

from __future__ import annotations

import functools
import types
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from .counterpart import NotReplaced

__all__ = ["check_contents", "check_unchanged"]

Carried = list[tuple[str, str, Any]]

# Attributes of each module that are compared by other means, or that only say how hooks once were registered.
_APART = {
    "_buffers",
    "_is_full_backward_hook",
    "_modules",
    "_parameters",
    "training",
}


def check_contents(module: nn.Module) -> None:
    """Checks what can be seen without a fresh module: hooks, parameters of one plain kind, and one mode.

    Raises:
        NotReplaced: something would be lost.
    """
    first: Tensor | None = None
    for name, inner in module.named_modules(remove_duplicate=False):
        where = f"`{name}`" if name else "it"
        for key, value in vars(inner).items():
            if "_hook" in key and isinstance(value, Mapping) and value:
                raise NotReplaced(f"{where} has hooks, which would be lost")
        if inner.training != module.training:
            modes = {True: "training", False: "evaluation"}
            raise NotReplaced(
                f"{where} is in the mode of {modes[inner.training]} and the whole in that of {modes[module.training]}"
            )
        for leaf, parameter in inner._parameters.items():
            if parameter is None:
                continue
            path = f"{name}.{leaf}" if name else leaf
            if type(parameter) is not nn.Parameter or parameter.layout != torch.strided:
                raise NotReplaced(f"its parameter `{path}` is no plain torch.nn.Parameter")
            if parameter.is_meta:
                raise NotReplaced(
                    f"its parameter `{path}` has no data yet: call accelerate when it is on a device"
                )
            first = parameter if first is None else first
            if (parameter.dtype, parameter.device) != (first.dtype, first.device):
                raise NotReplaced(
                    f"its parameter `{path}` is {parameter.dtype} on {parameter.device}, others are {first.dtype} "
                    f"on {first.device}"
                )


def check_unchanged(given: nn.Module, fresh: nn.Module, caches: frozenset[str]) -> Carried:
    """Compares classes, attributes and buffers of a module and all within it with those of a fresh one.

    Args:
        given: the module.
        fresh: one of the same class and configuration.
        caches: names of attributes that may differ.

    Returns:
        The attributes that the given modules have besides, with the name of the module.

    Raises:
        NotReplaced: something else was changed; the message names the layer.
    """
    pairs: dict[nn.Module, nn.Module] = {}
    _pair("", given, fresh, pairs)
    carried: Carried = []
    for name, inner in given.named_modules(remove_duplicate=False):
        _compare(name, inner, pairs[inner], pairs, caches, carried)
    return carried


def _pair(name: str, given: nn.Module, fresh: nn.Module, pairs: dict[nn.Module, nn.Module]) -> None:
    where = f"`{name}`" if name else "it"
    if type(given) is not type(fresh):
        raise NotReplaced(
            f"{where} is a {_class(given)}, where the package has a {_class(fresh)} in such a network"
        )
    ours, theirs = list(given._modules), list(fresh._modules)
    if ours != theirs:
        odd = sorted(set(ours) ^ set(theirs)) or ours
        raise NotReplaced(f"{where} has other modules than a fresh one: `{odd[0]}`")
    pairs[given] = fresh
    for key, inner in given._modules.items():
        other = fresh._modules[key]
        path = f"{name}.{key}" if name else key
        if inner is None or other is None:
            if inner is not other:
                raise NotReplaced(
                    f"`{path}` is {_class(inner)}, where the package has {_class(other)}"
                )
            continue
        _pair(path, inner, other, pairs)


def _class(module: nn.Module | None) -> str:
    return "None" if module is None else type(module).__qualname__


def _compare(
    name: str,
    given: nn.Module,
    fresh: nn.Module,
    pairs: dict[nn.Module, nn.Module],
    caches: frozenset[str],
    carried: Carried,
) -> None:
    where = f"`{name}`" if name else "it"
    for kind in ("_parameters", "_buffers"):
        found, made = (
            {key: value is None for key, value in vars(m)[kind].items()} for m in (given, fresh)
        )
        if found != made:
            odd = sorted(found.items() ^ made.items())[0][0]
            raise NotReplaced(f"{where} has other {kind[1:]} than a fresh one: `{odd}`")
    for key, buffer in given._buffers.items():
        if buffer is not None and not _same_buffer(buffer, fresh._buffers[key]):
            raise NotReplaced(f"the buffer `{key}` of {where} was changed")
    theirs = vars(fresh)
    for key, value in vars(given).items():
        if key in _APART or key in caches:
            continue
        if key in theirs:
            if not _same(value, theirs[key], pairs, set()):
                raise NotReplaced(f"`{key}` of {where} was changed")
        elif isinstance(getattr(type(given), key, None), functools.cached_property):
            if not _same(value, getattr(fresh, key), pairs, set()):
                raise NotReplaced(f"`{key}` of {where} was changed")
        elif _is_compiled(value):
            raise NotReplaced(
                f"{where} is compiled: call accelerate first, and compile what it returns"
            )
        elif not hasattr(type(given), key):
            carried.append((name, key, value))
        elif value is not getattr(type(given), key):
            raise NotReplaced(f"{where} has a `{key}` of its own, in place of that of its class")
    for key in theirs.keys() - vars(given).keys() - _APART - caches:
        raise NotReplaced(f"{where} has lost its attribute `{key}`")


def _is_compiled(value: Any) -> bool:
    """Whether an attribute is what :func:`torch.compile` makes of a function."""
    while value is not None:
        if hasattr(value, "_torchdynamo_orig_callable"):
            return True
        value = getattr(value, "__wrapped__", None)
    return False


def _same_buffer(given: Tensor, fresh: Tensor | None) -> bool:
    if fresh is None or given.shape != fresh.shape or type(given) is not Tensor:
        return False
    return torch.equal(fresh.to(given.device, given.dtype), given)


def _same(a: Any, b: Any, pairs: Mapping[nn.Module, nn.Module], seen: set[tuple[int, int]]) -> bool:
    """Whether two attributes are alike; ``pairs`` has the fresh module of each given one."""
    if a is b or (id(a), id(b)) in seen:
        return True
    if type(a) is not type(b):
        return False
    seen.add((id(a), id(b)))

    def alike(x: Any, y: Any) -> bool:
        return _same(x, y, pairs, seen)

    if isinstance(a, nn.Module):
        return pairs.get(a) is b
    if isinstance(a, Tensor):
        if (a.shape, a.dtype, a.layout) != (b.shape, b.dtype, b.layout):
            return False
        return a.device.type != "meta" and torch.equal(a.detach().cpu(), b.detach().cpu())
    if isinstance(a, types.MethodType):
        return a.__func__ is b.__func__ and alike(a.__self__, b.__self__)
    if isinstance(a, functools.partial):
        return all(map(alike, (a.func, a.args, a.keywords), (b.func, b.args, b.keywords)))
    if isinstance(a, types.FunctionType):
        cells = [[c.cell_contents for c in f.__closure__ or ()] for f in (a, b)]
        made_by = [(f.__code__, f.__defaults__, f.__kwdefaults__) for f in (a, b)]
        return made_by[0] == made_by[1] and alike(*cells)
    if isinstance(a, Mapping):
        return list(a) == list(b) and all(alike(a[key], b[key]) for key in a)
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(alike, a, b))
    if isinstance(a, float):
        return a == b or (a != a and b != b)
    if type(a).__eq__ is object.__eq__ and hasattr(a, "__dict__"):
        return alike(vars(a), vars(b))
    try:
        return bool(a == b)
    except (TypeError, ValueError, RuntimeError):
        return hasattr(a, "__dict__") and alike(vars(a), vars(b))
