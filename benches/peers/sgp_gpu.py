#!/usr/bin/env python3
"""Times other implementations of sgp_norm beside the program `gpu`, by the same protocol.

`torch.add` as the floor, a `torch.compile` baseline of our own, written from the formula, and, if a clone is
given, flash-clifford's fused operators. A buffer larger than the L2 cache is written before each run, variants
take turns, medians of CUDA events are printed, and every result is compared with float64 first.
"""

import argparse
import importlib
import json
import math
import statistics
import sys
from itertools import combinations

import torch
import torch._dynamo

EPS = 1e-6


class Terms:
    """The weighted geometric product of Cl(n, 0), by output blade: (left, right, path, sign)."""

    def __init__(self, dim):
        blades = [blade for grade in range(dim + 1) for blade in combinations(range(dim), grade)]
        self.grades = [len(blade) for blade in blades]
        found = []
        for left, a in enumerate(blades):
            for right, b in enumerate(blades):
                swaps = sum(v > w for v in a for w in b)
                output = blades.index(tuple(sorted(set(a) ^ set(b))))
                path = (len(a), len(blades[output]), len(b))
                found.append((output, left, right, path, (-1) ** swaps))
        self.paths = sorted({path for *_, path, _ in found})
        self.by_output = [
            [(left, right, self.paths.index(path), sign) for o, left, right, path, sign in found if o == output]
            for output in range(len(blades))
        ]


def gated(x):
    """Phi(x_0) x."""
    return x * (0.5 * (1 + torch.erf(x[0] / math.sqrt(2))))


def grade_rms(terms, outputs):
    """Each blade divided by the root mean square of its grade."""
    result = []
    for blade, grade in enumerate(terms.grades):
        same = [outputs[b] for b, g in enumerate(terms.grades) if g == grade]
        square = sum(o * o for o in same).mean(dim=-1, keepdim=True)
        result.append(outputs[blade] / torch.sqrt(square + EPS))
    return torch.stack(result)


def sgp_norm(terms, x, y, w):
    """grade_rms(weighted_product(w, gate(x), gate(y))), gate(x) = Phi(x_0) x."""
    x, y = gated(x), gated(y)
    outputs = [
        sum(sign * w[:, path] * (x[left] * y[right]) for left, right, path, sign in row)
        for row in terms.by_output
    ]
    return grade_rms(terms, outputs)


def check(name, function, terms, device):
    """Compares both passes with float64 at a small size. Returns the largest relative
    difference."""
    generator = torch.Generator(device=device).manual_seed(1)
    shapes = [(len(terms.grades), 64, 128)] * 2 + [(128, len(terms.paths))]
    inputs = [torch.randn(s, device=device, generator=generator, dtype=torch.float64) for s in shapes]
    grad = torch.randn(shapes[0], device=device, generator=generator, dtype=torch.float64)

    def run(f, dtype):
        tensors = [t.to(dtype).requires_grad_() for t in inputs]
        output = f(*tensors)
        return [output, *torch.autograd.grad(output, tensors, grad.to(dtype))]

    worst = 0.0
    for want, got in zip(run(lambda *t: sgp_norm(terms, *t), torch.float64), run(function, torch.float32)):
        off = ((got.double() - want).abs().max() / want.abs().max()).item()
        if not off < 1e-4:  # NaN is not.
            raise SystemExit(f"{name} is wrong: off by {off}")
        worst = max(worst, off)
    return worst


def take_turns(variants, flush, samples):
    """Median seconds of functions that take turns."""
    for _ in range(5):
        for function in variants.values():
            function()
    events = {name: [] for name in variants}
    for _ in range(samples):
        for name, function in variants.items():
            flush.zero_()
            pair = [torch.cuda.Event(enable_timing=True) for _ in range(2)]
            pair[0].record()
            function()
            pair[1].record()
            events[name].append(pair)
    torch.cuda.synchronize()
    return {n: statistics.median(a.elapsed_time(b) for a, b in e) * 1e-3 for n, e in events.items()}


def measure(dim, batch, channels, operators, flush, samples):
    """The times of both passes of all operators, and of the floor."""
    device = flush.device
    terms = Terms(dim)
    lanes = (len(terms.grades), batch, channels)
    x, y, grad = (torch.randn(lanes, device=device) for _ in range(3))
    w = torch.randn((channels, len(terms.paths)), device=device)
    tensors = [t.requires_grad_() for t in (x, y, w)]
    sum_ = torch.empty(lanes, device=device)
    variants = {"torch.add": lambda: torch.add(x.detach(), y.detach(), out=sum_)}
    differences = {}
    for name, function in operators(terms).items():
        differences[name] = check(name, function, terms, device)

        def forward(f=function):
            with torch.no_grad():
                return f(*tensors)

        output = function(*tensors)
        variants[f"{name} forward"] = forward
        variants[f"{name} backward"] = lambda o=output: torch.autograd.grad(o, tensors, grad, retain_graph=True)
    return take_turns(variants, flush, samples), differences


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--flash-clifford", metavar="PATH", help="a clone of flash-clifford")
    parser.add_argument("--out", metavar="FILE", help="writes the results as JSON")
    parser.add_argument("--quick", action="store_true", help="few samples, small tensors")
    arguments = parser.parse_args()
    if not torch.cuda.is_available():
        raise SystemExit("PyTorch finds no GPU")
    peers = {}
    if arguments.flash_clifford:
        sys.path.insert(0, arguments.flash_clifford)
        peers = {
            2: importlib.import_module("ops.p2m0").fused_gelu_sgp_norm_2d,
            3: importlib.import_module("ops.p3m0").fused_gelu_sgp_norm_3d,
        }
    torch._dynamo.config.cache_size_limit = 64

    def operators(terms):
        dim = max(terms.grades)
        compiled = torch.compile(lambda x, y, w: sgp_norm(terms, x, y, w), dynamic=False)
        found = {"torch.compile": compiled}
        if dim in peers:
            found["flash-clifford"] = lambda x, y, w: peers[dim](x, y, w, True)
        return found

    properties = torch.cuda.get_device_properties(0)
    flush = torch.empty(max(4 * properties.L2_cache_size, 256 << 20), dtype=torch.uint8, device="cuda")
    samples = 5 if arguments.quick else 50
    shapes = [(256, 128)] if arguments.quick else [(4096, 512), (8192, 512), (4096, 1024)]
    results = []
    for dim in (3, 2):
        for batch, channels in shapes:
            times, differences = measure(dim, batch, channels, operators, flush, samples)
            name = f"cl{dim}00 {batch}x{channels}"
            results.append({"name": name, "seconds": times, "differences": differences})
            for variant, seconds in times.items():
                ratio = seconds / times["torch.add"]
                print(f"{name:16} {variant:24} {seconds * 1e6:10.2f} us {ratio:8.3f}x of torch.add", flush=True)
    versions = {"torch": torch.__version__, "cuda": torch.version.cuda, "quick": arguments.quick}
    if arguments.out:
        with open(arguments.out, "w", encoding="utf-8") as file:
            json.dump({"gpu": properties.name, **versions, "cases": results}, file, indent=2)
            file.write("\n")
    print(f"{len(results)} cases measured, all results right")


if __name__ == "__main__":
    main()
