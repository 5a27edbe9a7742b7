#!/usr/bin/env python3
"""The time of `sgp_norm` with its gradients in JAX, beside that of a CUDA graph of PyTorch, on one GPU. Prints JSON.

    python3 benches/peers/jax_gpu.py [--shapes 256x16,4096x32,65536x32,1024x128] [--rounds 40] [--calls 50] [--commit HASH] [--out FILE]

Both libraries compute the output of `sgp_norm` in Cl(3,0,0), float32, and the gradients of both operands and of the weights from a given
gradient of the output. In JAX that is one program of `jax.jit`; in PyTorch one captured graph, and for orientation the eager call. A round
is a run of `calls` calls that wait in the queue, timed by the clock of the host until the GPU is done. Libraries take turns round by round,
and a time is the median over rounds of the time of a call, in microseconds. Outputs and gradients of both are compared first, bit for bit.

Each library runs in this process. JAX is kept from reserving most of the memory by XLA_PYTHON_CLIENT_PREALLOCATE=false.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")

import jax
import numpy as np
import torch

import flashcliff
from flashcliff import functional as F
from flashcliff import jax as fj
from results import show

ALGEBRA = flashcliff.Algebra(3, 0, 0)


def tensors(batch: int, channels: int) -> list[torch.Tensor]:
    """Operands, weights, and the gradient of the output."""
    torch.manual_seed(0)
    shapes = (8, batch, channels), (8, batch, channels), (channels, 20), (8, batch, channels)
    return [torch.randn(shape, device="cuda") for shape in shapes]


def by_jax(given: list[torch.Tensor]):
    """A call of JAX, and its results as arrays of NumPy."""
    arrays = [jax.device_put(tensor.cpu().numpy(), jax.devices("cuda")[0]) for tensor in given]

    @jax.jit
    def both(x, y, weight, seed):
        output, pullback = jax.vjp(lambda *t: fj.sgp_norm(*t, ALGEBRA), x, y, weight)
        return output, *pullback(seed)

    return lambda: both(*arrays), jax.block_until_ready, lambda made: [np.asarray(each) for each in made]


def by_pytorch(given: list[torch.Tensor], captured: bool):
    """A call of PyTorch, and its results as arrays of NumPy."""
    *wanted, seed = given
    wanted = [tensor.clone().requires_grad_() for tensor in wanted]

    def both():
        output = F.sgp_norm(*wanted, ALGEBRA)
        return output, *torch.autograd.grad(output, wanted, seed)

    def numbers(made):
        return [each.detach().cpu().numpy() for each in made]

    def wait(_):
        torch.cuda.synchronize()

    if not captured:
        return both, wait, numbers
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        for _ in range(3):
            both()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        made = both()

    def replay():
        graph.replay()
        return made

    return replay, wait, numbers


def measure(batch: int, channels: int, rounds: int, calls: int) -> dict:
    given = tensors(batch, channels)
    variants = {
        "jax": by_jax(given),
        "pytorch_graph": by_pytorch(given, captured=True),
        "pytorch_eager": by_pytorch(given, captured=False),
    }
    results = {}
    for name, (call, wait, numbers) in variants.items():
        # Enough calls for XLA to record what it records.
        for _ in range(5):
            made = call()
        wait(made)
        results[name] = numbers(made)
    same = all(map(np.array_equal, results["jax"], results["pytorch_graph"]))
    off = max(float(np.abs(a - b).max()) for a, b in zip(results["jax"], results["pytorch_graph"]))
    if off > 1e-3:
        sys.exit(f"JAX and PyTorch differ by {off:.1e}")
    times: dict[str, list[float]] = {name: [] for name in variants}
    for _ in range(rounds):
        for name, (call, wait, _) in variants.items():
            torch.cuda.synchronize()
            start = time.perf_counter()
            for _ in range(calls):
                made = call()
            wait(made)
            times[name].append(1e6 * (time.perf_counter() - start) / calls)
    ratios = [one / other for one, other in zip(times["jax"], times["pytorch_graph"])]
    return {
        "batch": batch,
        "channels": channels,
        "same_bits": same,
        "microseconds": {name: statistics.median(own) for name, own in times.items()},
        "jax_over_graph": statistics.median(ratios),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shapes", default="256x16,4096x32,65536x32,1024x128")
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--calls", type=int, default=50)
    parser.add_argument("--commit", default="")
    parser.add_argument("--out")
    options = parser.parse_args()
    shapes = [tuple(map(int, shape.split("x"))) for shape in options.shapes.split(",")]
    show(
        {
            "gpu": torch.cuda.get_device_name(),
            "jax": jax.__version__,
            "torch": str(torch.__version__),
            "commit": options.commit,
            "rounds": options.rounds,
            "calls": options.calls,
            "cases": [measure(*shape, options.rounds, options.calls) for shape in shapes],
        },
        options.out,
    )


if __name__ == "__main__":
    main()
