"""Measures a custom operator over vectors and scalars on a GPU: the norm of L-GATr-slim, beside the same norm by operations of PyTorch,
beside ``torch.compile`` of these, and beside a copy of its bytes.

    python benches/peers/own_scalars_gpu.py [--rounds 30] [--commit HASH] [--out FILE]

GPU times are measured on captured graphs, wall times on eager calls until the GPU is done. Cases take turns round by round; the numbers
are medians over rounds, in microseconds. ``forward`` needs no gradient, ``both`` is the forward pass and the gradients of all arguments.
"""

from __future__ import annotations

import argparse

import flashcliff
import torch
from derivatives_gpu import captured, gpu_time, medians, wall_time
from flashcliff.operators import Multivector, PerChannel, Scalars
from results import show

EPS = 0.01
# Rows, vectors and scalars: L-GATr-slim on 512 jets of 50 tokens, a smaller network, and few rows.
SIZES = ((25_600, 32, 96), (25_600, 16, 64), (2_560, 32, 96))


@flashcliff.operator((1, 3, 0))
def slim_norm(
    x: Multivector.of(1), s: Scalars, a: PerChannel, b: PerChannel(scalars=True)
):
    """Vectors and scalars over the root of the mean of their squares, times gains."""
    square = x.quadratic_form()
    size, own = square.maximum(-square), s * s
    mean = (size.sum() + own.sum()) / (size.count() + own.count())
    factor = 1.0 / (mean + EPS).sqrt()
    return x * (factor * a), s * (factor * b)


def ours(vectors, scalars, a, b):
    """The norm of vectors ``[rows, 4, channels]`` and scalars ``[rows, channels]``."""
    o, t = slim_norm(
        vectors.transpose(0, 1), scalars.unsqueeze(0), a.unsqueeze(1), b.unsqueeze(1)
    )
    return o.transpose(0, 1), t[0]


def composed(vectors, scalars, a, b):
    """The same by operations of PyTorch."""
    t, x, y, z = vectors.square().unbind(-2)
    total = (t - x - y - z).abs().sum(-1) + scalars.square().sum(-1)
    mean = total / (vectors.shape[-1] + scalars.shape[-1])
    factor = torch.rsqrt(mean + EPS).unsqueeze(-1)
    return vectors * (factor * a).unsqueeze(-2), scalars * (factor * b)


def cases(rows: int, vectors: int, scalars: int, dtype: torch.dtype) -> dict:
    """The calls of a size, by name."""
    shapes = ((rows, 4, vectors), (rows, scalars), (vectors,), (scalars,))
    given = [torch.randn(shape, device="cuda", dtype=dtype) for shape in shapes]
    seeds = [torch.randn_like(tensor) for tensor in given[:2]]
    exact = composed(*(tensor.double() for tensor in given))
    for found, want in zip(ours(*given), exact):
        off = (found - want).abs().max() / want.abs().max()
        assert off < (1e-5 if dtype == torch.float32 else 1e-2), off
    for tensor in given:
        tensor.requires_grad_()
    torch._dynamo.reset()
    ways = {
        "ours": ours,
        "composed": composed,
        "compiled": torch.compile(composed, dynamic=False),
    }

    def forward(way):
        with torch.no_grad():
            way(*given)

    def both(way):
        torch.autograd.grad(way(*given), given, seeds)

    half = sum(tensor.numel() * tensor.element_size() for tensor in given[:2])
    source = torch.empty(half, device="cuda", dtype=torch.uint8)
    target = torch.empty_like(source)
    calls = {"copy of the forward pass's bytes": lambda: target.copy_(source)}
    for name, way in ways.items():
        calls[f"{name}, forward"] = lambda way=way: forward(way)
        calls[f"{name}, both"] = lambda way=way: both(way)
    return calls


def measured(calls: dict, rounds: int) -> dict:
    """Times of the GPU and of the wall."""
    graphs = {name: captured(call).replay for name, call in calls.items()}
    on_gpu = medians(graphs, gpu_time, rounds)
    on_wall = medians(calls, wall_time, rounds // 3 + 1)
    return {
        name: {"gpu_us": on_gpu[name], "wall_us": on_wall[name]} for name in calls
    }


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
        "sizes": [],
    }
    # A separate stream for all calls, on which they are captured too.
    with torch.cuda.stream(torch.cuda.Stream()):
        for sizes in SIZES:
            for dtype in (torch.float32, torch.bfloat16):
                rows, vectors, scalars = sizes
                result["sizes"].append(
                    {
                        "rows": rows,
                        "vectors": vectors,
                        "scalars": scalars,
                        "dtype": str(dtype).removeprefix("torch."),
                        "calls": measured(cases(*sizes, dtype), options.rounds),
                    }
                )
    show(result, options.out)


if __name__ == "__main__":
    main()
