"""Checks by our optimisers of the tensors whose addresses they hand on: parameters, their gradients, their states, learning rates.

A wrong tensor is an error that names the parameter, says what came, and says what to do. These checks are made when a plan is made, and
for what a cheaper check of each step found to be other than expected.
"""

from __future__ import annotations

import bisect
from numbers import Real
from typing import Any

import torch
from torch import Tensor
from torch._C import DispatchKey, DispatchKeySet
from torch.fx.experimental.proxy_tensor import get_proxy_mode

from .. import _core
from ..errors import UnsupportedError
from .layouts import PLAIN, has_memory
from .optim_rules import AVERAGE, Rule

TYPES = (torch.float32, torch.float64)
"""The types of parameters, and of learning rates that are tensors."""
_OWN = (
    torch._C._dispatch_keys(torch.empty(0)).raw_repr()
    | DispatchKeySet(DispatchKey.CUDA).raw_repr()
    | DispatchKeySet(DispatchKey.AutogradCUDA).raw_repr()
    | DispatchKeySet(DispatchKey.AutocastCUDA).raw_repr()
)
"""The dispatch keys of arrays of numbers on the CPU and on GPUs. Fake, functional, batched and nested tensors have others, and so have
tensors whose numbers are negated by a flag."""
_COPIED = _OWN | DispatchKeySet(DispatchKey.Negative).raw_repr()
"""The keys of what may also be copied: a copy resolves the flag."""


def label(group: dict[str, Any], index: int, at: int) -> str:
    """How messages call a parameter of a group."""
    names = group.get("param_names")
    name = f" (`{names[at]}`)" if names is not None and at < len(names) else ""
    return f"parameter {at} of group {index}{name}"


def check_kind(rule: Rule, parameter: Tensor, name: str) -> None:
    """Raises for a parameter of a class, type or layout that no step takes."""
    if type(parameter) not in PLAIN:
        raise TypeError(
            f"{rule.name}: expected parameters that are plain tensors, got {type(parameter).__name__} as {name}; take "
            "torch.optim.AdamW for others, such as shards of FSDP"
        )
    if parameter.dtype in (torch.bfloat16, torch.float16):
        raise TypeError(
            f"{rule.name}: parameters must be float32 or float64, got {parameter.dtype} as {name}; keep them in float32, where small "
            "steps are not lost, and compute in 16 bits within torch.autocast"
        )
    if parameter.dtype not in TYPES:
        raise TypeError(
            f"{rule.name}: parameters must be float32 or float64, got {parameter.dtype} as {name}"
        )
    if parameter.layout is not torch.strided:
        raise TypeError(
            f"{rule.name}: parameters must be dense, got the layout {parameter.layout} as {name}"
        )


def check_parameter(rule: Rule, parameter: Tensor, name: str) -> None:
    """Raises for a parameter that a step cannot write to where it lies."""
    check_kind(rule, parameter, name)
    kind = parameter.device.type
    if kind not in ("cpu", "cuda"):
        raise UnsupportedError(
            f"{rule.name}: parameters must be on the CPU or on CUDA, got {parameter.device} as {name}"
        )
    if kind == "cuda" and not _core.CUDA:
        raise UnsupportedError(
            f"{rule.name}: this build of flashcliff has no CUDA kernels; install it again where nvcc is, or take "
            "torch.optim.AdamW(..., fused=True)"
        )
    _check_plain(rule, parameter, name)
    if parameter.is_inference():
        raise RuntimeError(
            f"{rule.name}: {name} was made in inference mode, where nothing is counted that changes it; make it outside, "
            "or `clone()` it there"
        )
    if torch.empty_like(parameter).stride() != parameter.stride():
        raise ValueError(
            f"{rule.name}: the elements of a parameter must lie side by side, got the shape {list(parameter.shape)} with strides "
            f"{list(parameter.stride())} as {name}; make it from `tensor.contiguous()`"
        )


