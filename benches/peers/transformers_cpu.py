#!/usr/bin/env python3
"""Geometric algebra transformers of flashcliff beside the published packages, on the CPU.

A process for each number of threads, with the same weights for all variants. Outputs are compared before anything is timed.
Variants take turns; times are medians of the wall clock. A training step is the forward pass, a sum of squares as the loss, the
backward pass and fused AdamW, for both alike. With the library that `cargo xtask install` makes, a file of the network runs in C
too. Needs the packages `gatr` (with an import of `xformers` that succeeds) and `lgatr` 2.

    python3 benches/peers/transformers_cpu.py --commit HASH --c-library libflashcliff.so --out transformers-cpu.json
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path

import flashcliff
import torch
from c_network import Runner
from flashcliff.nn.transformer import join_reference
from sweep_cpu import cpu_name
from results import write
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


def packed(mv, s):
    """Multivectors and scalars as the tokens of a file: in a row the channels of each blade, then the scalars."""
    return torch.cat([mv.transpose(-1, -2).flatten(2), s], dim=-1).flatten(0, 1).contiguous()


def in_c(library, package, net, given, folder):
    """An inference of a file of the network in C, as tokens."""
    path = Path(folder) / "network.safetensors"
    flashcliff.save_network(net, path)
    run = Runner(library, path, *given[0].shape[:2])
    ours = [packed(*given)]
    if package == "gatr":
        reference = join_reference(given[0].movedim(-1, 0))
        ours.append(reference.expand(*given[0].shape[:2], 1).flatten().contiguous())
    output = torch.empty_like(ours[0])
    return lambda: run(ours, output)


def check(off):
    if not off < TOLERANCE:
        raise SystemExit(f"outputs differ by {off:.2g} of the largest, more than {TOLERANCE:.0e}")
    return off


def measure(package, make, shape, arguments, folder):
    theirs, ours = map(make, packages(package))
    ours.load_state_dict(theirs.state_dict())
    given = inputs(*shape)
    with torch.no_grad():
        expected = theirs(*given)
        off = check(difference(ours(*given), expected))
    variants = {"theirs": calls(theirs, given), "flashcliff": calls(ours, given)}
    if arguments.c_library is not None:
        call = in_c(arguments.c_library, package, ours, given, folder)
        off = max(off, check(difference([call()], [packed(*expected)])))
        variants["C"] = {"inference": call}
    seconds = {}
    for kind in ("inference", "training step"):
        found = {name: [] for name, own in variants.items() if kind in own}
        for sample in range(arguments.samples + 1):
            for name, times in found.items():
                start = time.perf_counter()
                variants[name][kind]()
                if sample:
                    times.append(time.perf_counter() - start)
        seconds[kind] = {name: statistics.median(times) for name, times in found.items()}
    return {"difference": off, "seconds": seconds}


def run(arguments):
    """The cases with one number of threads, as JSON in the output, which a process for them has."""
    warnings.filterwarnings("ignore")
    torch.set_num_threads(arguments.here)
    torch.manual_seed(0)
    found = []
    with tempfile.TemporaryDirectory() as folder:
        for name, case in CASES.items():
            found.append({"name": name, **measure(*case, arguments, folder)})
            for kind, seconds in found[-1]["seconds"].items():
                times = ", ".join(f"{who} {1e3 * value:.1f} ms" for who, value in seconds.items())
                print(f"{arguments.here} threads, {name}, {kind}: {times}", file=sys.stderr, flush=True)
    print(json.dumps(found))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--commit", metavar="HASH", help="the commit of flashcliff, to be noted")
    parser.add_argument("--out", metavar="FILE", help="the results, JSON")
    parser.add_argument("--samples", type=int, default=15)
    parser.add_argument("--threads", default=f"1,{os.cpu_count()}", help="numbers of threads, by commas")
    parser.add_argument("--c-library", metavar="FILE", help="libflashcliff.so, as `cargo xtask install` makes it")
    parser.add_argument("--here", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.here is not None:
        run(arguments)
        return
    if arguments.out is None:
        parser.error("expected --out")
    result = {
        "commit": arguments.commit,
        "packages": versions(),
        "simd": flashcliff.build_info()["simd"],
        "machine": cpu_name(),
        "samples": arguments.samples,
        "runs": [],
    }
    for threads in map(int, arguments.threads.split(",")):
        command = [sys.executable, __file__, "--here", str(threads), "--samples", str(arguments.samples)]
        if arguments.c_library is not None:
            command += ["--c-library", arguments.c_library]
        # The library for C takes its number of threads from the environment.
        environment = {**os.environ, "RAYON_NUM_THREADS": str(threads)}
        done = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, text=True)
        result["runs"].append({"threads": threads, "cases": json.loads(done.stdout.splitlines()[-1])})
        write(arguments.out, result)


if __name__ == "__main__":
    main()
