"""The plan of a step.

A plan has the parameters that have a state, sorted by device, with all that a step needs but gradients and options. It is made at the
first step, and again whenever a parameter or its state moved, or a further parameter has a gradient. Making it checks all that it has.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from operator import is_
from typing import Any

import torch
from torch import Tensor

from .._ops import optim as kernels
from .._ops.optim_checks import Owners, check_parameter, check_state, label, refuse_shared
from .._ops.optim_rules import AVERAGE, Rule

States = Mapping[Tensor, dict[str, Any]]
"""The states of an optimiser by parameter."""


@dataclass
class Plan:
    """The parameters of a step."""

    rule: Rule
    given: list[list[Tensor]]
    """All parameters of each group."""
    averaging: list[bool]
    """Whether the parameters of each group are averaged."""
    members: list[kernels.Member] = field(default_factory=list)
    """The parameters that have a state."""
    fresh: list[kernels.Member] = field(default_factory=list)
    """The members whose average is made after their step."""
    others: list[Tensor] = field(default_factory=list)
    """The parameters that had no gradient so far."""
    order: list[dict[str, Any]] = field(default_factory=list)
    """The states of the members, in the order of the optimiser."""
    on_gpus: list[kernels.Launches] = field(default_factory=list)
    on_cpu: kernels.Places | None = None
    places: list[kernels.Places] = field(default_factory=list)
    """The places of all devices, the CPU last."""

    def stands(self, groups: list[dict[str, Any]], states: States) -> bool:
        """Whether the plan is of the parameters and states that there are now."""
        return (
            averaging_of(groups) == self.averaging
            and all(
                len(group["params"]) == len(given) and all(map(is_, group["params"], given))
                for group, given in zip(groups, self.given)
            )
            and len(states) == len(self.order)
            and all(map(is_, states.values(), self.order))
            and all([p.grad is None for p in self.others])
            and all([places.stand() for places in self.places])
        )

    def read(self) -> list[kernels.Gradients] | None:
        """The gradients of each place, in the order of ``places``. ``None`` if a parameter is not what it was."""
        found = []
        for places in self.places:
            gradients = places.read()
            if gradients is None:
                return None
            found.append(gradients)
        return found


def planned(
    rule: Rule,
    groups: list[dict[str, Any]],
    states: dict[Tensor, dict[str, Any]],
    workspaces: kernels.Workspaces,
) -> Plan:
    """The plan of the parameters that have a gradient or a state. Makes states, and brings them into the form of the kernels.

    Raises:
        TypeError, ValueError, RuntimeError: for a parameter that no step can change, or a state that is not of its parameter; no state
            was changed then.
    """
    plan = Plan(rule, [list(group["params"]) for group in groups], averaging_of(groups))
    taken: list[tuple[Tensor, int, str]] = []
    for index, group in enumerate(groups):
        for at, parameter in enumerate(group["params"]):
            if parameter.grad is None and not states.get(parameter):
                plan.others.append(parameter)
                continue
            name = label(group, index, at)
            check_parameter(rule, parameter, name)
            check_state(rule, states.get(parameter, {}), parameter, name)
            taken.append((parameter, index, name))
    begun = any(AVERAGE in state for state in states.values())
    owners = Owners()
    for parameter, _, name in taken:
        refuse_shared(rule, parameter, name, owners)
    places: dict[torch.device, list[kernels.Member]] = {}
    for parameter, index, name in taken:
        state = states[parameter]
        averages = plan.averaging[index]
        # A parameter that comes later was what it is until now, and so was its average.
        is_averaged = averages and begun
        keys = (*rule.means, AVERAGE) if is_averaged else rule.means
        makes = is_averaged != averages or any(key not in state for key in keys)
        if parameter.is_cuda and makes:
            kernels.refuse_to_record(rule, parameter.device)
        state.update(_completed(rule, parameter, state, keys, name, owners))
        member = kernels.Member(parameter, state, index, name, is_averaged)
        plan.members.append(member)
        if is_averaged != averages:
            plan.fresh.append(member)
        places.setdefault(parameter.device, []).append(member)
    plan.order = list(states.values())
    for device, members in places.items():
        if device.type == "cuda":
            plan.on_gpus.append(kernels.Launches(rule, members, workspaces))
        else:
            plan.on_cpu = kernels.Places(rule, members)
    plan.places = [launches.places for launches in plan.on_gpus]
    plan.places += [] if plan.on_cpu is None else [plan.on_cpu]
    return plan


def averaging_of(groups: list[dict[str, Any]]) -> list[bool]:
    """Whether the parameters of each group are averaged."""
    return [group["average_decay"] is not None for group in groups]


def begin_averages(plan: Plan) -> None:
    """Makes the averages that are still to be made, after the first step with averages: a first average is the parameter."""
    for member in plan.fresh:
        member.state[AVERAGE] = _copy(member.parameter, member.parameter)


def _completed(
    rule: Rule,
    parameter: Tensor,
    state: dict[str, Any],
    keys: tuple[str, ...],
    name: str,
    owners: Owners,
) -> dict[str, Tensor]:
    """The state of a parameter, new, or in the form that the kernels take: its own memory, in the parameter's type and order."""

    def can_stay(tensor: Tensor, key: str) -> bool:
        # Loaded states may share tensors, and steps would write over each other.
        return (
            not tensor.is_inference()
            and not tensor.is_neg()
            and not tensor.requires_grad
            and owners.take(tensor, f"`{key}` of {name}") is None
        )

    made = {}
    if rule.counts:
        step = state.get("step", 0.0)
        is_ours = isinstance(step, Tensor) and step.dtype == torch.float32 and not step.dim()
        if not is_ours or step.device != parameter.device or not can_stay(step, "step"):
            made["step"] = torch.tensor(float(step), dtype=torch.float32, device=parameter.device)
    for key in keys:
        mean = state.get(key)
        if mean is None and key == AVERAGE:
            made[key] = _copy(parameter, parameter)
        elif mean is None:
            made[key] = torch.zeros_like(parameter, requires_grad=False)
        elif (
            mean.stride() != parameter.stride()
            or mean.dtype != parameter.dtype
            or mean.device != parameter.device
            or not can_stay(mean, key)
        ):
            made[key] = _copy(mean, parameter)
    return made


def _copy(tensor: Tensor, like: Tensor) -> Tensor:
    """A copy in the type and order of a parameter."""
    return torch.empty_like(like, requires_grad=False).copy_(tensor)
