"""Calls of ``torch.ops.flashcliff`` as rows, and their operations as PyTorch's counter asks for them."""

from __future__ import annotations

from typing import Any

from .._ops.library import Registered
from .._ops.op import MADE
from .._ops.tensor_types import NAMES
from .costs import cost
from .events import Key

__all__ = ["operations"]


def _key_of(registered: Registered, args: tuple[Any, ...], backward: bool) -> Key:
    """The key of a call of the dispatcher."""
    tensors, core, wanted = registered.bound(args, backward)
    first = tensors[0]
    return Key(
        MADE[core.native],
        "backward" if backward else "forward",
        tuple([tuple(tensor.shape) for tensor in tensors]),
        NAMES[first.dtype],
        str(first.device),
        wanted,
        registered.op.saves and not backward,
    )


def operations(
    registered: Registered, args: tuple[Any, ...], named: dict[str, Any], backward: bool
) -> int:
    """The floating-point operations of a call of the dispatcher."""
    overload = registered.backward if backward else registered.forward
    arguments = overload._schema.arguments[len(args) :]
    rest = [named.get(one.name, one.default_value) for one in arguments]
    return cost(_key_of(registered, (*args, *rest), backward)).flops
