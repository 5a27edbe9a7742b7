"""Time on GPUs, by events of CUDA around launches. Nothing here waits for a GPU but :func:`wait`."""

from __future__ import annotations

import time
from typing import NamedTuple

import torch


class Marks(NamedTuple):
    """Two events around a call."""

    device: int
    start: torch.cuda.Event
    end: torch.cuda.Event


class Anchor(NamedTuple):
    """An event whose time is known on the clock of the host too, to within a launch."""

    event: torch.cuda.Event
    at: int


def is_recording() -> bool:
    """Whether calls on the current stream are recorded into a CUDA graph, so that they have no time."""
    return torch.cuda.is_current_stream_capturing()


def mark() -> torch.cuda.Event:
    """An event on the current stream."""
    event = torch.cuda.Event(enable_timing=True)
    event.record()
    return event


def is_used() -> bool:
    """Whether this process uses a GPU."""
    return torch.cuda.is_initialized()


def wait() -> None:
    """Waits for all GPUs, if this process uses any."""
    if is_used():
        for device in range(torch.cuda.device_count()):
            torch.cuda.synchronize(device)


def anchor() -> Anchor:
    """An anchor on the current GPU, which is idle."""
    return Anchor(mark(), time.perf_counter_ns())


def anchors() -> dict[int, Anchor]:
    """An anchor on each GPU, if this process uses any. All are idle."""
    made: dict[int, Anchor] = {}
    if is_used():
        for device in range(torch.cuda.device_count()):
            with torch.cuda.device(device):
                made[device] = anchor()
    return made


def span(marks: Marks, anchor: Anchor) -> tuple[int, int]:
    """The start and the end of a call on the clock of the host. Both events have happened."""
    start = anchor.at + round(anchor.event.elapsed_time(marks.start) * 1e6)
    return start, start + round(marks.start.elapsed_time(marks.end) * 1e6)
