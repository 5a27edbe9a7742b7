"""The rates of a machine: how fast PyTorch moves bytes, multiplies matrices and starts operators. They are measured once and kept in a file.

Results are allocated anew in each measurement, and many live at the same time, as in a step of training. Memory that the system has just
given, or that no cache holds, costs more than memory that was just used, and how much more depends on the size.
"""

from __future__ import annotations

import bisect
import hashlib
import json
import math
import platform
import time
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from .. import _cache, _core
from .._ops import room

FORMAT = 2
_SMALLEST, _LARGEST = 1 << 12, {"cpu": 1 << 28, "cuda": 1 << 30}
_WIDTHS = {"cpu": (32, 64, 128, 256, 512, 1024), "cuda": (128, 512, 1024, 2048, 4096, 8192)}
_DTYPES = {
    "cpu": (torch.float32, torch.float64),
    "cuda": (torch.float32, torch.float64, torch.bfloat16, torch.float16),
}
_LIVE, _HELD = (4, 256), 128 << 20
"""How many results live at the same time, at least and at most, and how many bytes in between."""
_SECONDS = 0.02
"""How long each thing is measured."""

Curve = tuple[tuple[float, float], ...]
"""Sizes, ascending, and a rate at each."""


@dataclass(frozen=True)
class Rates:
    """The rates of a device, for :func:`flashcliff.predict`. :func:`flashcliff.calibrate` measures them."""

    machine: dict[str, Any]
    """The facts that must be the same for the rates to hold."""
    call_seconds: float
    """Seconds of an operator of PyTorch with next to no work."""
    levels: Curve
    """Bytes of the result of a sum, and bytes per second."""
    products: dict[str, Curve]
    """Operations of a product of matrices, and operations per second, by element type."""

    def seconds(self, moved: int, flops: int, dtype: str, result: int) -> float:
        """The least seconds of a call that moves bytes and computes, and whose results have so many bytes."""
        curve = self.products.get(dtype) or self.products["float32"]
        moving = moved / _at(self.levels, max(result, 1))
        return max(moving, flops / _at(curve, flops) if flops else 0.0)


def _at(curve: Curve, size: float) -> float:
    """The rate at a size, between the measured sizes by the logarithm."""
    above = bisect.bisect_left(curve, (size,))
    if above == 0:
        return curve[0][1]
    if above == len(curve):
        return curve[-1][1]
    (low, left), (high, right) = curve[above - 1], curve[above]
    share = math.log(size / low) / math.log(high / low)
    return math.exp(math.log(left) + share * math.log(right / left))


def calibrate(device: torch.device | str = "cpu") -> Rates:
    """Measures the rates of a device with PyTorch, in some seconds, and keeps them for :func:`flashcliff.predict`.

    Measured are an operator with next to no work, sums of tensors of 4 KiB and more, into new memory, and products of matrices. The file is
    in the folder ``rates`` of ``$FLASHCLIFF_CACHE_DIR``, or of ``flashcliff`` in the cache folder of the system. Rates hold for a
    processor, a number of threads (``torch.get_num_threads``) and a version of PyTorch. Measure while the machine is idle.

    Args:
        device: ``"cpu"``, ``"cuda"`` or ``"cuda:N"``.

    Raises:
        ValueError: another device.
        RuntimeError: there is no such GPU, or no cache folder.
        OSError: the file cannot be written.
    """
    place = checked(device)
    rates = measure(place)
    _store(rates, path(place))
    return rates


def rates_of(device: torch.device) -> Rates:
    """The rates of a device, measured now if they are not known. They serve even where they cannot be kept."""
    to = path(device)
    found = _load(to, machine(device))
    if found is None:
        found = measure(device)
        try:
            _store(found, to)
        except OSError as error:
            warnings.warn(
                f"the rates of {device} cannot be kept, so that each process measures them: {error}; set FLASHCLIFF_CACHE_DIR to "
                "a folder that can be written",
                RuntimeWarning,
                stacklevel=2,
            )
    return found


