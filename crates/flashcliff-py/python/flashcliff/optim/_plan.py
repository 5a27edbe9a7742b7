"""The plan of a step of AdamW.

A plan has the parameters that have a state, sorted by device, with all that a step needs but gradients and options. It is made at the first step, and
again whenever a parameter or its state moved, or a further parameter has a gradient.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import repeat
from operator import is_
from typing import Any

import torch
from torch import Tensor

from .._ops import adamw as kernels
from ._checks import check_parameter, check_place

States = Mapping[Tensor, dict[str, Any]]
"""The states of an optimiser by parameter."""


@dataclass
class Plan:
    """The parameters of a step."""

    given: list[Tensor]
    """All parameters of all groups."""
    members: list[kernels.Member] = field(default_factory=list)
    """The parameters that have a state."""
    others: list[Tensor] = field(default_factory=list)
    """The parameters that had no gradient so far."""
    states: list[dict[str, Any]] = field(default_factory=list)
    """The states of the members."""
    order: list[dict[str, Any]] = field(default_factory=list)
    """The states of the members, in the order of the optimiser."""
    on_gpus: list[kernels.Launches] = field(default_factory=list)
    on_cpu: list[kernels.Member] = field(default_factory=list)
    _kept: tuple[list[Tensor], ...] = ()

    def stands(self, groups: list[dict[str, Any]], states: States) -> bool:
        """Whether the plan is of the parameters and states that there are now."""
        given = _given(groups)
        return (
            len(given) == len(self.given)
            and all(map(is_, given, self.given))
            and len(states) == len(self.order)
            and all(map(is_, states.values(), self.order))
            and all([p.grad is None for p in self.others])
            and all([launches.stand() for launches in self.on_gpus])
            and all([m.parameter.is_cpu for m in self.on_cpu])
            and all(
                all(map(is_, map(dict.get, self.states, repeat(name)), tensors))
                for name, tensors in zip(("step", "exp_avg", "exp_avg_sq"), self._tensors())
            )
        )


    def _tensors(self) -> tuple[list[Tensor], ...]:
        """Step counts and both means of the members."""
        if not self._kept:
            self._kept = (
                [m.step for m in self.members],
                [m.mean for m in self.members],
                [m.square for m in self.members],
            )
        return self._kept


def planned(
    groups: list[dict[str, Any]],
    states: dict[Tensor, dict[str, Any]],
    workspaces: kernels.Workspaces,
) -> Plan:
    """The plan of the parameters that have a gradient or a state. Makes states, and brings them into the form of the kernels."""
    plan = Plan(_given(groups))
    places: dict[torch.device, list[kernels.Member]] = {}
    for index, group in enumerate(groups):
        for parameter in group["params"]:
            if parameter.grad is None and not states.get(parameter):
                plan.others.append(parameter)
                continue
            check_parameter(parameter)
            check_place(parameter)
            state = states[parameter]
            _complete(parameter, state)
            member = kernels.Member(
                parameter, state["exp_avg"], state["exp_avg_sq"], state["step"], index
            )
            plan.members.append(member)
            plan.states.append(state)
            places.setdefault(parameter.device, []).append(member)
    plan.order = list(states.values())
    for device, members in places.items():
        if device.type == "cuda":
            plan.on_gpus.append(kernels.Launches(members, workspaces))
        else:
            plan.on_cpu = members
    return plan


def _given(groups: list[dict[str, Any]]) -> list[Tensor]:
    return [parameter for group in groups for parameter in group["params"]]


def _complete(parameter: Tensor, state: dict[str, Any]) -> None:
    """Makes the state of a parameter, or brings one that was loaded into the form that the kernels take."""
    if not state and parameter.is_cuda:
        kernels.refuse_to_record(parameter.device)
    step = state.get("step", 0.0)
    if (
        not isinstance(step, Tensor)
        or step.dtype != torch.float32
        or step.device != parameter.device
        or step.dim()
    ):
        state["step"] = torch.tensor(float(step), dtype=torch.float32, device=parameter.device)
    for name in ("exp_avg", "exp_avg_sq"):
        mean = state.get(name)
        if mean is None:
            state[name] = torch.zeros_like(parameter)
        elif (
            mean.stride() != parameter.stride()
            or mean.dtype != parameter.dtype
            or mean.device != parameter.device
        ):
            state[name] = torch.empty_like(parameter).copy_(mean)
