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
from .adamw_checks import PLAIN, STATE, check_gradient, has_memory
from .items import launch
from .tensor_types import NAMES

__all__ = ["Gradients", "Group", "Launches", "Member", "Places", "Workspaces"]


_EMPTY = 8
"""Stands for the address of a gradient without elements. PyTorch says 0, which means no gradient here."""
_LOWEST = 1 << 32
"""No tensor of a usual process lies below this address. Below it we look closer."""


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
    """Parameters of one device, and where they, their states and their gradients lie.

    Each step asks anew, by loops of built-in functions, because there may be hundreds of parameters.
    """

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
        self._addresses = list(map(_address, self.parameters))
        self._dicts = [member.state for member in members]
        self._state_addresses = [list(map(_address, each)) for each in self.states]
        self._bytes = list(map(_bytes, self.parameters))
        self._sizes = list(map(_size, self.parameters))
        self._kinds = list(map(_kind, self.parameters))
        self._strides = list(map(_strides, self.parameters))
        self._are_contiguous = all(map(_is_contiguous, self.parameters))
        self._single = [at for at, p in enumerate(self.parameters) if p.numel() == 1]

    def stand(self) -> bool:
        """Whether parameters and states are where they were, as far as that can be told without asking for each size: a shape that changed in
        place is seen by the gradient, which has the new one."""
        try:
            return (
                list(map(_address, self.parameters)) == self._addresses
                and list(map(_bytes, self.parameters)) == self._bytes
                and self._lie_alike(self.parameters, self._strides)
                # States that were replaced lie elsewhere, since those of before are kept here.
                and list(map(_address, map(_step, self._dicts))) == self._state_addresses[0]
                and list(map(_address, map(_mean, self._dicts))) == self._state_addresses[1]
                and list(map(_address, map(_square, self._dicts))) == self._state_addresses[2]
            )
        except (KeyError, RuntimeError, TypeError):
            # PyTorch raises for tensors without memory of their own.
            return False

    def read(self) -> Gradients | None:
        """The gradients, those that a step cannot read copied. ``None`` if a parameter is not what it was.

        Raises:
            TypeError, ValueError, RuntimeError: for what is not a gradient of its parameter.
        """
        gradients = list(map(_gradient, self.parameters))
        addresses = self._found(gradients)
        return self._brought(gradients) if addresses is None else Gradients(gradients, addresses)

    def _found(self, gradients: Sequence[Tensor | None]) -> list[int] | None:
        """The address of each gradient, ``None`` if one cannot be read where it lies."""
        there = None
        given: Sequence[Any] = gradients
        sizes, kinds, strides = self._sizes, self._kinds, self._strides
        types = set(map(type, gradients))
        if type(None) in types:
            types.remove(type(None))
            there = [gradient is not None for gradient in gradients]
            given, sizes, kinds, strides = (
                list(compress(each, there)) for each in (given, sizes, kinds, strides)
            )
        if not types <= PLAIN:
            return None
        try:
            if (
                list(map(_size, given)) != sizes
                or list(map(_kind, given)) != kinds
                or not self._lie_alike(given, strides)
                or not set(map(_place, given)) <= {self.parameters[0].get_device()}
            ):
                return None
            addresses = list(map(_address, given))
        except RuntimeError:
            return None
        # Only one element can lie side by side in a view of imaginary parts, which may be negated by a flag.
        single = [gradients[at] for at in self._single]
        if any(gradient is not None and gradient.is_neg() for gradient in single):
            return None
        if addresses and min(addresses) < _LOWEST:
            # The address of a tensor whose memory was given back is its offset.
            if not all(has_memory(g) for g, at in zip(given, addresses) if at < _LOWEST):
                return None
            addresses = [address or _EMPTY for address in addresses]
        if there is None:
            return addresses
        following = iter(addresses)
        return [next(following) if is_there else 0 for is_there in there]

    def _lie_alike(self, tensors: Sequence[Tensor], strides: Sequence[tuple[int, ...]]) -> bool:
        if self._are_contiguous:
            return all(map(_is_contiguous, tensors))
        return list(map(_strides, tensors)) == strides

    def _brought(self, gradients: list[Tensor | None]) -> Gradients | None:
        """Gradients that fit, or are copied so that they do."""
        expected = list(zip(self._sizes, self._kinds, self._strides))
        if [(p.size(), p.dtype, p.stride()) for p in self.parameters] != expected:
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
            found[at], addresses[at] = gradient, gradient.data_ptr() or _EMPTY
        return Gradients(found, addresses)


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


# Descriptors cost half of what `methodcaller` does.
_address, _place, _is_contiguous = Tensor.data_ptr, Tensor.get_device, Tensor.is_contiguous
_size, _strides = Tensor.size, Tensor.stride
_kind, _bytes, _gradient = map(attrgetter, ("dtype", "nbytes", "grad"))
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
