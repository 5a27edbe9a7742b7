"""A profile: a region of code, and the report on it."""

from __future__ import annotations

import os
import time
from pathlib import Path
from types import TracebackType

from . import cuda, events, hooks, text, timeline, trace
from .events import Event, Log
from .rates import Rates, checked, measure
from .rows import REST, Row, gather


def profile(*, rates: tuple[float, float] | str | None = None) -> Profile:
    """Measures what a region of code spends in flashcliff.

    ::

        with flashcliff.profile() as p:
            loss = model(x).square().mean()
            loss.backward()
        print(p.table())

    Every call into the compiled half of flashcliff is recorded: operators, forward and backward, called eagerly, from graphs
    of ``torch.compile``, by the compiled call path or on arrays; networks of layers, and layers of transformers apart;
    and on a GPU the kernel of attention. Calls with the same operator, algebra, options, shapes, element type and device are
    one row. Operations of attention on ragged batches are counted as for sequences of one length. Everything else is the
    last row, ``"the rest"``: PyTorch's operators, Python, allocations, and waiting.

    **Time.** On a CPU, of the call. On a GPU, between two CUDA events around the launches; the region itself never waits for the
    GPU, its start and its end do. The region lasts until the GPUs are done. Shares of all rows add up to 1.

    **CUDA graphs.** A replay is one row, since the host sees no calls within it. Calls that are recorded into a graph have no
    time.

    **Threads.** Calls of all threads are recorded while the region lasts, since backward passes run on threads of PyTorch. Calls
    that run at the same time share it. Regions may be nested or overlap: each records everything that runs during it.

    **Cost.** Nothing without a profile. Within one, up to some tens of microseconds a call on the host.

    Args:
        rates: bytes and floating-point operations per second, for the column ``roofline``; ``"measure"`` measures them after the
            region. :meth:`Profile.rates` measures them later.

    Returns:
        A context manager, for one region.

    Raises:
        TypeError: ``rates`` is of another type.
        ValueError: ``rates`` are not positive.
        RuntimeError: a report before the region ended, or a second region.
    """
    return Profile(rates)


class Profile:
    """The report on a region; :func:`flashcliff.profile` makes it."""

    def __init__(self, rates: tuple[float, float] | str | None = None) -> None:
        self._given = checked(rates)
        self._measures = rates == "measure"
        self._measured: dict[tuple[str, str], Rates] = {}
        self._log: Log | None = None
        self._events: tuple[Event, ...] = ()
        self._spans: list[tuple[int, int] | None] = []
        self._region: tuple[int, int] | None = None
        self._error: str | None = None

    @property
    def log(self) -> Log:
        """The records of the region, which has begun."""
        assert self._log is not None
        return self._log

    def __enter__(self) -> Profile:
        if self._log is not None:
            raise RuntimeError(
                "flashcliff.profile: expected a new profile, got one that has a region; call flashcliff.profile() "
                "for each region"
            )
        # What was launched before belongs to no call of the region.
        cuda.wait()
        log = Log(cuda.anchors())
        with events.LOCK:
            if not events.active:
                hooks.install()
            events.active = (*events.active, log)
        self._log = log
        self._start = time.perf_counter_ns()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        end = time.perf_counter_ns()
        log = self._log
        assert log is not None, "a region that did not begin"
        try:
            cuda.wait()
            if cuda.is_used():
                end = time.perf_counter_ns()
        except Exception:
            # The error of the region says more.
            if error is None:
                raise
        finally:
            with events.LOCK:
                events.active = tuple(one for one in events.active if one is not log)
                if not events.active:
                    hooks.remove()
            # Calls that end later on other threads are not of this region.
            self._events = tuple(log.events)
            self._region = self._start, end
            self._error = None if kind is None else kind.__name__
        self._spans = [_span(event, log) for event in self._events]
        if self._measures and error is None:
            self.rates()

    @property
    def seconds(self) -> float:
        """The time of the region."""
        start, end = self._ended()
        return (end - start) / 1e9

    @property
    def rows(self) -> list[Row]:
        """All rows by share, and last the rest."""
        region = self._ended()
        parts, rest = timeline.parts(self._spans, region)
        rates = {
            (event.key.device, event.key.dtype): self._rates_of(event) for event in self._events
        }
        known = {place: one for place, one in rates.items() if one is not None}
        return gather(self._events, self._spans, parts, rest, region[1] - region[0], known)

    def rates(self) -> dict[tuple[str, str], Rates]:
        """Measures the rates of the devices and element types of the calls, and makes rows have shares of the roofline: a sum of two
        large tensors for bytes, a matrix product for operations. Returns them by device and type."""
        self._ended()
        for key in {event.key for event in self._events if event.key.dtype}:
            place = key.device, key.dtype
            if place not in self._measured:
                self._measured[place] = measure(*place)
        return dict(self._measured)

    def table(self) -> str:
        """The rows as a table in plain text."""
        return text.table(self.rows, self.seconds, self._error)

    def json(self) -> str:
        """The rows as JSON: seconds, bytes and operations are sums over the calls of a row."""
        threads = len({event.thread for event in self._events})
        return text.as_json(self.rows, self.seconds, self._error, threads)

    def chrome_trace(self, path: str | os.PathLike[str]) -> None:
        """Writes all calls for ``chrome://tracing`` or Perfetto: the host by thread, each GPU, and the region.

        Raises:
            OSError: the file cannot be written.
        """
        region = self._ended()
        Path(path).write_text(trace.chrome(self._events, self._spans, region), encoding="utf-8")

    def __repr__(self) -> str:
        if self._region is None:
            return "Profile(running)" if self._log is not None else "Profile(new)"
        ours = sum(row.share for row in self.rows if row.operator != REST)
        return f"Profile(seconds={self.seconds:.6f}, calls={len(self._events)}, share={ours:.3f})"

    def _ended(self) -> tuple[int, int]:
        if self._region is None:
            state = "one that runs" if self._log is not None else "one without a region"
            raise RuntimeError(
                f"flashcliff.profile: expected a profile whose region has ended, got {state}; ask for reports behind the "
                "`with` block"
            )
        return self._region

    def _rates_of(self, event: Event) -> Rates | None:
        return self._given or self._measured.get((event.key.device, event.key.dtype))


def _span(event: Event, log: Log) -> tuple[int, int] | None:
    """When a call ran; ``None`` if it did not, or if the GPU cannot say."""
    if event.key.recorded:
        return None
    if event.marks is None:
        return event.start, event.end
    try:
        return cuda.span(event.marks, log.anchors[event.marks.device])
    except RuntimeError:
        return None
