"""The clocks of recorded calls. Calls of flashcliff's operators are timed around their kernels, without the way through the dispatcher."""

from __future__ import annotations

import time
from statistics import median
from typing import Any

import torch

from .._profile.events import Event, Log

_CYCLES = 500_000
"""How long a GPU is kept busy before each call, so that its kernels follow each other however long the host takes: some tenths of a millisecond."""
_IDLE = 5
"""How many calls without work are timed before a step."""


class Clock:
    """The clock of the host, for calls on the CPU.

    Args:
        log: the records of a profile that is active.
    """

    latency: float | None = None
    """The seconds of a call with next to no work; ``None`` if they are not known."""

    def __init__(self, log: Log) -> None:
        self.log = log

    def start(self) -> Any:
        return len(self.log.events), self.now()

    def stop(self, reading: Any, call: Any) -> None:
        seen, start = reading
        ours = self.log.events[seen:]
        if ours and call.name.startswith("flashcliff."):
            call.seconds = sum(event.end - event.start for event in ours) / 1e9
        else:
            call.seconds = self.now() - start

    def now(self) -> Any:
        return time.perf_counter()

    def begin(self) -> None:
        """Is called before the step."""

    def finish(self) -> None:
        """Is called behind the step: times are known from then on."""


class GpuClock(Clock):
    """The clock of a GPU: events around each call."""

    def __init__(self, log: Log) -> None:
        super().__init__(log)
        self._open: list[tuple[Any, Any, Any]] = []
        self._idle: list[tuple[Any, Any]] = []

    def now(self) -> Any:
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def begin(self) -> None:
        one = torch.ones(1, device="cuda")
        for _ in range(_IDLE):
            torch.cuda._sleep(_CYCLES)
            start = self.now()
            one.neg_()
            self._idle.append((start, self.now()))
        torch.cuda.synchronize()

    def start(self) -> Any:
        torch.cuda._sleep(_CYCLES)
        return super().start()

    def stop(self, reading: Any, call: Any) -> None:
        seen, start = reading
        ours: list[Event] = self.log.events[seen:]
        marks = ours[0].marks if ours and call.name.startswith("flashcliff.") else None
        if marks is None:
            self._open.append((start, self.now(), call))
        else:
            self._open.append((marks.start, marks.end, call))

    def finish(self) -> None:
        torch.cuda.synchronize()
        self.latency = median(start.elapsed_time(end) for start, end in self._idle) / 1e3
        for start, end, call in self._open:
            # Views and new memory are no work for a GPU.
            has_work = call.bytes or call.flops
            call.seconds = start.elapsed_time(end) / 1e3 if has_work else 0.0
