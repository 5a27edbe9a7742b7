"""Parameters of CS-CNN's networks, which are flax's, under the names of this package."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

_INDEXED = re.compile(r"(\w+)_(\d+)")
_NAMES = {
    "CliffordSteerableKernel": "kernel",
    "KernelNetwork": "network",
    # These hold one parameter of the module around them.
    "WeightedCayley": "",
    "ScalarShell": "",
}


def from_flax(params: Mapping[str, Any]) -> dict[str, Tensor]:
    """A state dict of the parameters that flax has of :class:`CliffordSteerableConv`, or of modules with such layers.

    Names of modules that are not CS-CNN's convolution, or within it, stay as flax has them, such as
    ``CSBasicBlock_0.CliffordSteerableConv_1.bias``.

    Args:
        params: nested dictionaries of arrays, with or without flax's ``"params"`` around them.

    Returns:
        A flat dictionary of tensors, which ``load_state_dict`` accepts.

    Raises:
        TypeError: ``params`` is not a dictionary.

    >>> import torch
    >>> cayley = {"WeightedCayley_0": {"weight": torch.ones(3, 2, 10)}}
    >>> list(from_flax({"params": {"CliffordSteerableKernel_0": cayley}}))
    ['kernel.weight']
    """
    if not isinstance(params, Mapping):
        raise TypeError(f"from_flax: `params` must be a dictionary, got {type(params).__name__}")
    if list(params) == ["params"]:
        params = params["params"]
    return {".".join(_renamed(path)): _tensor(value) for path, value in _leaves(params, ())}


def _leaves(
    tree: Mapping[str, Any], path: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], Any]]:
    for name, value in tree.items():
        if isinstance(value, Mapping):
            yield from _leaves(value, (*path, name))
        else:
            yield (*path, name), value


def _renamed(path: tuple[str, ...]) -> Iterator[str]:
    """The parts of a name here."""
    within = ""
    for part in path:
        match = _INDEXED.fullmatch(part)
        kind, index = match.groups() if match else (part, "")
        if kind in _NAMES:
            if _NAMES[kind]:
                yield _NAMES[kind]
        elif kind == "FullyConnectedSteerableGeometricProductLayer":
            yield f"products.{index}"
        elif within == "FullyConnectedSteerableGeometricProductLayer" and kind == "MVLinear":
            yield ("linear_right", "linear_left")[int(index)]
        elif within == "FullyConnectedSteerableGeometricProductLayer" and kind == "GradeNorm":
            yield "normalization"
        elif within == "KernelNetwork" and kind == "GradeNorm":
            yield f"norms.{index}"
        else:
            yield part
        within = kind


def _tensor(value: Any) -> Tensor:
    """An array as a tensor with its own memory."""
    if isinstance(value, Tensor):
        return value.detach().clone()
    import numpy

    return torch.from_numpy(numpy.array(value))
