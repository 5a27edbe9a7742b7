"""AdamW: the optimiser and its options; `_plan` has the parameters of a step, `_checks` what is refused."""

from __future__ import annotations

from collections.abc import Callable
from itertools import compress
from operator import is_
from typing import Any, overload

import torch
from torch import Tensor
from torch.optim.adamw import adamw
from torch.optim.optimizer import ParamsT

from .._ops import adamw as kernels
from .._ops.adamw_checks import (
    check_kind,
    check_rate,
    check_state,
    label,
    refuse_surroundings,
)
from ..errors import CaptureError
from ._checks import OPTIONS, THEIRS, check_loaded, check_options, check_theirs, number_of
from ._plan import Plan, planned


class AdamW(torch.optim.Optimizer):
    """AdamW with all parameters of a GPU in one launch: for networks of hundreds of small tensors.

    For each parameter ``p`` with gradient ``g``, at its step ``t = 1, 2, ...``::

        g <- clip g
        p <- p - lr weight_decay p
        m <- beta1 m + (1 - beta1) g
        v <- beta2 v + (1 - beta2) g^2
        p <- p - lr m / (1 - beta1^t) / (sqrt(v / (1 - beta2^t)) + eps)

    ``clip`` is ``min(1, max_norm / (norm + 1e-6))`` with the norm of all gradients together, as in
    ``torch.nn.utils.clip_grad_norm_``, and 1 without ``max_norm``. Gradients in memory stay as they are.

    Formula, options and state are those of ``torch.optim.AdamW``, and results agree with it up to rounding. State dicts of either
    load into the other. A parameter without a gradient is left as it is, and its step is not counted.

    **On CUDA** a step is one launch for up to 512 parameters of one type in up to 16 groups, and one more with ``max_norm``. Nothing waits for
    the GPU, and nothing is allocated after the first step. Step counts lie on the GPU, so a step can be recorded into a CUDA graph
    after it ran once, by ``torch.cuda.graph`` or :func:`flashcliff.capture`. A graph keeps numbers as they were: for a learning rate that
    changes give a tensor on the GPU, ``lr=torch.tensor(1e-3, device="cuda")``, which schedulers write to. **On the CPU** steps are those
    of ``torch.optim.AdamW(..., fused=True)``.

    Parameters and their state are float32 or float64. On CUDA, coefficients and the norm are computed in float64, and the rest in the type of the
    parameter. Sums have a fixed order, so results on one GPU are the same bit for bit every time.

    Source: I. Loshchilov and F. Hutter, *Decoupled weight decay regularization*, ICLR 2019, algorithm 2.

    **What is checked.** Addresses are taken once and kept. Each step looks whether parameters and states are still what they were, where they were,
    and starts anew if not; then every state must have the shape of its parameter and memory of its own, or an error names the parameter. So a state
    of another model is refused, when it is loaded or at the next step. Options are checked when they are given, and at the next step after they were
    set in ``param_groups``; the number in a learning rate on a GPU only when it is given to the optimiser, a group or a state, since steps do not wait
    for the GPU. An error in a step leaves parameters and states as they were. The compiled call path (:mod:`flashcliff.native`) makes these
    checks cost next to nothing.

    States of ``torch.optim.Adam`` with weight decay are refused, because their decay is a part of the gradient, and so are those of other optimisers.
    PyTorch before 2.8 does not write the difference into states of Adam.

    Args:
        params: parameters, named parameters, or groups of them with options of their own.
        lr: the learning rate: a number, or a tensor of one element.
        betas: the decay rates of the means of gradients and of squared gradients.
        eps: the number that is added to the root of the second mean.
        weight_decay: the decay of parameters, which is not a part of the gradient.
        maximize: whether steps go along the gradient.
        max_norm: the largest norm of all gradients of all groups together; ``None`` for any. All parameters are on one device then.

    Raises:
        TypeError: for parameters of 16 bits, complex ones, ones that are not plain tensors; options of other types.
        ValueError: for options out of range or that no step heeds (``amsgrad``, ``foreach``), parameters that share memory or whose elements do
            not lie side by side, states and gradients of other shapes, memory that was given back.
        RuntimeError: for sparse gradients, and those on another device.
        flashcliff.UnsupportedError: for devices other than the CPU and CUDA, on CUDA in a build without its kernels, and for steps within
            transforms, traces, and modes that make fake tensors.
        flashcliff.CaptureError: where a graph records the first step, or a learning rate on the CPU.
    """

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 1e-2,
        *,
        maximize: bool = False,
        max_norm: float | None = None,
    ) -> None:
        self._plan: Plan | None = None
        self._workspaces = kernels.Workspaces()
        self._norm: Tensor | None = None
        self._checked: list[tuple[tuple[str, ...], tuple[Any, ...]]] = []
        defaults = {
            "lr": lr,
            "betas": betas,
            "eps": eps,
            "weight_decay": weight_decay,
            "maximize": maximize,
            "max_norm": max_norm,
        }
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
            check_theirs({**theirs, "params": group["params"]})
            check_options(group, read=True)
            for at, parameter in enumerate(group["params"]):
                check_kind(parameter, label(group, index, at))
        except Exception:
            self.param_groups.pop()
            raise

    def state_dict(self) -> dict[str, Any]:
        """The state, with the keys that ``torch.optim.AdamW`` has."""
        found = super().state_dict()
        for packed, group in zip(found["param_groups"], self.param_groups):
            packed.update(THEIRS)
            packed["capturable"] = all(p.is_cuda for p in group["params"])
        return found

    def __getstate__(self) -> dict[str, Any]:
        return {key: self.__dict__[key] for key in ("defaults", "state", "param_groups")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Takes a state that was loaded or copied. One that is not of these parameters, or of another optimiser, is an error, and the state of
        before stays."""
        defaults = state.get("defaults", self.__dict__.get("defaults", {}))
        given = state.get("state", {})
        for index, group in enumerate(state.get("param_groups", ())):
            check_loaded(group, index)
            for name in THEIRS:
                group.pop(name, None)
            for name in ("maximize", "max_norm"):
                group.setdefault(name, defaults.get(name))
            check_options(group, read=True)
            for at, parameter in enumerate(group["params"]):
                check_state(given.get(parameter, {}), parameter, label(group, index, at))
        super().__setstate__(state)
        self._plan = None
        self._checked = []
        self.__dict__.setdefault("_workspaces", kernels.Workspaces())
        self.__dict__.setdefault("_norm", None)

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
        refuse_surroundings()
        self._check_options()
        plan, gradients = self._current()
        max_norm = self._max_norm(plan)
        for launches, given in zip(plan.on_gpus, gradients):
            launches.step(given, self._groups(launches.places.device), max_norm)
            if max_norm is not None:
                self._norm = launches.norm
        if plan.on_cpu is not None:
            self._update_on_cpu(plan.on_cpu, gradients[-1].tensors, max_norm)

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
            missing = [name for name in OPTIONS if name not in group]
            if missing:
                raise ValueError(
                    f"AdamW: group {index} has no {', '.join(missing)}, which it needs"
                )
            check_options(group, read=False)
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
            plan = planned(self.param_groups, self.state, self._workspaces)
        gradients = plan.read()
        if gradients is None:
            raise RuntimeError("AdamW: a parameter changed while its step was prepared")
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
                *_rate(group["lr"], device),
                (float(group["betas"][0]), float(group["betas"][1])),
                float(group["eps"]),
                float(group["weight_decay"]),
                bool(group["maximize"]),
            )
            for group in self.param_groups
        ]

    def _update_on_cpu(
        self, places: kernels.Places, gradients: list[Tensor | None], max_norm: float | None
    ) -> None:
        there = [gradient for gradient in gradients if gradient is not None]
        if not there:
            return
        if max_norm is not None:
            norms = [torch.linalg.vector_norm(g, dtype=torch.float64) for g in there]
            self._norm = torch.linalg.vector_norm(torch.stack(norms))
            clip = (max_norm / (self._norm + 1e-6)).clamp(max=1.0)
            gradients = [None if g is None else g * clip.to(g.dtype) for g in gradients]
        columns: list[list[Any]] = [places.parameters, gradients, *places.states]
        are_all_there = len(there) == len(gradients)
        for index, run in places.runs:
            parameters, given, steps, means, squares = (column[run] for column in columns)
            if not are_all_there:
                found = [gradient is not None for gradient in given]
                parameters, given, steps, means, squares = (
                    list(compress(column, found))
                    for column in (parameters, given, steps, means, squares)
                )
                if not given:
                    continue
            group = self.param_groups[index]
            adamw(
                parameters,
                given,
                means,
                squares,
                [],
                steps,
                fused=True,
                amsgrad=False,
                beta1=float(group["betas"][0]),
                beta2=float(group["betas"][1]),
                lr=number_of(group["lr"]),
                weight_decay=float(group["weight_decay"]),
                eps=float(group["eps"]),
                maximize=bool(group["maximize"]),
            )
            torch.autograd.graph.increment_version(parameters)


def _rate(rate: float | Tensor, device: torch.device) -> tuple[float, tuple[int, str] | None]:
    """A learning rate as a number, or 0 and where it lies."""
    if not isinstance(rate, Tensor):
        return float(rate), None
    if rate.device == device:
        check_rate(rate)
        return 0.0, kernels.rate_at(rate)
    if rate.is_cpu:
        with torch.cuda.device(device):
            if torch.cuda.is_current_stream_capturing():
                raise CaptureError(
                    f"AdamW: a graph would keep the number that the tensor `lr` now has; make it on {device}, where a replay "
                    "reads it"
                )
        return number_of(rate), None
    raise RuntimeError(f"lr: expected a tensor on {device} or on the CPU, got {rate.device}")
