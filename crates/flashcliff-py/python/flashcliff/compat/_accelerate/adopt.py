"""Gives a new module the parameters, buffers and attributes of an old one."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from .counterpart import NotReplaced

__all__ = ["adopt", "home_of"]


def adopt(new: nn.Module, old: nn.Module, carried: list[tuple[str, str, Any]]) -> nn.Module:
    """Puts the parameters and buffers of ``old`` into ``new``, the same objects, so that optimisers keep them.

    Args:
        new: the module that is filled.
        old: the module that has them.
        carried: attributes that somebody gave to modules of ``old``, with the name of the module.

    Raises:
        NotReplaced: names, shapes or the order of parameters differ, or an attribute has no place.
    """
    _check(new, old)
    device, dtype = home_of(old)
    new.to(device=device, dtype=dtype)
    for name, parameter in old.named_parameters(remove_duplicate=False):
        owner, _, leaf = name.rpartition(".")
        new.get_submodule(owner)._parameters[leaf] = parameter
    buffers = dict(old.named_buffers(remove_duplicate=False))
    for name, _ in list(new.named_buffers(remove_duplicate=False)):
        if name in buffers:
            owner, _, leaf = name.rpartition(".")
            new.get_submodule(owner)._buffers[leaf] = buffers[name]
    modules = dict(new.named_modules(remove_duplicate=False))
    for owner, name, value in carried:
        if owner not in modules or hasattr(modules[owner], name):
            raise NotReplaced(f"`{owner or 'it'}` has an attribute `{name}`, which would be lost")
        setattr(modules[owner], name, value)
    return new.train(old.training)


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
