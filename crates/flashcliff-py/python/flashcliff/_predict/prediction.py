"""The time and memory of a step, before it runs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from .. import _core
from .._ops import room
from .rates import checked, rates_of
from .record import Call, Recorder, tensors_of
from .report import Prediction, Row
from .scale import Sample, largest, same_order, times
from .step import Model

_PROBE = {"cpu": 128 << 20, "cuda": 1 << 30}
"""The most bytes that the samples that run take."""
_SHARE = 4
"""At most a quarter of the batch runs, and on a GPU a quarter of that too, which few samples do not fill."""


def predict(
    model: torch.nn.Module,
    batch: Any,
    *,
    size: int | None = None,
    axis: int | Sequence[int | None] = 0,
    backward: bool = True,
    memory: int | None = None,
) -> Prediction:
    """Predicts the time of a forward and a backward pass of a model, its peak memory and the largest batch that fits.

    ::

        print(flashcliff.predict(model, x, size=4096))

    The calls of the step and its memory come from a run with fake tensors of the wanted size, which takes no memory. Times start from a
    real run with few samples: at most a quarter of the batch, and at most 128 MiB of tensors on a CPU. On a GPU it is at most 1 GiB, and all of
    the batch where a quarter has other kernels. From there each call grows as its bytes and operations do at the rates of the machine, which :func:`flashcliff.calibrate` measures once. If they are not known, they are
    measured first, which takes some seconds. ``benches/predict_check.py`` compares predictions with steps that run.

    The model is left as it is. Modules that are compiled, or that read the values of their inputs, are not predicted.

    Args:
        model: a module on one device.
        batch: example inputs: a tensor, a tuple of positional arguments, or a dictionary of arguments by name.
        size: the batch to predict, if another than that of the example.
        axis: the axis of the batch, 1 for multivectors ``[blades, batch, channels]``; or one for each tensor of ``batch``, ``None`` for
            one that every sample has in common. A single number holds for all tensors whose axis is as long as that of the first.
        backward: whether a backward pass follows.
        memory: bytes that the step may take besides the parameters, for the largest batch; what the device has free if ``None``.

    Raises:
        TypeError: ``model`` is no module, or ``batch`` has no tensor.
        ValueError: ``size`` or ``axis`` fits no tensor; the model takes the example, but no other number of samples along ``axis``; tensors
            on another device than a CPU or GPU.
        UnsupportedError: the work of the model depends on the values of its inputs.
    """
    example = _checked(model, batch, size, axis, backward)
    device = checked(_device(model, batch))
    wanted = example.size if size is None else size
    rates = rates_of(device)
    whole = _first(example, wanted)
    own = sum(_bytes(t) for t in (*model.parameters(), *model.buffers()))
    taken = max(whole.held.peak - own, 1)
    most_samples = wanted * _PROBE[device.type] // taken
    few = max(1, min(wanted // _SHARE, most_samples))
    part = example.fake(few)
    if device.type == "cuda" and not same_order(part.calls, whole.calls):
        # Many rows have other kernels than few.
        few = max(1, min(wanted, most_samples))
        part = example.fake(few)
    samples = [Sample(example.probe(few), part.calls)]
    if device.type == "cuda" and few >= _SHARE:
        fewer = few // _SHARE
        calls = example.fake(fewer).calls
        # Other kernels say nothing of how these grow.
        if same_order(calls, whole.calls):
            samples.insert(0, Sample(example.probe(fewer), calls))
    probe = samples[-1].probe
    seconds = times(rates, samples, whole.calls)
    pair = (part.calls, times(rates, samples, part.calls)), (whole.calls, seconds)
    forward = _phase("forward", probe.forward, device, *pair)
    behind = _phase("backward", probe.backward, device, *pair)
    available = _available(device) if memory is None else memory
    most = None
    if available is not None:
        known = {few: part.held.peak - own, wanted: whole.held.peak - own}
        if len(known) == 1:
            known[2 * wanted] = example.fake(2 * wanted).held.peak - own
        most = largest(lambda size: example.fake(size).held.peak - own, available, known)
    return Prediction(
        str(device),
        wanted,
        few,
        forward,
        behind,
        whole.held.peak,
        own,
        available,
        most,
        _rows(whole.calls, seconds),
    )


Timed = tuple[Sequence[Call], Sequence[float]]


def _phase(phase: str, wall: float, device: torch.device, part: Timed, whole: Timed) -> float:
    """The seconds of a phase of the whole step, from those of the part."""
    less, more = (
        sum(time for call, time in zip(*timed) if call.phase == phase) for timed in (part, whole)
    )
    if device.type == "cuda":
        # Whoever takes longer: the host, which does the same for every batch, or the GPU.
        return max(wall, more) if wall > less else more
    return max(wall + more - less, 0.0)


def _rows(calls: Sequence[Call], seconds: Sequence[float]) -> tuple[Row, ...]:
    groups: dict[tuple[str, str], list[int]] = defaultdict(list)
    for at, call in enumerate(calls):
        groups[call.name, call.phase].append(at)
    rows = (
        Row(
            name,
            phase,
            len(members),
            sum(seconds[at] for at in members),
            sum(calls[at].bytes for at in members),
            sum(calls[at].flops for at in members),
        )
        for (name, phase), members in groups.items()
    )
    return tuple(sorted(rows, key=lambda row: -row.seconds))


def _checked(model: Any, batch: Any, size: int | None, axis: Any, backward: bool) -> Model:
    if not isinstance(model, torch.nn.Module):
        raise TypeError(
            f"flashcliff.predict: `model` must be a torch.nn.Module, got {type(model).__name__}"
        )
    tensors = tensors_of(batch)
    if not tensors:
        raise TypeError(
            f"flashcliff.predict: `batch` must have tensors, got {type(batch).__name__} without any"
        )
    if size is not None and (type(size) is not int or size < 1):
        raise ValueError(f"flashcliff.predict: `size` must be a number from 1 on, got {size}")
    example = Model(model, batch, _axes(axis, tensors), backward)
    if example.size == 0:
        raise ValueError("flashcliff.predict: expected a batch of at least one sample, got none")
    return example


def _first(example: Model, wanted: int) -> Recorder:
    """The first runs of a model with other batches than that of the example: few samples for real, and a fake step of the wanted batch.

    Raises:
        ValueError: the model takes the example, but no other batch.
    """
    size = min(example.size, 2)
    try:
        example.warm(size)
        size = wanted
        return example.fake(size)
    except _core.UnsupportedError:
        raise
    except Exception as error:
        # An error of the model itself is left as it is.
        if size == example.size or not example.runs():
            raise
        pairs = zip(tensors_of(example.inputs), example.axes)
        shape, axis = next((list(t.shape), axis) for t, axis in pairs if axis is not None)
        raise ValueError(
            f"flashcliff.predict: `axis`: expected the axis of the batch, along which the model takes any number of samples, got {axis}: the "
            f"model takes an input of shape {shape}, but not with {size} in place of {shape[axis]} along axis {axis} "
            f"({type(error).__name__}: {error}). Give the axis of the batch: `axis=1` for multivectors [blades, batch, channels]"
        ) from None


def _axes(axis: Any, tensors: Sequence[Tensor]) -> tuple[int | None, ...]:
    """The axis of the batch of each tensor."""
    if isinstance(axis, int):
        if not 0 <= axis < tensors[0].dim():
            raise ValueError(
                f"flashcliff.predict: `axis` must be from 0 to {tensors[0].dim() - 1}, got {axis}"
            )
        size = tensors[0].shape[axis]
        fits = (tensor.dim() > axis and tensor.shape[axis] == size for tensor in tensors)
        return tuple(axis if fit else None for fit in fits)
    axes = tuple(axis)
    sizes = {t.shape[a] for t, a in zip(tensors, axes) if a is not None and 0 <= a < t.dim()}
    given = sum(a is not None for a in axes)
    known = sum(a is not None and 0 <= a < t.dim() for t, a in zip(tensors, axes))
    if len(axes) != len(tensors) or known != given or len(sizes) != 1:
        raise ValueError(
            "flashcliff.predict: `axis` must be a number, or an axis of equal length for each tensor of `batch`, got "
            f"{axes} for {[tuple(tensor.shape) for tensor in tensors]}"
        )
    return axes


def _device(model: torch.nn.Module, batch: Any) -> torch.device:
    tensors = tensors_of(batch)
    devices = {tensor.device for tensor in (*model.parameters(), *model.buffers(), *tensors)}
    if len(devices) > 1:
        listed = ", ".join(sorted(map(str, devices)))
        raise ValueError(
            f"flashcliff.predict: expected the model and its inputs on one device, got {listed}"
        )
    return devices.pop()


def _available(device: torch.device) -> int | None:
    return room.available(device.index) if device.type == "cuda" else _core.available_memory()


def _bytes(tensor: Tensor) -> int:
    return tensor.numel() * tensor.element_size()