def check_gradient(rule: Rule, gradient: Tensor, parameter: Tensor, name: str) -> None:
    """Raises for a gradient that is not one of a parameter, as this now is."""
    if gradient.layout is not torch.strided:
        raise RuntimeError(
            f"{rule.name}: gradients must be dense, got the layout {gradient.layout} for {name}; make embeddings with "
            "`sparse=False`, or take torch.optim.SparseAdam for them"
        )
    what = f"the gradient of {name}"
    if gradient.shape != parameter.shape:
        raise ValueError(
            f"{rule.name}: {what} must have its shape {list(parameter.shape)}, got {list(gradient.shape)}; call `zero_grad()` and "
            "`backward()` again after the parameter changed"
        )
    if gradient.device != parameter.device:
        raise RuntimeError(
            f"{rule.name}: {what} must be on {parameter.device}, got {gradient.device}; call `zero_grad()` and `backward()` "
            "again after the parameter moved"
        )
    if not gradient.dtype.is_floating_point:
        raise TypeError(f"{rule.name}: {what} must be of real numbers, got {gradient.dtype}")
    _check_plain(rule, gradient, what, _COPIED)


def check_state(rule: Rule, state: dict[str, Any], parameter: Tensor, name: str) -> None:
    """Raises for a state that is not one of a parameter. An empty one is made anew by the next step."""
    if not state:
        return
    for key, whose in rule.foreign.items():
        if key in state:
            raise ValueError(
                f"{rule.name}: the state of {name} has `{key}`, but there is no support for {whose}; load it into the optimiser it is of"
            )
    missing = [key for key in rule.keys if state.get(key) is None]
    if missing:
        raise ValueError(
            f"{rule.name}: expected a state with {', '.join(rule.keys)}, got {', '.join(map(str, state))} for {name}: it is of another "
            "optimiser; load it there"
        )
    for key in (*rule.means, AVERAGE):
        if key in state:
            _check_mean(rule, state[key], parameter, f"`{key}` of {name}")
    if rule.counts:
        _check_step(rule, state["step"], f"`step` of {name}")


def _check_mean(rule: Rule, mean: Any, parameter: Tensor, what: str) -> None:
    if not isinstance(mean, Tensor) or type(mean) not in PLAIN or mean.layout is not torch.strided:
        got = f"the layout {mean.layout}" if type(mean) in PLAIN else type(mean).__name__
        raise TypeError(f"{rule.name}: {what} must be a plain, dense tensor, got {got}; {_AGAIN}")
    if mean.shape != parameter.shape:
        raise ValueError(
            f"{rule.name}: {what} must have the parameter's shape {list(parameter.shape)}, got {list(mean.shape)}: the state is of "
            f"another model, or the parameter has changed; {_AGAIN}"
        )
    if not mean.dtype.is_floating_point:
        raise TypeError(f"{rule.name}: {what} must be of real numbers, got {mean.dtype}; {_AGAIN}")
    _check_plain(rule, mean, what, _COPIED)


def _check_step(rule: Rule, step: Any, what: str) -> None:
    if isinstance(step, Tensor):
        if type(step) not in PLAIN or step.layout is not torch.strided or step.numel() != 1:
            raise ValueError(
                f"{rule.name}: {what} must be a number, or a plain tensor of one, got {type(step).__name__} {list(step.shape)}; "
                f"{_AGAIN}"
            )
        _check_plain(rule, step, what, _COPIED)
        if step.dtype.is_complex:
            raise TypeError(f"{rule.name}: {what} must be a real number, got {step.dtype}; {_AGAIN}")
        if not step.is_cpu:
            # Reading it would wait for the GPU.
            return
    elif isinstance(step, bool) or not isinstance(step, Real):
        raise TypeError(f"{rule.name}: {what} must be a number, got {type(step).__name__}; {_AGAIN}")
    if not 0 <= float(step) < float("inf"):
        raise ValueError(f"{rule.name}: {what} must be at least 0, got {float(step)}; {_AGAIN}")


