"""The clocks of recorded calls. Calls of flashcliff's operators are timed around their kernels, without the way through the dispatcher."""

from __future__ import annotations

import time
from typing import Any

import torch

from .._profile.events import Event, Log

_CYCLES = 500_000
"""How long a GPU is kept busy before each call, so that its kernels follow each other however long the host takes: some tenths of a millisecond."""


class Clock:
    """The clock of the host, for calls on the CPU.

    Args:
        log: the records of a profile that is active.
    """

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

    def now(self) -> Any:
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def begin(self) -> None:
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
        for start, end, call in self._open:
            call.seconds = start.elapsed_time(end) / 1e3
