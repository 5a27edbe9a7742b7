"""AdamW: the optimiser and its options; `_plan` has the parameters of a step, `_checks` what is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, overload

import torch
from torch import Tensor
from torch.optim.adamw import adamw
from torch.optim.optimizer import ParamsT

from .._ops import adamw as kernels
from ..errors import CaptureError
from ._checks import check_options, check_parameter, check_theirs, refuse_gradients
from ._plan import Plan, planned

# Options of torch.optim.AdamW's groups that ours do not have. State dicts have them, so that it reads them.
_THEIRS = {
    "amsgrad": False,
    "foreach": None,
    "capturable": False,
    "differentiable": False,
    "fused": None,
    "decoupled_weight_decay": True,
}


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

    Args:
        params: parameters, named parameters, or groups of them with options of their own.
        lr: the learning rate: a number, or a tensor of one element.
        betas: the decay rates of the means of gradients and of squared gradients.
        eps: the number that is added to the root of the second mean.
        weight_decay: the decay of parameters, which is not a part of the gradient.
        maximize: whether steps go along the gradient.
        max_norm: the largest norm of all gradients of all groups together; ``None`` for any. All parameters are on one device then.

    Raises:
        TypeError: for parameters of 16 bits, complex ones, ones that are not plain tensors.
        ValueError: for options out of range, and parameters whose elements do not lie side by side.
        RuntimeError: for sparse gradients.
        flashcliff.UnsupportedError: for devices other than the CPU and CUDA, and on CUDA in a build without its kernels.
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
        super().add_param_group(param_group)
        group = self.param_groups[-1]
        group.pop("foreach", None)
        try:
            check_options(group)
            for parameter in group["params"]:
                check_parameter(parameter)
        except Exception:
            self.param_groups.pop()
            raise

    def state_dict(self) -> dict[str, Any]:
        """The state, with the keys that ``torch.optim.AdamW`` has."""
        found = super().state_dict()
        for packed, group in zip(found["param_groups"], self.param_groups):
            packed.update(_THEIRS)
            packed["capturable"] = all(p.is_cuda for p in group["params"])
        return found

    def __getstate__(self) -> dict[str, Any]:
        return {key: self.__dict__[key] for key in ("defaults", "state", "param_groups")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        for group in state.get("param_groups", ()):
            check_theirs(group)
        super().__setstate__(state)
        self._plan = None
        self.__dict__.setdefault("_workspaces", kernels.Workspaces())
        self.__dict__.setdefault("_norm", None)
        for group in self.param_groups:
            for name in _THEIRS:
                group.pop(name, None)
            for name in ("maximize", "max_norm"):
                group.setdefault(name, self.defaults[name])

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
        plan = self._plan
        if plan is None or not plan.stands(self.param_groups, self.state):
            plan = self._plan = planned(self.param_groups, self.state, self._workspaces)
        max_norm = self._max_norm(plan)
        for launches in plan.on_gpus:
            gradients = [member.parameter.grad for member in launches.members]
            refuse_gradients([g for g in gradients if g is not None])
            launches.step(gradients, self._groups(launches.members[0].parameter.device), max_norm)
            if max_norm is not None:
                self._norm = launches.norm
        if plan.on_cpu:
            self._update_on_cpu(plan.on_cpu, max_norm)

    def _max_norm(self, plan: Plan) -> float | None:
        wanted: set[float | None] = {group["max_norm"] for group in self.param_groups}
        if len(wanted) > 1:
            raise ValueError(
                "max_norm: expected one number for all groups, since it bounds the norm of all gradients together, got "
                f"{', '.join(map(str, wanted))}"
            )
        (max_norm,) = wanted
        if max_norm is not None and len(plan.on_gpus) + bool(plan.on_cpu) > 1:
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

    def _update_on_cpu(self, members: list[kernels.Member], max_norm: float | None) -> None:
        members = [member for member in members if member.parameter.grad is not None]
        gradients = [g for member in members if (g := member.parameter.grad) is not None]
        refuse_gradients(gradients)
        if not gradients:
            return
        gradients = [
            g if g.stride() == m.parameter.stride() else torch.empty_like(m.parameter).copy_(g)
            for g, m in zip(gradients, members)
        ]
        if max_norm is not None:
            norms = torch.stack(
                [torch.linalg.vector_norm(g, dtype=torch.float64) for g in gradients]
            )
            self._norm = torch.linalg.vector_norm(norms)
            clip = (max_norm / (self._norm + 1e-6)).clamp(max=1.0)
            gradients = [g * clip.to(g.dtype) for g in gradients]
        for index, group in enumerate(self.param_groups):
            chosen = [at for at, member in enumerate(members) if member.group == index]
            if not chosen:
                continue
            own = [members[at] for at in chosen]
            adamw(
                [member.parameter for member in own],
                [gradients[at] for at in chosen],
                [member.mean for member in own],
                [member.square for member in own],
                [],
                [member.step for member in own],
                fused=True,
                amsgrad=False,
                beta1=float(group["betas"][0]),
                beta2=float(group["betas"][1]),
                lr=float(group["lr"]),
                weight_decay=float(group["weight_decay"]),
                eps=float(group["eps"]),
                maximize=bool(group["maximize"]),
            )
        torch.autograd.graph.increment_version([member.parameter for member in members])


def _rate(rate: float | Tensor, device: torch.device) -> tuple[float, tuple[int, str] | None]:
    """A learning rate as a number, or 0 and where it lies."""
    if not isinstance(rate, Tensor):
        return float(rate), None
    if rate.device == device:
        return 0.0, kernels.rate_at(rate)
    if rate.is_cpu:
        with torch.cuda.device(device):
            if torch.cuda.is_current_stream_capturing():
                raise CaptureError(
                    f"AdamW: a graph would keep the number that the tensor `lr` now has; make it on {device}, where a replay "
                    "reads it"
                )
        return float(rate), None
    raise RuntimeError(f"lr: expected a tensor on {device} or on the CPU, got {rate.device}")
