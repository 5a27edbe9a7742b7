#!/usr/bin/env python3
"""Geometric algebra transformers of flashcliff beside the published packages, on the CPU.

One process and the same weights for both. Outputs are compared before anything is timed. Variants take turns; times are
medians of the wall clock. A training step is the forward pass, a sum of squares as the loss, the backward pass and fused
AdamW, for both alike. Needs the packages `gatr` (with an import of `xformers` that succeeds) and `lgatr` 2.

    python3 benches/peers/transformers_cpu.py --commit HASH --out transformers-cpu.json
"""

import argparse
import os
import statistics
import time
import warnings

import flashcliff
import torch
from flashcliff.compat import gatr as our_gatr
from flashcliff.compat import lgatr as our_lgatr

from sweep_cpu import cpu_name
from sweep_results import write

TOLERANCE = 2e-5


def gatr_nets():
    """GATr's n-body network: 10 blocks, 16 multivector and 128 scalar channels, 8 heads."""
    import gatr

    nets = []
    for package in (gatr, our_gatr):
        attention, mlp = package.SelfAttentionConfig(), package.MLPConfig()
        nets.append(package.GATr(1, 1, 16, 1, 1, 128, attention, mlp, num_blocks=10))
    return nets


def lgatr_nets():
    """L-GATr of size 0 of the tagging guide: 8 blocks, 16 multivector and 64 scalar channels, 8 heads, MLP ratio 2."""
    import lgatr

    nets = []
    for package in (lgatr, our_lgatr):
        attention = package.SelfAttentionConfig(num_heads=8)
        mlp = package.MLPConfig(mlp_ratio=2)
        nets.append(package.LGATr(8, 1, 1, 16, 1, 1, 64, attention, mlp))
    return nets


CASES = {
    "GATr, 16 x 4 items": (gatr_nets, (16, 4)),
    "GATr, 2 x 128 items": (gatr_nets, (2, 128)),
    "L-GATr size 0, 1 x 50 items": (lgatr_nets, (1, 50)),
    "L-GATr size 0, 16 x 50 items": (lgatr_nets, (16, 50)),
}


def difference(got, want):
    return max(((g - w).abs().max() / w.abs().max()).item() for g, w in zip(got, want, strict=True))


def calls(net, inputs):
    """An inference and a training step of a network."""
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-6, fused=True)

    def inference():
        with torch.no_grad():
            return net(*inputs)

    def step():
        sum(out.square().sum() for out in net(*inputs)).backward()
        optimizer.step()
        optimizer.zero_grad()

    return {"inference": inference, "training step": step}


def measure(make, shape, samples):
    theirs, ours = make()
    ours.load_state_dict(theirs.state_dict())
    inputs = torch.randn(*shape, 1, 16), torch.randn(*shape, 1)
    with torch.no_grad():
        off = difference(ours(*inputs), theirs(*inputs))
    if not off < TOLERANCE:
        raise SystemExit(f"outputs differ by {off:.2g} of the largest, more than {TOLERANCE:.0e}")
    variants = {"theirs": calls(theirs, inputs), "flashcliff": calls(ours, inputs)}
    seconds = {}
    for kind in ("inference", "training step"):
        found = {name: [] for name in variants}
        for sample in range(samples + 1):
            for name, variant in variants.items():
                start = time.perf_counter()
                variant[kind]()
                if sample:
                    found[name].append(time.perf_counter() - start)
        seconds[kind] = {name: statistics.median(times) for name, times in found.items()}
    return {"difference": off, "seconds": seconds}


def versions():
    """The versions of PyTorch and of the packages."""
    import gatr
    import lgatr

    packages = {"torch": torch, "gatr": gatr, "lgatr": lgatr}
    return {name: package.__version__ for name, package in packages.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--commit", metavar="HASH", help="the commit of flashcliff, to be noted")
    parser.add_argument("--out", metavar="FILE", required=True, help="the results, JSON")
    parser.add_argument("--samples", type=int, default=15)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    arguments = parser.parse_args()
    warnings.filterwarnings("ignore")
    torch.set_num_threads(arguments.threads)
    torch.manual_seed(0)
    result = {
        "commit": arguments.commit,
        "packages": versions(),
        "simd": flashcliff.build_info()["simd"],
        "threads": arguments.threads,
        "machine": cpu_name(),
        "samples": arguments.samples,
        "cases": [],
    }
    for name, (make, shape) in CASES.items():
        result["cases"].append({"name": name, **measure(make, shape, arguments.samples)})
        for kind, seconds in result["cases"][-1]["seconds"].items():
            ratio = seconds["theirs"] / seconds["flashcliff"]
            times = ", ".join(f"{who} {1e3 * value:.1f} ms" for who, value in seconds.items())
            print(f"{name}, {kind}: {times}, {ratio:.2f} times as fast", flush=True)
        write(arguments.out, result)


if __name__ == "__main__":
    main()
