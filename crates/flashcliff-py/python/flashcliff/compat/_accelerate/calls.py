"""Lets a counterpart be called as the module that it replaces is called."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from .structure import signature

__all__ = ["called_as"]


@dataclass(frozen=True)
class Renaming:
    """A hook before the call of a counterpart, which gives its arguments the names that they have here."""

    names: tuple[str, ...]
    """The parameters of the other module's call, in order."""

    def __call__(
        self, module: nn.Module, given: tuple[Any, ...], named: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        found = dict(zip(self.names, given)) | named
        mask = found.pop("attention_mask", None)
        if mask is not None:
            # What is no tensor is an object of xformers.
            found["attn_mask" if isinstance(mask, Tensor) else "attn_bias"] = mask
        return (), found


def called_as(new: nn.Module, old: nn.Module) -> nn.Module:
    """Makes a counterpart take the calls of another module, by position and by name."""
    names, ours = tuple(signature(old)), tuple(signature(new))
    # Callers give the only argument by position.
    if len(names) > 1 and names != ours[: len(names)]:
        new.register_forward_pre_hook(Renaming(names), with_kwargs=True)
    return new
