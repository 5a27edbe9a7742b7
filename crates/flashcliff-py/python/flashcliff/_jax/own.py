"""Calls of operators that users have written, on arrays of JAX. Importing this module does not import JAX."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from .. import _core
from .._ops.op import CACHED

Argument = tuple[str, Any, bool]
"""The name of an argument, what was given for it, and whether it has a batch."""


@lru_cache(maxsize=CACHED)
def _content(made: _core.Operator) -> str:
    return made.content


def is_among(given: Sequence[Argument]) -> bool:
    """Whether an array of JAX is among the arguments. Where JAX is not imported there is none."""
    jax = sys.modules.get("jax")
    array = getattr(jax, "Array", None)
    return array is not None and any(isinstance(value, array) for _, value, _ in given)


def call(operator: str, made: _core.Operator, given: Sequence[Argument]) -> list[Any]:
    """The results, which can be differentiated.

    Args:
        operator: the name of the operator, for messages.
        made: the operator.
        given: its arguments.
    """
    from .call import outputs
    from .which import Which

    return outputs(operator, Which(_content(made)), given)
