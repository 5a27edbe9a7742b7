"""Compares `flashcliff.predict` with steps that run: times, and the peak of the allocator's own record.

    python benches/predict_check.py [--device cuda] [--quick] [--cpu-time] [--commit HASH] [--json FILE]

Networks and batches are none that rates were measured on: CGENN's model for hulls, layers of flash-clifford, a GATr block, plain PyTorch.
On the CPU the peak is that of PyTorch's profiler, on a GPU that of the caching allocator. `--cpu-time` has one thread and counts the time
that the process computes, in predictions too: for machines on which other programs run.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch

import flashcliff
from flashcliff import nn
from flashcliff.nn import transformer
from flashcliff.nn.models import Hulls

Case = tuple[str, torch.nn.Module, Any, Any, list[int]]


class Layers(torch.nn.Module):
    """Layers of flash-clifford, one after the other."""

    def __init__(self, count: int, channels: int) -> None:
        super().__init__()
        algebra = flashcliff.Algebra(3, 0, 0)
        self.layers = torch.nn.Sequential(
            *(nn.FlashCliffordLayer(algebra, channels) for _ in range(count))
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x)


class Block(torch.nn.Module):
    """A block of GATr on items `[16, batch, items, channels]` with scalars."""

    def __init__(self, channels: int, scalars: int) -> None:
        super().__init__()
        algebra = flashcliff.Algebra(3, 0, 1)
        self.block = transformer.Block(algebra, channels, scalars)

    def forward(self, x: torch.Tensor, s: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return self.block(x, s, reference=transformer.join_reference(x))


def cases(quick: bool) -> list[Case]:
    """Names, models, example inputs, axes of the batch, and the batches."""
    small = [128] if quick else []
    perceptron = torch.nn.Sequential(
        torch.nn.Linear(256, 1024),
        torch.nn.GELU(),
        torch.nn.Linear(1024, 256),
        torch.nn.LayerNorm(256),
    )
    items = torch.randn(16, 64, 32, 8), torch.randn(64, 32, 16)
    return [
        ("CGENN hulls", Hulls(), torch.randn(256, 16, 5), 0, small or [1000, 4000, 9000]),
        (
            "4 flash-clifford layers, 32 channels",
            Layers(4, 32),
            torch.randn(8, 256, 32),
            1,
            small or [1500, 6000, 20000],
        ),
        (
            "2 flash-clifford layers, 128 channels",
            Layers(2, 128),
            torch.randn(8, 256, 128),
            1,
            small or [500, 3000, 7000],
        ),
        (
            "perceptron of PyTorch",
            perceptron,
            torch.randn(256, 256),
            0,
            small or [3000, 12000, 30000],
        ),
        ("GATr block, 32 items", Block(8, 16), items, (1, 0), small or [100, 400, 900]),
    ]


def resized(inputs: Any, axis: Any, size: int) -> Any:
    """New inputs with another batch."""
    tensors = inputs if isinstance(inputs, tuple) else (inputs,)
    axes = axis if isinstance(axis, tuple) else (axis,) * len(tensors)
    made = []
    for tensor, at in zip(tensors, axes):
        shape = list(tensor.shape)
        shape[at] = size
        made.append(torch.randn(shape, device=tensor.device))
    return tuple(made)


def step(model: torch.nn.Module, inputs: Any) -> None:
    """A forward and a backward pass, as a prediction has them."""
    outputs = model(*inputs)
    ends = outputs if isinstance(outputs, tuple) else (outputs,)
    torch.autograd.backward(ends, [torch.ones_like(end) for end in ends])


def cleared(model: torch.nn.Module) -> None:
    for parameter in model.parameters():
        parameter.grad = None


def measured_seconds(run: Callable[[], None], model: torch.nn.Module, on_gpu: bool) -> float:
    """The least time of some steps without gradients before."""
    wait = torch.cuda.synchronize if on_gpu else lambda: None
    found = []
    for _ in range(8):
        cleared(model)
        wait()
        start = time.perf_counter()
        run()
        wait()
        found.append(time.perf_counter() - start)
    return min(found[1:])


def measured_peak(
    run: Callable[[], None], model: torch.nn.Module, inputs: Any, on_gpu: bool
) -> int:
    """The most bytes that are held at once, with parameters and inputs, by the allocator's record."""
    cleared(model)
    tensors = (*model.parameters(), *model.buffers(), *inputs)
    own = sum(tensor.numel() * tensor.element_size() for tensor in tensors)
    if on_gpu:
        torch.cuda.synchronize()
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        run()
        torch.cuda.synchronize()
        return own + torch.cuda.max_memory_allocated() - before
    with torch.profiler.profile(profile_memory=True) as profiled:
        run()
    events = profiled.profiler.kineto_results.events()
    changes = sorted((e.start_ns(), e.nbytes()) for e in events if e.name() == "[memory]")
    held = most = 0
    for _, change in changes:
        held += change
        most = max(most, held)
    return own + most


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("--device", default="cpu")
    options.add_argument("--quick", action="store_true")
    options.add_argument("--json")
    options.add_argument("--commit", help="what the JSON says of the code that was measured")
    options.add_argument("--cpu-time", action="store_true")
    given = options.parse_args()
    if given.cpu_time:
        torch.set_num_threads(1)
        time.perf_counter, time.perf_counter_ns = time.process_time, time.process_time_ns
    device = torch.device(given.device)
    on_gpu = device.type == "cuda"
    flashcliff.calibrate(device)
    rows = []
    print(
        f"{'network':40} {'batch':>6} {'ms':>9} {'predicted':>9} {'error':>7} {'MiB':>9} {'predicted':>9} {'error':>7}"
    )
    for name, model, example, axis, sizes in cases(given.quick):
        model.to(device)
        tensors = example if isinstance(example, tuple) else (example,)
        example = tuple(tensor.to(device) for tensor in tensors)
        for size in sizes:
            cleared(model)
            found = flashcliff.predict(model, example, size=size, axis=axis)
            inputs = resized(example, axis, size)
            seconds = measured_seconds(lambda: step(model, inputs), model, on_gpu)
            peak = measured_peak(lambda: step(model, inputs), model, inputs, on_gpu)
            errors = found.seconds / seconds - 1, found.peak_bytes / peak - 1
            rows.append(
                {
                    "network": name,
                    "batch": size,
                    "measured_seconds": seconds,
                    "predicted_seconds": found.seconds,
                    "measured_peak": peak,
                    "predicted_peak": found.peak_bytes,
                }
            )
            print(
                f"{name:40} {size:6} {1e3 * seconds:9.2f} {1e3 * found.seconds:9.2f} {errors[0]:7.1%} "
                f"{peak / 2**20:9.1f} {found.peak_bytes / 2**20:9.1f} {errors[1]:7.1%}"
            )
    for what in ("seconds", "peak"):
        off = [abs(row[f"predicted_{what}"] / row[f"measured_{what}"] - 1) for row in rows]
        print(f"{what}: median error {statistics.median(off):.1%}, largest {max(off):.1%}")
    if given.json:
        with open(given.json, "w") as file:
            json.dump(
                {
                    "commit": given.commit,
                    "torch": torch.__version__,
                    "threads": torch.get_num_threads(),
                    "device": str(device),
                    "rows": rows,
                },
                file,
                indent=1,
            )


if __name__ == "__main__":
    main()
