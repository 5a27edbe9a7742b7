"""Measures second derivatives on a GPU: the gradient of the gradient of ``sgp_norm`` beside the time in which its bytes are copied, and a
training step on energies and forces beside the step on energies alone.

    python benches/peers/derivatives_gpu.py [--rounds 30] [--commit HASH] [--out FILE]

Both are captured into CUDA graphs, so that the time is that of the GPU; the eager step is of the wall. Cases take turns round by round; the
numbers are medians over rounds, in microseconds. Memory is what PyTorch allocates beside the inputs, at its peak.
"""

from __future__ import annotations

import argparse
import statistics
import time

import flashcliff
import torch
from flashcliff import functional as F
from flashcliff import nn
from gpu_clock import captured
from results import show

ALGEBRA = flashcliff.Algebra(3, 0, 0)
BATCH, CHANNELS = 4096, 512


class Energy(torch.nn.Module):
    """The sum of the scalars of some layers of a product of a multivector with a linear map of it."""

    def __init__(self, layers: int, channels: int) -> None:
        super().__init__()
        self.embed = nn.MVLinear(ALGEBRA, 1, channels)
        self.maps = torch.nn.ModuleList(
            nn.MVLinear(ALGEBRA, channels, channels) for _ in range(layers)
        )
        self.products = torch.nn.ModuleList(
            nn.SGPNorm(ALGEBRA, channels) for _ in range(layers)
        )

    def forward(self, positions: torch.Tensor) -> torch.Tensor:
        x = torch.cat(
            [
                positions.new_zeros(1, *positions.shape[1:]),
                positions,
                positions.new_zeros(4, *positions.shape[1:]),
            ]
        )
        x = self.embed(x)
        for linear, product in zip(self.maps, self.products):
            x = x + product(x, linear(x))
        return x[0].sum(-1)


def gpu_time(run, repeats: int = 20) -> float:
    """Microseconds of the GPU for a run."""
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    for _ in range(repeats):
        run()
    end.record()
    torch.cuda.synchronize()
    return 1e3 * start.elapsed_time(end) / repeats


def wall_time(run, repeats: int = 5) -> float:
    """Microseconds of the wall for a run, with an empty queue before and after."""
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(repeats):
        run()
    torch.cuda.synchronize()
    return 1e6 * (time.perf_counter() - start) / repeats


def peak(call) -> int:
    """The bytes that a call allocates at its peak."""
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    kept = call()
    torch.cuda.synchronize()
    del kept
    return torch.cuda.max_memory_allocated() - before


def product_cases(dtype: torch.dtype) -> tuple[dict, dict]:
    """Passes of the product with the bytes that each must move, and their memory."""
    shape = (8, BATCH, CHANNELS)
    x, y, g, u, v = (torch.randn(shape, device="cuda", dtype=dtype) for _ in range(5))
    w, z = (torch.randn(CHANNELS, 20, device="cuda", dtype=dtype) for _ in range(2))
    one = x.numel() * x.element_size()
    for tensor in (x, y, w, g):
        tensor.requires_grad_()

    def first():
        return torch.autograd.grad(F.sgp_norm(x, y, w, ALGEBRA), (x, y, w), g)

    def both():
        gradients = torch.autograd.grad(
            F.sgp_norm(x, y, w, ALGEBRA), (x, y, w), g, create_graph=True
        )
        return torch.autograd.grad(gradients, (x, y, w, g), (u, v, z))

    of = flashcliff._ops.derived
    op = flashcliff._derived.table.SGP_NORM
    options = tuple(option.default for option in op.options)
    plain = [t.detach() for t in (x, y, w, g, u, v, z)]
    second = of.key(op, ALGEBRA.name, (True,) * 3, options, "g", "g")
    source = torch.empty(4 * one, device="cuda", dtype=torch.uint8)
    target = torch.empty_like(source)
    cases = {
        "copy of 8 tensors": (lambda: target.copy_(source), 8 * one),
        "forward": (
            lambda: F.sgp_norm(x.detach(), y.detach(), w.detach(), ALGEBRA),
            3 * one,
        ),
        "forward and backward": (first, 8 * one),
        "second derivative alone": (lambda: of.call(second, plain), 8 * one),
        "forward, backward and second derivative": (both, 16 * one),
    }
    return cases, {"first order": peak(first), "second order": peak(both)}


def step_cases(layers: int, batch: int, channels: int) -> dict:
    """Training steps on energies, and on energies and forces."""
    torch.manual_seed(0)
    model = Energy(layers, channels).cuda()
    positions = torch.randn(3, batch, 1, device="cuda", requires_grad=True)
    energies, forces = (
        torch.randn(batch, device="cuda"),
        torch.randn(3, batch, 1, device="cuda"),
    )
    parameters = list(model.parameters())

    def on_energies():
        loss = (model(positions) - energies).square().mean()
        return torch.autograd.grad(loss, parameters)

    def on_forces():
        energy = model(positions)
        (gradient,) = torch.autograd.grad(energy.sum(), positions, create_graph=True)
        loss = (energy - energies).square().mean() + (gradient + forces).square().mean()
        return torch.autograd.grad(loss, parameters)

    return {"energies": on_energies, "energies and forces": on_forces}


def medians(runs: dict, measure, rounds: int) -> dict:
    times = {name: [] for name in runs}
    for _ in range(rounds):
        for name, run in runs.items():
            times[name].append(measure(run))
    return {name: statistics.median(values) for name, values in times.items()}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--commit")
    parser.add_argument("--out")
    options = parser.parse_args()
    torch.manual_seed(0)
    result = {
        "gpu": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "commit": options.commit,
        "product": {"shape": [8, BATCH, CHANNELS]},
        "steps": [],
    }
    for dtype in (torch.float32, torch.bfloat16):
        cases, memory = product_cases(dtype)
        graphs = {name: captured(call).replay for name, (call, _) in cases.items()}
        times = medians(graphs, gpu_time, options.rounds)
        copied = cases["copy of 8 tensors"][1] / times["copy of 8 tensors"]
        result["product"][str(dtype).removeprefix("torch.")] = {
            name: {
                "gpu_us": times[name],
                "bytes": bytes_,
                "of_copy": times[name] * copied / bytes_,
            }
            for name, (_, bytes_) in cases.items()
        } | {"peak_bytes": memory}
        del graphs, cases
        torch.cuda.empty_cache()
    for layers, batch, channels in ((4, 4096, 64), (4, 512, 32), (2, 16384, 128)):
        cases = step_cases(layers, batch, channels)
        eager = medians(cases, wall_time, options.rounds // 3 + 1)
        graphs = {name: captured(call).replay for name, call in cases.items()}
        gpu = medians(graphs, gpu_time, options.rounds)
        result["steps"].append(
            {
                "layers": layers,
                "batch": batch,
                "channels": channels,
                "gpu_us": gpu,
                "eager_wall_us": eager,
                "ratio": gpu["energies and forces"] / gpu["energies"],
                "peak_bytes": {name: peak(call) for name, call in cases.items()},
            }
        )
        del graphs
    show(result, options.out)


if __name__ == "__main__":
    main()
