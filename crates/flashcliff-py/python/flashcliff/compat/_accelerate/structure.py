"""Reads what a module is from its parameters, buffers and modules: names, shapes and counts, never its class."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from ..lgatr import v1

__all__ = [
    "MAPS",
    "channels",
    "children",
    "group_of",
    "has",
    "heads_of",
    "is_linear",
    "mask",
    "mask_name",
    "maps_of",
    "number",
    "parameters",
    "probabilities",
    "scalars",
    "signature",
]

MAPS = {9: "GATr", 10: "L-GATr", 5: "L-GATr"}
"""How many linear maps of multivectors commute with the group of each family."""

_OF_SCALARS = {"s2mvs", "mvs2s", "s2s"}
_OF_PROBABILITY = ("_dropout_prob", "dropout_prob", "p")


# How many digits of a decimal each type keeps.
_DIGITS = (torch.bfloat16, 2), (torch.float16, 3), (torch.float32, 6)


def number(value: Any) -> float | None:
    """A number that a module has, as an attribute or in a buffer; ``None`` if it is neither.

    A buffer may have it in fewer bits. It was written as a short decimal, which is what is returned.
    """
    if isinstance(value, Tensor) and value.numel() == 1 and value.is_floating_point():
        stored = float(value)
        for dtype, digits in _DIGITS:
            short = float(f"{stored:.{digits}g}")
            if float(torch.tensor(short, dtype=dtype)) == stored:
                return short
        return stored
    is_number = isinstance(value, float | int) and not isinstance(value, bool)
    return float(value) if is_number else None


def children(module: nn.Module) -> set[str]:
    """The names of the modules that a module has."""
    return {name for name, inner in module._modules.items() if inner is not None}


def parameters(module: nn.Module) -> dict[str, tuple[int, ...]]:
    """The shapes of a module's own parameters."""
    return {n: tuple(p.shape) for n, p in module._parameters.items() if p is not None}


def has(module: Any, names: Iterable[str]) -> bool:
    """Whether a module has modules of all these names."""
    return isinstance(module, nn.Module) and set(names) <= children(module)


def is_linear(module: Any) -> bool:
    """Whether a module maps channels of multivectors by weights of all equivariant maps."""
    if not isinstance(module, nn.Module) or not children(module) <= _OF_SCALARS:
        return False
    shapes = parameters(module)
    weight = shapes.get("weight", ())
    known = shapes.keys() <= {"weight", "bias"} and len(shapes.get("bias", (0, 1))) == 2
    return known and len(weight) == 3 and weight[-1] in MAPS


def maps_of(module: nn.Module) -> int:
    """The number of maps of the first linear layer within a module, or 0."""
    return next((m._parameters["weight"].shape[-1] for m in module.modules() if is_linear(m)), 0)  # type: ignore[union-attr]


def channels(linear: Any) -> tuple[int, int]:
    """The multivector channels of input and output of a linear layer."""
    outputs, inputs, _ = linear.weight.shape
    return int(inputs), int(outputs)


def scalars(linear: Any) -> tuple[int | None, int | None]:
    """The scalar channels of input and output of a linear layer, read from its matrices; ``None`` for none."""
    s2s, s2mvs, mvs2s = (getattr(linear, name, None) for name in ("s2s", "s2mvs", "mvs2s"))
    if s2s is not None:
        outputs, inputs = s2s.weight.shape
        return int(inputs), int(outputs)
    # Without input scalars there is a bias, but not for 0 of them.
    none = None if getattr(linear, "bias", None) is not None else 0
    return (
        none if s2mvs is None else int(s2mvs.weight.shape[1]),
        None if mvs2s is None else int(mvs2s.weight.shape[0]),
    )


def heads_of(attention: Any) -> int:
    """The heads of attention, of which it has a number or a parameter."""
    config = getattr(attention, "config", None)
    for owner in (
        attention,
        config,
        getattr(getattr(attention, "qkv_module", None), "config", None),
    ):
        found = getattr(owner, "num_heads", None)
        if isinstance(found, int):
            return found
    return int(attention.attention.log_weights.shape[0])


def probabilities(module: nn.Module) -> list[float]:
    """The probabilities of all layers within a module that drop, in order."""
    return [p for inner in module.modules() if (p := _probability(inner)) is not None]


def _probability(module: nn.Module) -> float | None:
    if children(module) or parameters(module):
        return None
    found = (number(vars(module).get(name)) for name in _OF_PROBABILITY)
    return next((p for p in found if p is not None), None)


def signature(module: nn.Module) -> dict[str, inspect.Parameter]:
    """The named parameters of a module's call."""
    found = inspect.signature(type(module).forward).parameters
    kinds = inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD
    return {n: p for n, p in list(found.items())[1:] if p.kind not in kinds}


def mask_name(module: nn.Module) -> str:
    """The name of the mask in calls of attention."""
    return "attention_mask" if "attention_mask" in signature(module) else "attn_mask"


@contextlib.contextmanager
def group_of(maps: int, bivector: bool, product: bool) -> Iterator[None]:
    """A context in which layers of lgatr 1.4 are made for a group, for products with or without bivectors, or for none."""
    config = v1.gatr_config
    before = vars(config).copy()
    config.use_fully_connected_subgroup = maps == 10
    config.use_bivector, config.use_geometric_product = bivector, product
    try:
        yield
    finally:
        vars(config).update(before)


def mask(items: int, others: int, like: Tensor) -> Tensor:
    """A mask that leaves each item the first of the others."""
    kept = torch.arange(items * others, device=like.device).view(items, others) % 3 != 1
    kept[:, 0] = True
    return kept
