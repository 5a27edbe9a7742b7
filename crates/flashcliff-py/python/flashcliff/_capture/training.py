"""The parts of training in a step: optimisers, parameters and their gradients, and which of it a graph relies on."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.optim.optimizer import register_optimizer_step_pre_hook

from ..errors import CaptureError


class Training:
    """The modules that were named, and the optimisers that were seen at work."""

    def __init__(self, modules: Sequence[torch.nn.Module]) -> None:
        self.modules = [part for module in modules for part in module.modules()]
        self.optimisers: list[torch.optim.Optimizer] = []
        self.parameters: list[Tensor] = []
        self._known: set[int] = set()
        for module in modules:
            self._add(module.parameters())

    @contextmanager
    def watched(self, kind: str) -> Iterator[None]:
        """Finds the optimisers of a step that runs within, and refuses those that a graph of the device
        ``kind`` would freeze."""

        def look(optimiser: torch.optim.Optimizer, *_: Any) -> None:
            check(optimiser, kind)
            if not any(optimiser is known for known in self.optimisers):
                self.optimisers.append(optimiser)
            for group in optimiser.param_groups:
                self._add(group["params"])

        handle = register_optimizer_step_pre_hook(look)
        try:
            yield
        finally:
            handle.remove()

    def _add(self, parameters: Iterable[Tensor]) -> None:
        for parameter in parameters:
            if id(parameter) not in self._known:
                self._known.add(id(parameter))
                self.parameters.append(parameter)

    def gradients(self) -> list[Tensor | None]:
        return [parameter.grad for parameter in self.parameters]

    def put(self, gradients: Sequence[Tensor | None]) -> None:
        """Makes these the gradients of the parameters."""
        for parameter, gradient in zip(self.parameters, gradients):
            if parameter.grad is not gradient:
                parameter.grad = gradient

    def settings(self) -> list[list[dict[str, Any]]]:
        """The options of the groups of all optimisers, but their parameters."""
        return [
            [{k: v for k, v in group.items() if k != "params"} for group in optimiser.param_groups]
            for optimiser in self.optimisers
        ]


class Footing:
    """The state that a graph relies on: addresses of parameters, states and options of optimisers, and gradients
    that are there before a step."""

    def __init__(self, training: Training) -> None:
        self._training = training
        self._addresses = [parameter.data_ptr() for parameter in training.parameters]
        self._states = [optimiser.state for optimiser in training.optimisers]
        self._settings = training.settings()
        self._versions = self._tensors_in_settings()
        self._before = training.gradients()
        self.after: list[Tensor | None] = []

    def finish(self) -> None:
        """Looks at what the recorded step has changed.

        Raises:
            CaptureError: the step changes an option of an optimiser, which a graph would set to the same
                number each time.
        """
        training = self._training
        if (len(self._addresses), len(self._states)) != (
            len(training.parameters),
            len(training.optimisers),
        ):
            raise CaptureError(
                "the step called an optimiser that it did not call while it warmed up, so that a graph would make its "
                "state anew each time; give `warmup` so many calls that all optimisers are called"
            )
        self._check_settings("by the step itself: call schedulers outside of it")
        if self._versions != self._tensors_in_settings():
            raise CaptureError(
                "the step writes to a tensor among the options of an optimiser, such as `lr`, which a graph "
                "would set to the same number each time: call schedulers outside of the step"
            )
        self.after = self._training.gradients()

    def stands(self) -> bool:
        """Whether what the graph writes to is still in use: false for good after, say, ``load_state_dict``
        of an optimiser."""
        training = self._training
        return (
            len(self._addresses) == len(training.parameters)
            and all([p.data_ptr() == at for p, at in zip(training.parameters, self._addresses)])
            and len(self._states) == len(training.optimisers)
            and all([o.state is state for o, state in zip(training.optimisers, self._states)])
            and self._same_tensors_in_settings()
        )

    def fits(self) -> bool:
        """Whether the gradients are as they were before the recording, as far as the step reads them.

        A gradient that the step replaced by another may be any. One that it added to must be the same tensor, and one
        that it made must not be there.
        """
        for parameter, before, after in zip(self._training.parameters, self._before, self.after):
            if (before is None or before is after) and parameter.grad is not before:
                return False
        return True

    def check(self) -> None:
        """Raises :class:`CaptureError` if a number changed that the graph has recorded."""
        self._check_settings(
            "since the step was recorded, and a graph keeps numbers: give a tensor on the GPU, as in "
            "`lr=torch.tensor(1e-3, device='cuda')`, which schedulers write to, or call `reset()`"
        )

    def _check_settings(self, why: str) -> None:
        for optimiser, groups in zip(self._training.optimisers, self._settings):
            for index, (recorded, group) in enumerate(zip(groups, optimiser.param_groups)):
                for name, value in recorded.items():
                    now = group.get(name)
                    if now is not value and not isinstance(value, Tensor) and now != value:
                        raise CaptureError(
                            f"{type(optimiser).__name__}: `{name}` of group {index} was changed from {value} to "
                            f"{now} {why}"
                        )

    def _same_tensors_in_settings(self) -> bool:
        for optimiser, groups in zip(self._training.optimisers, self._settings):
            if len(groups) != len(optimiser.param_groups):
                return False
            for recorded, group in zip(groups, optimiser.param_groups):
                for name, value in recorded.items():
                    if isinstance(value, Tensor) and group.get(name) is not value:
                        return False
        return True

    def _tensors_in_settings(self) -> list[int]:
        return [
            value._version
            for groups in self._settings
            for group in groups
            for value in group.values()
            if isinstance(value, Tensor)
        ]


def check(optimiser: torch.optim.Optimizer, kind: str) -> None:
    """Raises :class:`CaptureError` if a graph would repeat numbers of an optimiser that must change."""
    name = type(optimiser).__name__
    for group in optimiser.param_groups:
        if group.get("capturable") is False:
            raise CaptureError(
                f"{name} counts its steps where a graph cannot: make it with `capturable=True`, as in "
                f"`torch.optim.{name}(parameters, capturable=True)`"
            )
        for option, value in group.items():
            if isinstance(value, Tensor) and value.device.type != kind:
                raise CaptureError(
                    f"{name}: the tensor `{option}` must be on {kind}, where the graph reads it, got {value.device}"
                )
    for state in optimiser.state.values():
        steps = state.get("step") if isinstance(state, dict) else None
        if steps is not None and (not isinstance(steps, Tensor) or steps.device.type != kind):
            where = steps.device if isinstance(steps, Tensor) else "the host"
            raise CaptureError(
                f"{name} counts its steps on {where}, where a graph cannot: take an optimiser with the option "
                "`capturable`, or call it outside of the step"
            )
