"""The parameters, gradients and options that AdamW takes, and errors that say what to do about others."""

from __future__ import annotations

from operator import attrgetter
from typing import Any

import torch
from torch import Tensor

from .. import _core
from ..errors import UnsupportedError

_TYPES = (torch.float32, torch.float64)
_THEIRS = {
    "amsgrad": "the maxima of AMSGrad",
    "differentiable": "steps that are differentiated",
}


def check_parameter(parameter: Tensor) -> None:
    """Raises for a parameter that the kernels do not take."""
    if type(parameter) not in (Tensor, torch.nn.Parameter):
        raise TypeError(
            f"AdamW: expected parameters that are plain tensors, got {type(parameter).__name__}; take torch.optim.AdamW for "
            "others, such as shards of FSDP"
        )
    if parameter.dtype in (torch.bfloat16, torch.float16):
        raise TypeError(
            f"AdamW: parameters must be float32 or float64, got {parameter.dtype}; keep them in float32, where small steps are "
            "not lost, and compute in 16 bits within torch.autocast"
        )
    if parameter.dtype not in _TYPES:
        raise TypeError(f"AdamW: parameters must be float32 or float64, got {parameter.dtype}")
    if parameter.layout is not torch.strided:
        raise TypeError(f"AdamW: parameters must be dense, got the layout {parameter.layout}")


def check_place(parameter: Tensor) -> None:
    """Raises for a device without an implementation, and for elements that overlap or lie apart."""
    kind = parameter.device.type
    if kind not in ("cpu", "cuda"):
        raise UnsupportedError(
            f"AdamW: parameters must be on the CPU or on CUDA, got {parameter.device}"
        )
    if kind == "cuda" and not _core.CUDA:
        raise UnsupportedError(
            "AdamW: this build of flashcliff has no CUDA kernels; install it again where nvcc is, or take "
            "torch.optim.AdamW(..., fused=True)"
        )
    if torch.empty_like(parameter).stride() != parameter.stride():
        raise ValueError(
            f"AdamW: the elements of a parameter must lie side by side, got the shape {list(parameter.shape)} with strides "
            f"{list(parameter.stride())}; make it from `tensor.contiguous()`"
        )


_layout = attrgetter("layout")


def refuse_gradients(gradients: list[Tensor]) -> None:
    """Raises for gradients that are not dense."""
    if {torch.strided}.issuperset(map(_layout, gradients)):
        return
    for gradient in gradients:
        if gradient.layout is not torch.strided:
            raise RuntimeError(
                f"AdamW: gradients must be dense, got the layout {gradient.layout}; make embeddings with `sparse=False`, or "
                "take torch.optim.SparseAdam for them"
            )


def check_options(group: dict[str, Any]) -> None:
    """Raises for options out of range."""
    rate, betas = group["lr"], group["betas"]
    if isinstance(rate, Tensor):
        if rate.numel() != 1 or rate.dtype not in _TYPES:
            raise ValueError(
                f"lr: expected a number, or a tensor of one element, float32 or float64, got {rate.dtype} "
                f"{list(rate.shape)}"
            )
    elif not rate >= 0:
        raise ValueError(f"lr: expected at least 0, got {rate}")
    if len(betas) != 2 or not all(0 <= float(beta) < 1 for beta in betas):
        raise ValueError(f"betas: expected two numbers, at least 0 and below 1, got {betas}")
    for name in ("eps", "weight_decay"):
        if not group[name] >= 0:
            raise ValueError(f"{name}: expected at least 0, got {group[name]}")
    if group["max_norm"] is not None and not group["max_norm"] > 0:
        raise ValueError(f"max_norm: expected a number above 0 or None, got {group['max_norm']}")


def check_theirs(group: dict[str, Any]) -> None:
    """Raises for options of torch.optim.AdamW that this one lacks, in a state that is loaded."""
    for name, what in _THEIRS.items():
        if group.get(name):
            raise ValueError(
                f"AdamW: the state was made with `{name}=True`, but there is no support for {what}; take torch.optim.AdamW"
            )
