"""Gives a new module the parameters, buffers and attributes of an old one."""

from __future__ import annotations

import dataclasses
from typing import Any

import torch
from torch import nn

from .counterpart import NotReplaced
from .outside import attributes

__all__ = ["adopt", "carry", "check_state", "home_of"]


def adopt(new: nn.Module, old: nn.Module) -> nn.Module:
    """Puts the parameters and buffers of ``old`` into ``new``, the same objects, so that optimisers keep them.

    Args:
        new: the module that is filled.
        old: the module that has them.

    Raises:
        NotReplaced: names, shapes or the order of parameters differ, or a buffer of the state dict has no place.
    """
    _check(new, old)
    _share(new, old)
    device, dtype = home_of(old)
    new.to(device=device, dtype=dtype)
    for name, parameter in old.named_parameters(remove_duplicate=False):
        owner, _, leaf = name.rpartition(".")
        new.get_submodule(owner)._parameters[leaf] = parameter
    _adopt_buffers(new, old)
    return new.train(old.training)


def _share(new: nn.Module, old: nn.Module) -> None:
    """Makes modules of ``new`` one module where the modules of ``old`` are one, such as blocks that are called twice."""
    places = dict(new.named_modules(remove_duplicate=False))
    names: dict[nn.Module, str] = {}
    for name, inner in old.named_modules(remove_duplicate=False):
        first, other = places.get(names.setdefault(inner, name)), places.get(name)
        if first is not other and type(first) is type(other):
            owner, _, leaf = name.rpartition(".")
            new.get_submodule(owner)._modules[leaf] = first


def _adopt_buffers(new: nn.Module, old: nn.Module) -> None:
    """Shares the buffers of both, and gives ``new`` those tables of ``old`` that its state dict has."""
    places = dict(new.named_modules(remove_duplicate=False))
    for name, inner in old.named_modules(remove_duplicate=False):
        for leaf, buffer in inner._buffers.items():
            saved = leaf not in inner._non_persistent_buffers_set
            place = places.get(name)
            if place is not None and leaf in place._buffers:
                place._buffers[leaf] = buffer
            elif place is not None and saved and not hasattr(place, leaf):
                place.register_buffer(leaf, buffer)
            elif saved and buffer is not None:
                path = f"{name}.{leaf}" if name else leaf
                raise NotReplaced(
                    f"its buffer `{path}` is in the state dict and has no place in ours"
                )


def check_state(new: nn.Module, old: nn.Module) -> None:
    """Checks that both have state dicts of the same keys.

    Raises:
        NotReplaced: one has a key that the other lacks.
    """
    odd = old.state_dict().keys() ^ new.state_dict().keys()
    if odd:
        raise NotReplaced(f"`{min(odd)}` is in the state dict of one of both only")


def carry(new: nn.Module, old: nn.Module) -> None:
    """Gives ``new`` the attributes that ``old`` and the modules within it have, and that it lacks.

    What somebody else gave to a module must find a place; of what the module's class gave only plain values are taken.

    Raises:
        NotReplaced: an attribute has no place.
    """
    places = dict(new.named_modules(remove_duplicate=False))
    for owner, name, value, foreign in attributes(old):
        place = places.get(owner)
        if place is not None and not hasattr(place, name):
            if foreign or _is_plain(value):
                setattr(place, name, value)
        elif foreign:
            raise NotReplaced(f"`{owner or 'it'}` has an attribute `{name}`, which would be lost")


def _is_plain(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return all(map(_is_plain, value))
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return True
    return value is None or isinstance(value, bool | int | float | str)


def home_of(module: nn.Module) -> tuple[torch.device, torch.dtype | None]:
    """The device of a module's parameters and buffers, and the type of its parameters."""
    for tensor in (*module.parameters(), *module.buffers()):
        return tensor.device, tensor.dtype if tensor.is_floating_point() else None
    return torch.device("cpu"), None


def _check(new: nn.Module, old: nn.Module) -> None:
    found = {n: tuple(p.shape) for n, p in old.named_parameters(remove_duplicate=False)}
    made = {n: tuple(p.shape) for n, p in new.named_parameters(remove_duplicate=False)}
    for name in sorted(found.keys() | made.keys()):
        if found.get(name) != made.get(name):
            raise NotReplaced(
                f"its parameter `{name}` has the shape {found.get(name)}, where ours has {made.get(name)}"
            )
    if list(found) != list(made):
        raise NotReplaced("its parameters have another order, by which optimisers keep states")
