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

from sweep_cpu import cpu_name
from sweep_results import write
from transformers_cases import (
    TOLERANCE,
    difference,
    gatr_net,
    inputs,
    lgatr_net,
    loss,
    packages,
    versions,
)

CASES = {
    "GATr, 16 x 4 items": ("gatr", gatr_net, (16, 4)),
    "GATr, 2 x 128 items": ("gatr", gatr_net, (2, 128)),
    "L-GATr size 0, 1 x 50 items": ("lgatr", lgatr_net, (1, 50)),
    "L-GATr size 0, 16 x 50 items": ("lgatr", lgatr_net, (16, 50)),
}


def calls(net, given):
    """An inference and a training step of a network."""
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-6, fused=True)

    def inference():
        with torch.no_grad():
            return net(*given)

    def step():
        loss(net(*given)).backward()
        optimizer.step()
        optimizer.zero_grad()

    return {"inference": inference, "training step": step}


def measure(package, make, shape, samples):
    theirs, ours = map(make, packages(package))
    ours.load_state_dict(theirs.state_dict())
    given = inputs(*shape)
    with torch.no_grad():
        off = difference(ours(*given), theirs(*given))
    if not off < TOLERANCE:
        raise SystemExit(f"outputs differ by {off:.2g} of the largest, more than {TOLERANCE:.0e}")
    variants = {"theirs": calls(theirs, given), "flashcliff": calls(ours, given)}
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
    for name, case in CASES.items():
        result["cases"].append({"name": name, **measure(*case, arguments.samples)})
        for kind, seconds in result["cases"][-1]["seconds"].items():
            ratio = seconds["theirs"] / seconds["flashcliff"]
            times = ", ".join(f"{who} {1e3 * value:.1f} ms" for who, value in seconds.items())
            print(f"{name}, {kind}: {times}, {ratio:.2f} times as fast", flush=True)
        write(arguments.out, result)


if __name__ == "__main__":
    main()
