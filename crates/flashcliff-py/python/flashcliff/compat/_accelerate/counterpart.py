"""What is known of a module that may be replaced."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

__all__ = ["Call", "Changed", "Counterpart", "Draw", "Form", "NotReplaced"]

Call = tuple[Sequence[Any], Mapping[str, Any]]
"""Positional and named arguments of a call."""

Draw = Callable[..., Tensor]
"""Makes a random tensor of a shape."""


class NotReplaced(Exception):
    """A module has no counterpart here; the message says why."""


class Changed(NotReplaced):
    """Somebody changed the module or one within it, so all of it is left as it is; the message says how."""


@dataclass(frozen=True)
class Counterpart:
    """A module of ours that may do the same as another, and how to find out whether it does."""

    make: Callable[[], nn.Module]
    """Makes the counterpart."""
    calls: Callable[[Draw], list[Call]]
    """Calls on random input. The other module may refuse some of them, but not all."""


@dataclass(frozen=True)
class Form:
    """Modules of one shape."""

    name: str
    """What such modules are called in reports."""
    matches: Callable[[Any], bool]
    """Whether a module has the parameters, buffers and modules of the form."""
    counterparts: Callable[[Any], list[Counterpart]]
    """What may do the same, the most likely first. It raises :class:`NotReplaced` or any error of what it reads."""
    telling: bool = True
    """Whether a module that matches is surely meant as one of the form. If not, reports leave out those that are kept."""
