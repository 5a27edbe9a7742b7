"""How a GPU runs, records and replays a step."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

_EMPTY = "The CUDA Graph is empty"


class Cuda:
    """Graphs of one GPU that share a stream and a pool of memory, since they never run at the same time."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._stream = torch.cuda.Stream(device)
        self._pool = torch.cuda.graph_pool_handle()

    def run(self, step: Callable[[], Any]) -> Any:
        """Runs a step on the stream that later records it, in the order of the current stream.

        Memory that is freed on either stream needs no record: each use of the side stream waits for the
        current one first, and the current one waits for it.
        """
        with torch.cuda.device(self.device):
            current = torch.cuda.current_stream()
            self._stream.wait_stream(current)
            try:
                with torch.cuda.stream(self._stream):
                    return step()
            finally:
                current.wait_stream(self._stream)

    def record(self, step: Callable[[], Any]) -> tuple[Callable[[], None], Any]:
        """Records a step without running it. Returns what replays it on the current stream, and the result,
        whose tensors have no values before the first replay. Raises whatever stops the recording; the
        device can be used afterwards."""
        graph = torch.cuda.CUDAGraph()
        generator = torch.cuda.default_generators[self.device.index]
        spare = generator.clone_state()
        try:
            # The outer stream context ends well even if that of the graph does not.
            with (
                torch.cuda.device(self.device),
                torch.cuda.stream(self._stream),
                _without_collection(),
                warnings.catch_warnings(),
            ):
                warnings.filterwarnings("error", message=_EMPTY)
                with torch.cuda.graph(
                    graph, pool=self._pool, stream=self._stream, capture_error_mode="thread_local"
                ):
                    result = step()
        except BaseException:
            _mend(generator, spare)
            raise
        return graph.replay, result


def _mend(generator: torch.Generator, spare: torch.Generator) -> None:
    """Makes a generator usable after a recording that broke off, which may leave it in the belief that the recording
    goes on. Graphs that were recorded before then keep the noise of the old state."""
    state = generator.get_state()
    try:
        torch.rand(1, device=generator.device, generator=generator)
    except RuntimeError:
        generator.graphsafe_set_state(spare)
    else:
        generator.set_state(state)


@contextmanager
def _without_collection() -> Iterator[None]:
    """No cycle of garbage may free another graph while one is recorded."""
    enabled = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
