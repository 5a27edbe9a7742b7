"""Layers whose kernel later calls use again, as long as the parameters are the same."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Hashable, Sequence
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor
from torch.autograd import forward_ad

from ..._ops.kept import for_later_calls
from ._autocast import turned_off, type_under_autocast

Layer = TypeVar("Layer", bound="KernelLayer")

_PLAIN = (Tensor, torch.nn.Parameter)


class _Kept(NamedTuple):
    """A kernel, and what it was made of."""

    parameters: tuple[weakref.ref[Tensor], ...]
    versions: tuple[tuple[int, int], ...]
    copies: tuple[Tensor, ...] | None
    """The numbers of parameters on the CPU."""
    options: Hashable
    kernel: Tensor

    def holds(self, parameters: Sequence[Tensor], options: Hashable) -> bool:
        """Whether the kernel is what would be made of some parameters now."""
        if self.options != options or self.versions != _versions(parameters):
            return False
        if not all(ref() is p for ref, p in zip(self.parameters, parameters, strict=True)):
            return False
        return self.copies is None or all(map(torch.equal, self.copies, parameters))


class KeptKernel:
    """The kernel of the last call that needed no gradient of the parameters.

    On the CPU the numbers of parameters say whether it still holds. On a GPU, where a comparison would wait, version counters do. PyTorch
    does not count writes through ``parameter.data``, so :meth:`forget` is there, which ``train()`` and ``eval()`` call.
    """

    def __init__(self) -> None:
        self._last: _Kept | None = None

    def forget(self) -> None:
        """Makes the next call compute the kernel."""
        self._last = None

    def of(
        self, parameters: Sequence[Tensor], options: Hashable, make: Callable[[], Tensor]
    ) -> Tensor:
        """The kernel.

        Args:
            parameters: what it is computed from.
            options: what else it depends on.
            make: computes it.
        """
        if not _can_be_kept(parameters):
            return make()
        options = options, _stream(parameters[0])
        last = self._last
        if last is not None and last.holds(parameters, options):
            return last.kernel
        with for_later_calls():
            kernel = make()
            on_cpu = all(p.is_cpu for p in parameters)
            copies = tuple(p.detach().clone() for p in parameters) if on_cpu else None
        of = tuple(map(weakref.ref, parameters)), _versions(parameters), copies
        self._last = _Kept(*of, options, kernel)
        return kernel

    def __deepcopy__(self, memo: dict[int, Any]) -> KeptKernel:
        return KeptKernel()

    def __reduce__(self) -> tuple[type[KeptKernel], tuple[()]]:
        return KeptKernel, ()


class KernelLayer(torch.nn.Module):
    """The base of layers that compute the kernel of a real map from their parameters, and keep it."""

    kernel: Callable[[], Tensor]

    def __init__(self) -> None:
        super().__init__()
        self._kept = KeptKernel()

    def train(self: Layer, mode: bool = True) -> Layer:
        """Sets the mode, and forgets the kernel that was kept."""
        self._kept.forget()
        super().train(mode)
        return self

    def _kernel_for(
        self,
        device: str,
        parameters: Sequence[Tensor],
        dtype: torch.dtype,
        memory_format: torch.memory_format = torch.contiguous_format,
    ) -> Tensor:
        """The kernel as the real map reads it.

        Args:
            device: the kind of device, whose autocast says the type of the map.
            parameters: what the kernel is computed from.
            dtype: the type of the map without autocast.
            memory_format: the order of the kernel in memory.
        """
        dtype = type_under_autocast(device, dtype)

        def make() -> Tensor:
            with turned_off(device):
                return self.kernel().to(dtype).contiguous(memory_format=memory_format)

        # Loops of training write to parameters in ways that PyTorch does not count.
        if self.training and device != "cpu":
            return make()
        return self._kept.of(parameters, (dtype, memory_format), make)


def _can_be_kept(parameters: Sequence[Tensor]) -> bool:
    """Whether nothing needs a gradient of the kernel, and nothing that runs now would get into it."""
    if torch.compiler.is_compiling() or torch._C._get_tracing_state() is not None:
        return False
    if torch._C._are_functorch_transforms_active() or forward_ad._current_level >= 0:
        return False
    if torch.is_grad_enabled() and any(p.requires_grad for p in parameters):
        return False
    if any(type(p) not in _PLAIN or p.is_inference() or p.is_meta for p in parameters):
        return False
    if torch._C._len_torch_dispatch_stack():
        return False
    # Replays of a CUDA graph must read what the parameters are then.
    return not (parameters[0].is_cuda and torch.cuda.is_current_stream_capturing())


def _versions(parameters: Sequence[Tensor]) -> tuple[tuple[int, int], ...]:
    return tuple((p._version, p.data_ptr()) for p in parameters)


def _stream(like: Tensor) -> int:
    """The stream that a kernel is written on. One of another stream might not be finished."""
    return torch.cuda.current_stream(like.device).cuda_stream if like.is_cuda else 0