def checked(device: torch.device | str) -> torch.device:
    """The device with its number."""
    place = torch.device(device)
    if place.type not in ("cpu", "cuda"):
        raise ValueError(f"device: expected cpu, cuda or cuda:N, got {device}")
    if place.type == "cuda" and place.index is None:
        return torch.device("cuda", torch.cuda.current_device())
    return torch.device("cpu") if place.type == "cpu" else place


def machine(device: torch.device) -> dict[str, Any]:
    """The facts about a device on which its rates depend."""
    on_gpu = device.type == "cuda"
    return {
        "device": device.type,
        "processor": torch.cuda.get_device_name(device) if on_gpu else _processor(),
        "threads": 1 if on_gpu else torch.get_num_threads(),
        "torch": torch.__version__,
        "flashcliff": _core.__version__,
        "format": FORMAT,
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor() or platform.machine())


def path(device: torch.device) -> Path:
    """The file of a device."""
    facts = machine(device)
    words = "-".join(str(facts[name]) for name in ("device", "processor", "threads"))
    plain = "".join(letter if letter.isalnum() or letter == "-" else "_" for letter in words)
    return _cache.folder("rates") / f"torch-{plain}.json"


def _store(rates: Rates, to: Path) -> None:
    facts = asdict(rates)
    text = json.dumps({**facts, "sha256": _digest(facts)}, indent=1)
    _cache.replace(to, lambda made: made.write_text(text))


def _digest(facts: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()


def _load(file: Path, expected: dict[str, Any]) -> Rates | None:
    """The rates in a file, if they are of this machine, and what was once written."""
    try:
        read = json.loads(_cache.read(file))
        if read.pop("sha256") != _digest(read):
            return None
        curve = lambda rows: tuple((float(size), float(rate)) for size, rate in rows)  # noqa: E731
        rates = Rates(
            read["machine"],
            float(read["call_seconds"]),
            curve(read["levels"]),
            {dtype: curve(rows) for dtype, rows in read["products"].items()},
        )
    except (
        AttributeError,
        KeyError,
        OSError,
        OverflowError,
        RecursionError,
        TypeError,
        ValueError,
    ):
        return None
    curves = (rates.levels, *rates.products.values())
    usable = all(curve and all(size > 0 and rate > 0 for size, rate in curve) for curve in curves)
    is_right = rates.machine == expected and usable and "float32" in rates.products
    return rates if is_right else None


@torch.no_grad()
def measure(device: torch.device) -> Rates:
    """Measures the rates of a device."""
    kind = device.type
    one = torch.ones(1, device=device)
    levels = []
    size = _SMALLEST
    while size <= min(_LARGEST[kind], _room(device) // 16):
        x, y = torch.ones(2, size // 4, device=device).unbind()
        count = max(_LIVE[0], min(_LIVE[1], _HELD // size))
        seconds = _least(lambda: [torch.add(x, y) for _ in range(count)], device)  # noqa: B023
        levels.append((float(size), 3 * size * count / seconds))
        size *= 2
    products = {}
    for dtype in _DTYPES[kind]:
        rows = []
        for width in _WIDTHS[kind]:
            a, b = torch.randn(2, width, width, device=device).to(dtype).unbind()
            flops = 2 * width**3
            rows.append((float(flops), flops / _least(lambda: a @ b, device)))  # noqa: B023
        products[str(dtype).removeprefix("torch.")] = tuple(rows)
    return Rates(
        machine(device),
        _least(lambda: torch.add(one, one), device),
        tuple(levels),
        products,
    )


def _room(device: torch.device) -> int:
    if device.type == "cuda":
        free = room.available(device.index)
    else:
        free = _core.available_memory()
    return 1 << 30 if free is None else free


def _least(work: Callable[[], Any], device: torch.device) -> float:
    """The least seconds of work, of some rounds. Other work of the machine makes times longer, never shorter."""
    wait = torch.cuda.synchronize if device.type == "cuda" else lambda: None

    def seconds(times: int) -> float:
        start = time.perf_counter()
        for _ in range(times):
            work()
        wait()
        return (time.perf_counter() - start) / times

    seconds(1)
    times = max(1, min(10_000, int(_SECONDS / 4 / max(seconds(1), 1e-9))))
    return min(seconds(times) for _ in range(4))
