"""Calls the kernels of our optimisers with tensors on CUDA: all parameters of a device at once.

Addresses are kept from step to step, and only the addresses of gradients are asked for again: a step of hundreds of parameters spends its
time on the host. Lists of addresses travel in the arguments of a launch, so a CUDA graph that records a step holds them.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import compress, groupby
from operator import attrgetter
from typing import Any, NamedTuple

import torch
from torch import Tensor

from .. import _core
from ..errors import CaptureError
from .layouts import EMPTY, layout_of
from .optim_checks import check_gradient
from .optim_rules import AVERAGE, LION, Rule
from .run import launch
from .tensor_types import NAMES

__all__ = ["Gradients", "Group", "Launches", "Member", "Places", "Workspaces"]


class Member(NamedTuple):
    """A parameter with its state, all of the parameter's type, shape and strides, but the step count: one float32."""

    parameter: Tensor
    state: dict[str, Any]
    group: int
    name: str
    """How messages call it."""
    is_averaged: bool
    """Whether steps move the average in its state."""


class Group(NamedTuple):
    """Options of a group of parameters, and where its learning rate is read, if on the device."""

    rate: float
    at: tuple[int, str] | None
    betas: tuple[float, float]
    eps: float
    weight_decay: float
    maximize: bool
    average_decay: float


class Workspaces:
    """The memory that steps use between launches, for each device. It is never given back, because graphs may hold its address."""

    def __init__(self) -> None:
        self._made: dict[torch.device, list[Tensor]] = {}

    def of(self, rule: Rule, device: torch.device, size: int) -> Tensor:
        """Memory of at least so many bytes."""
        made = self._made.setdefault(device, [])
        if not made or 8 * made[-1].numel() < size:
            refuse_to_record(rule, device)
            made.append(torch.zeros(-(-size // 8), dtype=torch.float64, device=device))
        return made[-1]


class Gradients(NamedTuple):
    """The gradients of a step, ``None`` for parameters without one."""

    tensors: list[Tensor | None]
    """The tensors that a step on the CPU reads, and copies that must live as long as their addresses are read."""
    addresses: list[int]
    """Where they lie, 0 for none."""


class Places:
    """Parameters of one device, and where they, their states and their gradients lie."""

    def __init__(self, rule: Rule, members: Sequence[Member]) -> None:
        self.members = members
        self.parameters = [member.parameter for member in members]
        self.device = self.parameters[0].device
        self._rule = rule
        self._columns = [_Column(key, members) for key in rule.keys]
        self.states = [column.tensors for column in self._columns]
        """The tensors of the states, for each name that they have."""
        self.runs = [
            (index, slice(run[0], run[-1] + 1))
            for index, each in groupby(range(len(members)), lambda at: members[at].group)
            for run in [list(each)]
        ]
        """Each group with the parameters that are its."""
        averaged = [member for member in members if member.is_averaged]
        if averaged:
            self._columns.append(_Column(AVERAGE, averaged))
        self.averages = _averages_of(averaged)
        """The averages and the parameters that they are of, for each group that has some."""
        self._layout = layout_of(self.parameters)

    def stand(self) -> bool:
        """Whether parameters and states are what they were, and where. Shapes that changed in place are seen by the gradients, which have
        the new ones."""
        return self._layout.hold(self.parameters) and all(
            [column.stands() for column in self._columns]
        )

    def read(self) -> Gradients | None:
        """The gradients, those that a step cannot read copied. ``None`` if a parameter is not what it was.

        Raises:
            TypeError, ValueError, RuntimeError: for what is not a gradient of its parameter.
        """
        if self.device.type == "cuda":
            addresses = self._layout.gradients(self.parameters)
            if addresses is not None:
                return Gradients([], addresses)
        gradients = list(map(_gradient, self.parameters))
        addresses = self._layout.addresses(gradients)
        return self._brought(gradients) if addresses is None else Gradients(gradients, addresses)

    def _brought(self, gradients: list[Tensor | None]) -> Gradients | None:
        """Gradients that fit, or are copied so that they do."""
        own = self._layout
        if own.addresses(self.parameters) is None or not own.hold(self.parameters):
            return None
        found, addresses = list(gradients), [0] * len(gradients)
        for at, (member, gradient) in enumerate(zip(self.members, gradients)):
            if gradient is None:
                continue
            parameter = member.parameter
            check_gradient(self._rule, gradient, parameter, member.name)
            if (
                gradient.dtype != parameter.dtype
                or gradient.stride() != parameter.stride()
                or gradient.is_neg()
            ):
                gradient = torch.empty_like(parameter).copy_(gradient)
            found[at], addresses[at] = gradient, gradient.data_ptr() or EMPTY
        return Gradients(found, addresses)


class _Column:
    """The tensors of one name in the states of some members."""

    def __init__(self, key: str, members: Sequence[Member]) -> None:
        # A state that replaces another lies elsewhere, since the earlier one is kept here.
        self.tensors: list[Tensor] = [member.state[key] for member in members]
        self._dicts = [member.state for member in members]
        self._key = key
        self._layout = layout_of(self.tensors)

    def stands(self) -> bool:
        """Whether the states have these tensors, where they were."""
        return self._layout.hold_in(self._dicts, self._key)


def _averages_of(members: Sequence[Member]) -> list[tuple[int, list[Tensor], list[Tensor]]]:
    runs = groupby(members, lambda member: member.group)
    return [
        (group, [member.state[AVERAGE] for member in run], [member.parameter for member in run])
        for group, each in runs
        for run in [list(each)]
    ]


class Launches:
    """The launches of a step of some parameters on one GPU."""

    def __init__(self, rule: Rule, members: Sequence[Member], workspaces: Workspaces) -> None:
        self.places = Places(rule, members)
        self._core = _core.Optimiser(rule is LION, [_addresses(rule, member) for member in members])
        self._workspace = workspaces.of(rule, self.places.device, self._core.workspace_bytes)
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


def rate_at(rate: Tensor) -> tuple[int, str]:
    """The place and the type of a learning rate on a GPU."""
    return rate.data_ptr(), NAMES[rate.dtype]


def refuse_to_record(rule: Rule, device: torch.device) -> None:
    """Raises while a CUDA graph is recorded on the current stream of a device."""
    with torch.cuda.device(device):
        if torch.cuda.is_current_stream_capturing():
            raise CaptureError(
                f"{rule.name}: the first step makes the state of parameters, which a graph would make anew in each replay; call "
                "`step()` once before it is recorded, as the calls do by which `flashcliff.capture` warms up"
            )


def _addresses(rule: Rule, member: Member) -> tuple[list[int], int, int, str]:
    parameter, state = member.parameter, member.state
    mean, square = (*rule.means, None)[:2]
    keys = (mean, square, "step" if rule.counts else None, AVERAGE if member.is_averaged else None)
    found = [0 if key is None else state[key].data_ptr() for key in keys]
    return [parameter.data_ptr(), *found], parameter.numel(), member.group, NAMES[parameter.dtype]
