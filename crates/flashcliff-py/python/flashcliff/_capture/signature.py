"""The properties that tell the calls of a step apart: shapes, types and places of tensors, and all other arguments.

A graph repeats what it recorded, so a call may only take a graph of an equal signature.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from ..errors import CaptureError

_BY_VALUE = (int, str, bool, type(None), torch.dtype, torch.device)


def flatten(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Sequence[Any], Any]:
    """The arguments one by one, and how they are put together; ``None`` stands for tensors in a row."""
    if not kwargs and all(isinstance(argument, Tensor) for argument in args):
        return args, None
    return pytree.tree_flatten((args, kwargs))


def unflatten(leaves: Sequence[Any], spec: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments of a call."""
    if spec is None:
        return tuple(leaves), {}
    args, kwargs = pytree.tree_unflatten(list(leaves), spec)
    return args, kwargs


def signature(leaves: Sequence[Any], spec: Any, modules: Iterable[torch.nn.Module]) -> Hashable:
    """The signature of a call. Besides arguments, the modes of PyTorch and of modules count."""
    return (
        tuple([_leaf(leaf) for leaf in leaves]),
        # A specification of the arguments has an equality but, in some versions, no hash.
        None if spec is None else repr(spec),
        torch.is_grad_enabled(),
        torch.is_inference_mode_enabled(),
        torch.is_autocast_enabled("cuda") and torch.get_autocast_dtype("cuda"),
        tuple([module.training for module in modules]),
    )


def _leaf(leaf: Any) -> Hashable:
    if isinstance(leaf, Tensor):
        return type(leaf), leaf.shape, leaf.stride(), leaf.dtype, leaf.device, leaf.requires_grad
    if type(leaf) in _BY_VALUE:
        return type(leaf), leaf
    if type(leaf) is float:
        # So that zeros of both signs differ, and not-a-number equals itself.
        return float, leaf.hex()
    return type(leaf), id(leaf)


def place(leaves: Sequence[Any]) -> torch.device | str:
    """The GPU of a call, or why it has none.

    Raises:
        CaptureError: some tensors are on a GPU and some are not, or a tensor cannot be an input of a graph.
    """
    tensors = [leaf for leaf in leaves if isinstance(leaf, Tensor)]
    if not torch.cuda.is_available():
        return "PyTorch finds no GPU"
    if not tensors:
        return torch.device("cuda", torch.cuda.current_device())
    devices = {tensor.device for tensor in tensors}
    if not any(device.type == "cuda" for device in devices):
        return f"the tensors of the call are on {_listed(devices)}, not on a GPU"
    if len(devices) > 1:
        raise CaptureError(
            f"expected the tensors of a call on one GPU, got {_listed(devices)}; move them there first, "
            "since a graph reads the memory that it recorded"
        )
    return devices.pop()


def check_inputs(leaves: Sequence[Any]) -> None:
    """Raises for tensors that cannot be copied into the memory of a graph."""
    for index, leaf in enumerate(leaves):
        if not isinstance(leaf, Tensor):
            continue
        if leaf.requires_grad:
            raise CaptureError(
                f"tensor {index} of the call requires a gradient, which would go to the graph's copy of it; "
                "pass `x.detach()`, ask for the gradient within the step, and return it"
            )
        if leaf.layout is not torch.strided:
            raise CaptureError(
                f"tensor {index} of the call has the layout {leaf.layout}: expected dense tensors"
            )


def _listed(devices: Iterable[torch.device]) -> str:
    return " and ".join(sorted(map(str, devices)))
