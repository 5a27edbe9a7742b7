"""Calls the kernels of AdamW with tensors on CUDA: all parameters of a device at once.

Addresses are kept from step to step, and only those of gradients are asked for again: a step of hundreds of parameters spends its time on
the host. Lists of addresses travel in the arguments of a launch, so a CUDA graph that records a step holds them.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter, methodcaller
from typing import NamedTuple

import torch
from torch import Tensor

from .. import _core
from ..errors import CaptureError
from .items import launch
from .tensor_types import NAMES

__all__ = ["Group", "Launches", "Member", "Workspaces"]


_EMPTY = 8
"""Stands for the address of a gradient without elements. PyTorch says 0, which means no gradient here."""


class Member(NamedTuple):
    """A parameter with its state, all of the parameter's type, shape and strides, but the step count: one float32."""

    parameter: Tensor
    mean: Tensor
    square: Tensor
    step: Tensor
    group: int


class Group(NamedTuple):
    """Options of a group of parameters, and where its learning rate is read, if on the device."""

    rate: float
    at: tuple[int, str] | None
    betas: tuple[float, float]
    eps: float
    weight_decay: float
    maximize: bool


class Workspaces:
    """The memory that steps use between launches, for each device. It is never given back, because graphs may hold its address."""

    def __init__(self) -> None:
        self._made: dict[torch.device, list[Tensor]] = {}

    def of(self, device: torch.device, size: int) -> Tensor:
        """Memory of at least so many bytes."""
        made = self._made.setdefault(device, [])
        if not made or 8 * made[-1].numel() < size:
            refuse_to_record(device)
            made.append(torch.zeros(-(-size // 8), dtype=torch.float64, device=device))
        return made[-1]


class Launches:
    """The launches of a step of some parameters on one GPU."""

    def __init__(self, members: Sequence[Member], workspaces: Workspaces) -> None:
        self.members = members
        self._parameters = [member.parameter for member in members]
        self._addresses = [parameter.data_ptr() for parameter in self._parameters]
        self._device = self._parameters[0].device
        self._core = _core.AdamW([_addresses(member) for member in members])
        self._workspace = workspaces.of(self._device, self._core.workspace_bytes)
        self._expected = [
            (p.dtype, p.get_device(), p.is_contiguous(), p.stride()) for p in self._parameters
        ]
        self._are_alike = all(
            contiguous and (dtype, device) == self._expected[0][:2]
            for dtype, device, contiguous, _ in self._expected
        )
        self.norm = self._workspace[self._core.NORM // 8]
        """The norm of all gradients in the last step with clipping."""

    def stand(self) -> bool:
        """Whether the parameters are where they were."""
        return list(map(_address, self._parameters)) == self._addresses

    def _read(self, gradients: Sequence[Tensor | None]) -> list[int]:
        """The address of each gradient, 0 where there is none, -1 where a kernel cannot read one where it lies."""
        # These loops are those of built-in functions: there may be hundreds of gradients.
        if (
            self._are_alike
            and type(None) not in set(map(type, gradients))
            and all(map(_is_contiguous, gradients))
            and set(map(_kind, gradients)) == {self._expected[0][0]}
            and set(map(_place, gradients)) == {self._expected[0][1]}
        ):
            return [address or _EMPTY for address in map(_address, gradients)]
        return [
            0
            if gradient is None
            else (gradient.data_ptr() or _EMPTY)
            if _fits(gradient, expected)
            else -1
            for gradient, expected in zip(gradients, self._expected)
        ]

    def step(
        self, gradients: Sequence[Tensor | None], groups: Sequence[Group], max_norm: float | None
    ) -> None:
        """Launches a step of the parameters that have a gradient."""
        given, copies = self._read(gradients), []
        if -1 in given:
            for at, gradient in enumerate(gradients):
                if given[at] == -1 and gradient is not None:
                    copy = torch.empty_like(self._parameters[at]).copy_(gradient)
                    copies.append(copy)
                    given[at] = copy.data_ptr() or _EMPTY
        workspace = self._workspace.data_ptr()
        launch(
            self._workspace,
            lambda target: self._core.step(given, groups, max_norm, workspace, target),
        )
        changed = [p for p, address in zip(self._parameters, given) if address]
        torch.autograd.graph.increment_version(changed)


_address, _place, _is_contiguous = map(methodcaller, ("data_ptr", "get_device", "is_contiguous"))
_kind = attrgetter("dtype")


def rate_at(rate: Tensor) -> tuple[int, str]:
    """The place and the type of a learning rate on a GPU."""
    return rate.data_ptr(), NAMES[rate.dtype]


def refuse_to_record(device: torch.device) -> None:
    """Raises while a CUDA graph is recorded on the current stream of a device."""
    with torch.cuda.device(device):
        if torch.cuda.is_current_stream_capturing():
            raise CaptureError(
                "AdamW: the first step makes the state of parameters, which a graph would make anew in each replay; call "
                "`step()` once before it is recorded, as the calls do by which `flashcliff.capture` warms up"
            )


def _fits(gradient: Tensor, expected: tuple[torch.dtype, int, bool, tuple[int, ...]]) -> bool:
    """Whether a kernel can read a gradient where it lies."""
    dtype, device, contiguous, strides = expected
    return (
        gradient.dtype is dtype
        and gradient.get_device() == device
        and (gradient.is_contiguous() if contiguous else gradient.stride() == strides)
    )


def _addresses(member: Member) -> tuple[int, int, int, int, int, int, str]:
    parameter = member.parameter
    return (
        parameter.data_ptr(),
        member.mean.data_ptr(),
        member.square.data_ptr(),
        member.step.data_ptr(),
        parameter.numel(),
        member.group,
        NAMES[parameter.dtype],
    )
