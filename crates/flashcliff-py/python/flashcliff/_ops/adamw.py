"""Calls the kernels of AdamW with tensors on CUDA: all parameters of a device at once.

Addresses are kept from step to step, and only those of gradients are asked for again: a step of hundreds of parameters spends its time on
the host. Lists of addresses travel in the arguments of a launch, so a CUDA graph that records a step holds them.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import compress, groupby
from operator import attrgetter, itemgetter
from typing import Any, NamedTuple

import torch
from torch import Tensor

from .. import _core
from ..errors import CaptureError
from .adamw_checks import STATE, check_gradient
from .items import launch
from .layouts import EMPTY, Layout, layout_of
from .tensor_types import NAMES

__all__ = ["Gradients", "Group", "Launches", "Member", "Places", "Workspaces"]


class Member(NamedTuple):
    """A parameter with its state, all of the parameter's type, shape and strides, but the step count: one float32."""

    parameter: Tensor
    mean: Tensor
    square: Tensor
    step: Tensor
    group: int
    name: str
    """How messages call it."""
    state: dict[str, Any]
    """The state that has both means and the step count."""


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


class Gradients(NamedTuple):
    """The gradients of a step, ``None`` for parameters without one."""

    tensors: list[Tensor | None]
    addresses: list[int]
    """Where they lie, 0 for none."""


class Places:
    """Parameters of one device, and where they, their states and their gradients lie."""

    def __init__(self, members: Sequence[Member]) -> None:
        self.members = members
        self.parameters = [member.parameter for member in members]
        self.device = self.parameters[0].device
        self.states = [list(each) for each in zip(*((m.step, m.mean, m.square) for m in members))]
        """Step counts, and both means."""
        self.runs = [
            (index, slice(run[0], run[-1] + 1))
            for index, each in groupby(range(len(members)), lambda at: members[at].group)
            for run in [list(each)]
        ]
        """Each group with the parameters that are its."""
        self._dicts = [member.state for member in members]
        self._layout, self._steps = layout_of(self.parameters), layout_of(self.states[0])
        layouts = (self._layout, self._steps, self._layout, self._layout)
        tensors = (self.parameters, *self.states)
        self._addresses = [_addresses_in(*pair) for pair in zip(layouts, tensors)]

    def stand(self) -> bool:
        """Whether parameters and states are what they were, and where. Shapes that changed in place are seen by the gradients, which have
        the new ones."""
        layout = self._layout
        parameters, steps, means, squares = self._addresses
        try:
            # States that were replaced lie elsewhere, since those of before are kept here.
            return (
                layout.holds(self.parameters, parameters, True)
                and self._steps.holds(list(map(_step, self._dicts)), steps, False)
                and layout.holds(list(map(_mean, self._dicts)), means, False)
                and layout.holds(list(map(_square, self._dicts)), squares, False)
            )
        except KeyError:
            return False

    def read(self) -> Gradients | None:
        """The gradients, those that a step cannot read copied. ``None`` if a parameter is not what it was.

        Raises:
            TypeError, ValueError, RuntimeError: for what is not a gradient of its parameter.
        """
        gradients = list(map(_gradient, self.parameters))
        addresses = self._layout.addresses(gradients)
        return self._brought(gradients) if addresses is None else Gradients(gradients, addresses)

    def _brought(self, gradients: list[Tensor | None]) -> Gradients | None:
        """Gradients that fit, or are copied so that they do."""
        if self._layout.addresses(self.parameters) != self._addresses[0]:
            return None
        found, addresses = list(gradients), [0] * len(gradients)
        for at, (member, gradient) in enumerate(zip(self.members, gradients)):
            if gradient is None:
                continue
            parameter = member.parameter
            check_gradient(gradient, parameter, member.name)
            if (
                gradient.dtype != parameter.dtype
                or gradient.stride() != parameter.stride()
                or gradient.is_neg()
            ):
                gradient = torch.empty_like(parameter).copy_(gradient)
            found[at], addresses[at] = gradient, gradient.data_ptr() or EMPTY
        return Gradients(found, addresses)


def _addresses_in(layout: Layout, tensors: list[Tensor]) -> list[int]:
    found = layout.addresses(tensors)
    assert found is not None, "a plan is made of tensors that were checked"
    return found


class Launches:
    """The launches of a step of some parameters on one GPU."""

    def __init__(self, members: Sequence[Member], workspaces: Workspaces) -> None:
        self.places = Places(members)
        self._core = _core.AdamW([_addresses(member) for member in members])
        self._workspace = workspaces.of(self.places.device, self._core.workspace_bytes)
        self.norm = self._workspace[self._core.NORM // 8]
        """The norm of all gradients in the last step with clipping."""

    def step(self, gradients: Gradients, groups: Sequence[Group], max_norm: float | None) -> None:
        """Launches a step of the parameters that have a gradient."""
        given = gradients.addresses
        workspace = self._workspace.data_ptr()
        launch(
            self._workspace,
            lambda target: self._core.step(given, groups, max_norm, workspace, target),
        )
        changed = self.places.parameters
        if 0 in given:
            changed = list(compress(changed, given))
        torch.autograd.graph.increment_version(changed)


_gradient = attrgetter("grad")
_step, _mean, _square = map(itemgetter, STATE)


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
