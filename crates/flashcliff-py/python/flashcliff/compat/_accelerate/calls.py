"""Lets a counterpart be called as the module that it replaces is called."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from .structure import signature

__all__ = ["called_as"]

# What the mask is called in GATr and in ancestors of L-GATr, and in L-GATr.
_MASK, _OUR_MASK = "attention_mask", "attn_mask"


@dataclass(frozen=True)
class Renaming:
    """A hook before the call of a counterpart, which gives its arguments the names that they have here."""

    names: tuple[tuple[str, str], ...]
    """The parameters of the other module's call, in order, and what ours calls them."""

    def __call__(
        self, module: nn.Module, given: tuple[Any, ...], named: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        ours = dict(self.names)
        found = {ours[theirs]: value for (theirs, _), value in zip(self.names, given)}
        found |= {ours.get(name, name): value for name, value in named.items()}
        mask = found.get(_OUR_MASK)
        if not isinstance(mask, Tensor):
            found.pop(_OUR_MASK, None)
            # What is not a tensor is an object of xformers.
            found |= {} if mask is None else {"attn_bias": mask}
        return (), found


def called_as(new: nn.Module, old: nn.Module) -> nn.Module:
    """Makes a counterpart take the calls of another module, by position and by name."""
    theirs, ours = tuple(signature(old)), tuple(signature(new))
    # Callers give the only argument by position.
    if len(theirs) > 1 and theirs != ours[: len(theirs)]:
        names = tuple((name, _ours(name, at, theirs, ours)) for at, name in enumerate(theirs))
        new.register_forward_pre_hook(Renaming(names), with_kwargs=True)
    return new


def _ours(name: str, at: int, theirs: tuple[str, ...], ours: tuple[str, ...]) -> str:
    """Our name of a parameter: the same, or that in its place which the other call has nowhere."""
    if name in ours:
        return name
    if name == _MASK:
        return _OUR_MASK
    return name if at >= len(ours) or ours[at] in theirs else ours[at]
