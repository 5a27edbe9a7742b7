"""How fast a machine can move bytes and compute."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import torch

_TYPES = {
    "f32": torch.float32,
    "f64": torch.float64,
    "bf16": torch.bfloat16,
    "f16": torch.float16,
}
_REPEATS = 5


class Rates(NamedTuple):
    """The limits of a device, for one element type."""

    bytes_per_second: float
    flops_per_second: float

    def limit(self, moved: int, flops: int) -> float:
        """The least seconds of a call: the roofline."""
        return max(moved / self.bytes_per_second, flops / self.flops_per_second)


def checked(rates: Any) -> Rates | None:
    """Rates that a user gives; ``None`` and ``"measure"`` give ``None``."""
    if rates is None or (isinstance(rates, str) and rates == "measure"):
        return None
    expected = '`rates` must be None, "measure", or two positive numbers (bytes per second, operations per second)'
    if isinstance(rates, str):
        raise ValueError(f"flashcliff.profile: {expected}, got {rates!r}")
    if not isinstance(rates, tuple) or not all(type(rate) in (int, float) for rate in rates):
        raise TypeError(f"flashcliff.profile: {expected}, got {rates!r}")
    if len(rates) != 2 or not all(0 < rate < float("inf") for rate in rates):
        raise ValueError(f"flashcliff.profile: {expected}, got {rates!r}")
    return Rates(float(rates[0]), float(rates[1]))


def measure(device: str, dtype: str) -> Rates:
    """The rates of a sum of two large tensors and of a matrix product, by PyTorch, the best of some repeats each. They take up
    to a second on a CPU."""
    on = torch.device(device)
    gpu = on.type == "cuda"
    count, width = (1 << 26, 4096) if gpu else (1 << 23, 768)
    width_of_type = torch.empty((), dtype=_TYPES[dtype]).element_size()
    moved = 3 * count * width_of_type / _best(torch.add, (count,), _TYPES[dtype], on)
    return Rates(moved, 2 * width**3 / _best(torch.mm, (width, width), _TYPES[dtype], on))


@torch.no_grad()
def _best(
    operation: Callable[..., Any], shape: tuple[int, ...], dtype: torch.dtype, device: torch.device
) -> float:
    """The best time of an operation on two tensors, without that of an allocation."""
    left, right, to = (torch.ones(shape, dtype=dtype, device=device) for _ in range(3))
    times = []
    for _ in range(_REPEATS + 1):
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        start = time.perf_counter()
        operation(left, right, out=to)
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        times.append(time.perf_counter() - start)
    # The first call is a warm-up.
    return min(times[1:])
