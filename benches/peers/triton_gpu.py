"""Measures the Triton kernels of ``sgp_norm`` beside the CUDA kernels, in one process: forward, and forward and backward, in the plane
and in space.

    python benches/peers/triton_gpu.py [--rounds 40] [--commit HASH] [--out FILE] [--quick]

Results are compared first: Triton kernels with the CUDA kernels, and with themselves bit for bit. Calls are captured into CUDA graphs,
so that the time is that of the GPU. Cases take turns round by round; the numbers are medians over rounds, in microseconds. Each choice
of tiles (``flashcliff._triton.tiles.CHOICES``) is a separate case, which both passes take: `triton 0` and so on. The case `triton` is
what calls take: one choice for passes without sums over the batch, another one for passes with them.
"""

from __future__ import annotations

import argparse
import statistics

import flashcliff
import torch
from flashcliff import functional as F
from flashcliff._triton import tiles
from gpu_clock import captured
from results import write

SIGNATURES = ((2, 0, 0), (3, 0, 0))
SIZES = ((4096, 512), (8192, 512), (4096, 128))
TYPES = (torch.float32, torch.bfloat16)
PATHS = {2: 10, 3: 20}
"""The paths of products in the plane and in space."""


def passes(algebra, x, y, w, g):
    """The calls that are measured."""
    plain = [tensor.detach() for tensor in (x, y, w)]
    return {
        "forward": lambda: (F.sgp_norm(*plain, algebra),),
        "forward and backward": lambda: _both(algebra, x, y, w, g),
    }


def _both(algebra, x, y, w, g):
    output = F.sgp_norm(x, y, w, algebra)
    return output.detach(), *torch.autograd.grad(output, (x, y, w), g)


def gpu_time(graph: torch.cuda.CUDAGraph, repeats: int = 20) -> float:
    """Microseconds of the GPU for a replay."""
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    for _ in range(repeats):
        graph.replay()
    end.record()
    torch.cuda.synchronize()
    return 1e3 * start.elapsed_time(end) / repeats


def largest_error(found, wanted) -> float:
    """The largest difference, relative to the largest number of each tensor."""
    pairs = ((a.float(), b.float()) for a, b in zip(found, wanted, strict=True))
    return max(float((a - b).abs().max() / b.abs().max()) for a, b in pairs)


def graphs_of(algebra, tensors, dtype) -> dict[tuple[str, str], torch.cuda.CUDAGraph]:
    """Graphs of all passes by the CUDA kernels, as Triton calls are, and by each choice of tiles, whose results were compared."""
    made = {}
    limit = 1e-5 if dtype is torch.float32 else 2 * torch.finfo(dtype).eps
    for name, call in passes(algebra, *tensors).items():
        wanted = call()
        made[name, "cuda"] = captured(call)
        choices = {"triton": None} | {f"triton {at}": own for at, own in enumerate(tiles.CHOICES)}
        for kernels, choice in choices.items():
            with flashcliff.backend("triton"), tiles.using(choice):
                found, again = call(), call()
                error = largest_error(found, wanted)
                same = all(torch.equal(a, b) for a, b in zip(found, again, strict=True))
                if error > limit or not same:
                    raise SystemExit(f"{algebra.name} {name} {choice}: error {error}, same bits {same}")
                made[name, kernels] = captured(call)
    return made


def measured(signature, batch, channels, dtype, rounds) -> list[dict]:
    """Rows of one size."""
    algebra = flashcliff.Algebra(*signature)
    shape = (algebra.blade_count, batch, channels)
    x, y, g = (torch.randn(shape, device="cuda", dtype=dtype) for _ in range(3))
    w = torch.randn(channels, PATHS[algebra.dim], device="cuda", dtype=dtype)
    for tensor in (x, y, w):
        tensor.requires_grad_()
    graphs = graphs_of(algebra, (x, y, w, g), dtype)
    times: dict = {key: [] for key in graphs}
    for _ in range(rounds):
        for key, graph in graphs.items():
            times[key].append(gpu_time(graph))
    medians = {key: statistics.median(of) for key, of in times.items()}
    return [
        {
            "algebra": algebra.name,
            "batch": batch,
            "channels": channels,
            "type": str(dtype).removeprefix("torch."),
            "pass": name,
            "kernels": kernels,
            "us": round(median, 2),
            "of_cuda": round(median / medians[name, "cuda"], 3),
        }
        for (name, kernels), median in medians.items()
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--commit", default="")
    parser.add_argument("--out")
    parser.add_argument("--quick", action="store_true", help="4096 x 512 in float32 alone")
    given = parser.parse_args()
    sizes, types = (SIZES[:1], TYPES[:1]) if given.quick else (SIZES, TYPES)
    torch.manual_seed(0)
    rows = []
    for signature in SIGNATURES:
        for batch, channels in sizes:
            for dtype in types:
                found = measured(signature, batch, channels, dtype, given.rounds)
                rows += found
                for row in found:
                    print(*row.values(), sep="\t", flush=True)
    import triton

    result = {
        "commit": given.commit,
        "device": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "triton": triton.__version__,
        "choices": [choice._asdict() for choice in tiles.CHOICES],
        "rows": rows,
    }
    if given.out:
        write(given.out, result)


if __name__ == "__main__":
    main()
