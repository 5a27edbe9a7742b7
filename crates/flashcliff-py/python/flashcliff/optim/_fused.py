"""What our optimisers share: groups, states, steps; `_plan` has the parameters of a step, `_checks` what is refused."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import compress
from operator import is_
from typing import Any, ClassVar, overload

import torch
from torch import Tensor
from torch.optim.optimizer import ParamsT

from .._ops import native
from .._ops import optim as kernels
from .._ops.optim_checks import (
    check_kind,
    check_rate,
    check_state,
    label,
    refuse_surroundings,
)
from .._ops.optim_rules import Rule
from ..errors import CaptureError
from . import _averages
from ._checks import THEIRS, check_loaded, check_options, check_theirs, number_of
from ._plan import Plan, begin_averages, planned


class Fused(torch.optim.Optimizer):
    """An optimiser whose steps are one launch on a GPU for all parameters."""

    _rule: ClassVar[Rule]

    def __init__(self, params: ParamsT, defaults: dict[str, Any]) -> None:
        self._plan: Plan | None = None
        self._workspaces = kernels.Workspaces()
        self._norm: Tensor | None = None
        self._checked: list[tuple[tuple[str, ...], tuple[Any, ...]]] = []
        self._exchanged = False
        super().__init__(params, defaults)
        # Gradients that are kept are set to zero by few launches.
        self.defaults["foreach"] = True

    @property
    def grad_norm(self) -> Tensor | None:
        """The norm of all gradients in the last step with ``max_norm``, before clipping: a tensor of float64 on their device, which
        the next step overwrites. ``None`` before such a step."""
        return self._norm

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        self._plan = None
        # Options of PyTorch's that are given here, not those that its class adds by itself.
        theirs = {name: param_group[name] for name in THEIRS if name in param_group}
        super().add_param_group(param_group)
        index = len(self.param_groups) - 1
        group = self.param_groups[index]
        for name in THEIRS:
            group.pop(name, None)
        try:
            check_theirs(self._rule, {**theirs, "params": group["params"]})
            check_options(self._rule, group, read=True)
            for at, parameter in enumerate(group["params"]):
                check_kind(self._rule, parameter, label(group, index, at))
        except Exception:
            self.param_groups.pop()
            raise

    @torch._disable_dynamo
    def zero_grad(self, set_to_none: bool = True) -> None:
        """Sets all gradients to ``None``, or to zero."""
        if not set_to_none or native.loaded is None or torch.autograd._profiler_enabled():
            return super().zero_grad(set_to_none)
        for group in self.param_groups:
            native.loaded.clear_gradients(group["params"])

    def state_dict(self) -> dict[str, Any]:
        """The state: of each parameter its means, and its average if it has one."""
        self._refuse_exchanged("the state")
        return super().state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Takes a state that :meth:`state_dict` gave."""
        self._refuse_exchanged("a state that is loaded")
        super().load_state_dict(state_dict)

    @contextmanager
    def averaged_parameters(self) -> Iterator[None]:
        """Within it, parameters have the numbers of their averages, for validation or to save them; after it, their own again, bit for bit.

        ::

            with optimiser.averaged_parameters():
                loss = validate(model)
                torch.save(model.state_dict(), "averaged.pt")

        Tensors stay where they are, so captured functions see the averages too. Numbers are exchanged in place, by a copy of the
        parameters that are averaged. Steps, states and copies of the optimiser are errors within; do not replay a captured step either.

        Raises:
            RuntimeError: if no parameter has an average, or within such a block.
        """
        self._refuse_exchanged("the exchange")
        pairs = _averages.pairs(self._rule, self.param_groups, self.state)
        _averages.exchange(pairs)
        self._exchanged = True
        try:
            yield
        finally:
            self._exchanged = False
            _averages.exchange(pairs)

    def _refuse_exchanged(self, what: str) -> None:
        if self._exchanged:
            raise RuntimeError(
                f"{self._rule.name}: {what} would take averages for parameters within `averaged_parameters()`; end that block first"
            )

    def __getstate__(self) -> dict[str, Any]:
        self._refuse_exchanged("a copy")
        return {key: self.__dict__[key] for key in ("defaults", "state", "param_groups")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Takes a state that was loaded or copied. A state of other parameters or of another optimiser is an error, and the earlier
        state stays."""
        defaults = state.get("defaults", self.__dict__.get("defaults", {}))
        given = state.get("state", {})
        for index, group in enumerate(state.get("param_groups", ())):
            check_loaded(self._rule, group, index)
            for name in THEIRS:
                group.pop(name, None)
            for name in ("maximize", "max_norm", "average_decay"):
                group.setdefault(name, defaults.get(name))
            check_options(self._rule, group, read=True)
            for at, parameter in enumerate(group["params"]):
                name = label(group, index, at)
                check_state(self._rule, given.get(parameter, {}), parameter, name)
        super().__setstate__(state)
        self._plan = None
        self._checked = []
        self.__dict__.setdefault("_workspaces", kernels.Workspaces())
        self.__dict__.setdefault("_norm", None)
        self.__dict__.setdefault("_exchanged", False)

    @overload
    def step(self, closure: None = None) -> None: ...

    @overload
    def step(self, closure: Callable[[], float]) -> float: ...

    def step(self, closure: Callable[[], float] | None = None) -> float | None:
        """One step of all parameters that have a gradient. ``closure`` computes the loss and its gradients again."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        self._update()
        return loss

    @torch._disable_dynamo
    @torch.no_grad()
    def _update(self) -> None:
        refuse_surroundings(self._rule)
        self._refuse_exchanged("a step")
        self._check_options()
        plan, gradients = self._current()
        max_norm = self._max_norm(plan)
        for launches, given in zip(plan.on_gpus, gradients):
            launches.step(given, self._groups(launches.places.device), max_norm)
            if max_norm is not None:
                self._norm = launches.norm
        if plan.on_cpu is not None:
            self._update_on_cpu(plan.on_cpu, gradients[-1].tensors, max_norm)
        if plan.fresh:
            with torch.inference_mode(False), torch.no_grad():
                begin_averages(plan)
            self._plan = None

    def _check_options(self) -> None:
        """Looks at the options of groups that were set since the last step."""
        checked = self._checked
        if len(checked) != len(self.param_groups):
            checked = self._checked = [((), ())] * len(self.param_groups)
        for index, group in enumerate(self.param_groups):
            names, values = checked[index]
            if len(group) == len(names) and all(map(is_, group.values(), values)):
                if names == tuple(group) and type(group["betas"]) is tuple:
                    continue
            self._checked[index] = ((), ())
            missing = [name for name in self._rule.options if name not in group]
            if missing:
                raise ValueError(
                    f"{self._rule.name}: group {index} has no {', '.join(missing)}, which it needs"
                )
            check_options(self._rule, group, read=False)
            self._checked[index] = (tuple(group), tuple(group.values()))

    def _current(self) -> tuple[Plan, list[kernels.Gradients]]:
        """The plan of now, and all gradients, so that a wrong one leaves all parameters as they are."""
        plan = self._plan
        if plan is not None and plan.stands(self.param_groups, self.state):
            gradients = plan.read()
            if gradients is not None:
                return plan, gradients
        self._plan = None
        # What is made here outlasts a step within inference mode, and is written to outside of it.
        with torch.inference_mode(False), torch.no_grad():
            plan = planned(self._rule, self.param_groups, self.state, self._workspaces)
        gradients = plan.read()
        if gradients is None:
            raise RuntimeError(f"{self._rule.name}: a parameter changed while its step was prepared")
        self._plan = plan
        return plan, gradients

    def _max_norm(self, plan: Plan) -> float | None:
        wanted: set[float | None] = {group["max_norm"] for group in self.param_groups}
        if len(wanted) > 1:
            raise ValueError(
                "max_norm: expected one number for all groups, since it bounds the norm of all gradients together, got "
                f"{', '.join(map(str, wanted))}"
            )
        (max_norm,) = wanted
        if max_norm is not None and len(plan.places) > 1:
            places = sorted({str(member.parameter.device) for member in plan.members})
            raise ValueError(
                f"max_norm: expected all parameters on one device, got {' and '.join(places)}; call "
                "torch.nn.utils.clip_grad_norm_ instead"
            )
        return max_norm

    def _groups(self, device: torch.device) -> list[kernels.Group]:
        return [
            kernels.Group(
                *_rate(self._rule, group["lr"], device),
                (float(group["betas"][0]), float(group["betas"][1])),
                float(group.get("eps", 0.0)),
                float(group["weight_decay"]),
                bool(group["maximize"]),
                float(group["average_decay"] or 0.0),
            )
            for group in self.param_groups
        ]

    def _update_on_cpu(
        self, places: kernels.Places, gradients: list[Tensor | None], max_norm: float | None
    ) -> None:
        there = [gradient for gradient in gradients if gradient is not None]
        if max_norm is not None and there:
            norms = [torch.linalg.vector_norm(g, dtype=torch.float64) for g in there]
            self._norm = torch.linalg.vector_norm(torch.stack(norms))
            clip = (max_norm / (self._norm + 1e-6)).clamp(max=1.0)
            gradients = [None if g is None else g * clip.to(g.dtype) for g in gradients]
        columns: list[list[Any]] = [places.parameters, gradients, *places.states]
        are_all_there = len(there) == len(gradients)
        for index, run in places.runs:
            of_run = [column[run] for column in columns]
            if not are_all_there:
                found = [gradient is not None for gradient in of_run[1]]
                of_run = [list(compress(column, found)) for column in of_run]
            if of_run[1]:
                self._step_on_cpu(self.param_groups[index], *of_run)
        for index, averages, parameters in places.averages:
            gain = 1 - float(self.param_groups[index]["average_decay"])
            torch._foreach_lerp_(averages, parameters, gain)

    @abstractmethod
    def _step_on_cpu(
        self,
        group: dict[str, Any],
        parameters: list[Tensor],
        gradients: list[Tensor],
        *states: list[Tensor],
    ) -> None:
        """A step of parameters of a group that have a gradient; ``states`` are their tensors for each name of the rule."""


def _rate(
    rule: Rule, rate: float | Tensor, device: torch.device
) -> tuple[float, tuple[int, str] | None]:
    """A learning rate as a number, or 0 and where it lies."""
    if not isinstance(rate, Tensor):
        return float(rate), None
    if rate.device == device:
        check_rate(rule, rate)
        return 0.0, kernels.rate_at(rate)
    if rate.is_cpu:
        with torch.cuda.device(device):
            if torch.cuda.is_current_stream_capturing():
                raise CaptureError(
                    f"{rule.name}: a graph would keep the number that the tensor `lr` now has; make it on {device}, where a replay "
                    "reads it"
                )
        return number_of(rule, rate), None
    raise RuntimeError(f"lr: expected a tensor on {device} or on the CPU, got {rate.device}")