def check_rate(rule: Rule, rate: Tensor) -> None:
    """Raises for a learning rate that is a tensor which cannot be read. Its number is not looked at."""
    if type(rate) not in PLAIN or rate.layout is not torch.strided:
        raise TypeError(
            f"lr: expected a number, or a plain, dense tensor of one element, got {type(rate).__name__}, {rate.layout}"
        )
    if rate.numel() != 1 or rate.dtype not in TYPES:
        raise ValueError(
            f"lr: expected a number, or a tensor of one element, float32 or float64, got {rate.dtype} {list(rate.shape)}"
        )
    if not (rate.is_cpu or rate.is_cuda):
        raise RuntimeError(f"lr: expected a tensor on the CPU or on CUDA, got {rate.device}")
    _check_plain(rule, rate, "lr")


class Owners:
    """The memory that a step writes to, and which tensor each piece of it is of."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._pieces: list[tuple[int, str]] = []

    def take(self, tensor: Tensor, name: str) -> str | None:
        """Notes the memory of a dense tensor, or says whose some of it is."""
        start, size = tensor.data_ptr(), tensor.nbytes
        if not size:
            return None
        at = bisect.bisect(self._starts, start)
        if at and self._pieces[at - 1][0] > start:
            return self._pieces[at - 1][1]
        if at < len(self._starts) and self._starts[at] < start + size:
            return self._pieces[at][1]
        self._starts.insert(at, start)
        self._pieces.insert(at, (start + size, name))
        return None


def refuse_shared(rule: Rule, parameter: Tensor, name: str, owners: Owners) -> None:
    """Raises for a parameter that shares memory with one before, since their steps would write over each other."""
    owner = owners.take(parameter, name)
    if owner is not None:
        raise ValueError(
            f"{rule.name}: expected parameters with memory of their own, but {owner} and {name} share some; give a tensor once, and "
            "tie weights by using one parameter in both places"
        )


def refuse_surroundings(rule: Rule) -> None:
    """Raises where a step would change memory that it must not, or would not be seen: within transforms and traces, and
    under modes that make tensors without memory."""
    if torch._C._are_functorch_transforms_active() or torch._C._get_tracing_state():
        raise UnsupportedError(
            f"{rule.name}: a step cannot be transformed or traced; call it outside of torch.func and torch.jit.trace"
        )
    if get_proxy_mode() is not None:
        raise UnsupportedError(f"{rule.name}: a step cannot be traced; call it outside of make_fx")
    if torch._C._len_torch_dispatch_stack() and type(torch.empty(0)) is not Tensor:
        modes = torch.utils._python_dispatch._get_current_dispatch_mode_stack()
        raise UnsupportedError(
            f"{rule.name}: a step changes the memory of parameters, which there is none of under "
            f"{' and '.join(type(mode).__name__ for mode in modes)}; call it outside of this mode"
        )


_AGAIN = "load the state of this model, or clear it (`optimizer.state.clear()`)"


def _check_plain(rule: Rule, tensor: Tensor, what: str, keys: int = _OWN) -> None:
    """Raises for tensors that are not what their classes say, and for those without memory."""
    if torch._C._dispatch_keys(tensor).raw_repr() & ~keys:
        raise TypeError(
            f"{rule.name}: {what} must be an array of numbers, got a tensor with {torch._C._dispatch_keys(tensor)}; "
            "it is fake, nested, or belongs to a transform or mode"
        )
    if not has_memory(tensor):
        raise ValueError(
            f"{rule.name}: the memory of {what} with the shape {list(tensor.shape)} is not there, or not all of it: its storage has "
            f"{tensor.untyped_storage().nbytes()} bytes; bring it back before the step, as after `storage.resize_(0)`"
        )
