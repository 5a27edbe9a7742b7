"""Gives a new module the parameters and buffers of an old one."""

from __future__ import annotations

from torch import nn


class NotReplaced(Exception):
    """A module has no counterpart here; the message says why."""


def adopt(new: nn.Module, old: nn.Module) -> nn.Module:
    """Puts the parameters and buffers of ``old`` into ``new``, the same objects, so that optimisers keep them.

    Raises:
        NotReplaced: the names or shapes differ, or ``old`` has hooks, which would be lost.
    """
    _check(new, old)
    for name, parameter in old.named_parameters():
        owner, _, leaf = name.rpartition(".")
        new.get_submodule(owner)._parameters[leaf] = parameter
    buffers = dict(old.named_buffers())
    for name, _ in list(new.named_buffers()):
        if name in buffers:
            owner, _, leaf = name.rpartition(".")
            new.get_submodule(owner)._buffers[leaf] = buffers[name]
    return new.train(old.training)


def _check(new: nn.Module, old: nn.Module) -> None:
    for name, module in old.named_modules():
        if module._forward_hooks or module._forward_pre_hooks or module._backward_hooks:
            raise NotReplaced(f"`{name or 'it'}` has hooks, which would be lost")
    found = {name: tuple(p.shape) for name, p in old.named_parameters()}
    made = {name: tuple(p.shape) for name, p in new.named_parameters()}
    for name in sorted(found.keys() | made.keys()):
        if found.get(name) != made.get(name):
            raise NotReplaced(
                f"its parameter `{name}` has the shape {found.get(name)}, where ours has {made.get(name)}"
            )
