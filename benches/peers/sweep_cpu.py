#!/usr/bin/env python3
"""flashcliff beside torch.compile on the CPU, at a few points of flash-clifford's sweep.

As `sweep_gpu.py`: one process, everything compared with float64 first at the sizes that are timed,
variants take turns, medians; a buffer larger than the caches is written before each run. `--out`
is written after every point.

    python3 benches/peers/sweep_cpu.py --commit HASH --out sweep-cpu.json
"""

import argparse
import os
import platform
import statistics
import time

import flashcliff
import torch
import torch._dynamo

from results import command, write
from sweep_cases import Case
from sweep_results import line, right_ones, shown
from sweep_timing import passes
from sweep_variants import Peers, ours

TOLERANCE = 1e-4


def take_turns(functions, flush, samples):
    """Median seconds of functions that take turns."""
    for function in functions.values():
        function()
    seconds = {name: [] for name in functions}
    for _ in range(samples):
        for name, function in functions.items():
            flush.zero_()
            start = time.perf_counter()
            function()
            seconds[name].append(time.perf_counter() - start)
    return {name: {"eager": statistics.median(s)} for name, s in seconds.items()}


def measure(case, variants, flush, samples):
    reference = case.reference()
    differences = {name: case.differences(f, reference) for name, f in variants.items()}
    del reference
    right = right_ones(differences, TOLERANCE)
    calls = {name: passes(variants[name], *case.arranged(variants[name])) for name in right}
    return {
        "differences": shown(differences),
        "seconds": {
            kind: take_turns({n: call[kind] for n, call in calls.items()}, flush, samples)
            for kind in ("forward", "forward+backward")
        },
    }


def cpu_name():
    """The model of the CPU, if Linux reports it."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            names = [row.split(":", 1)[1].strip() for row in file if row.startswith("model name")]
    except OSError:
        names = []
    return names[0] if names else platform.processor()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    add = parser.add_argument
    add("--flash-clifford", metavar="PATH", help="a clone, for its baseline")
    add("--cgenn", metavar="PATH", help="a clone of CGENN, for the operator steerable")
    add("--commit", metavar="HASH", help="the commit of flashcliff, to be noted")
    add("--out", metavar="FILE", required=True, help="the results, JSON")
    add("--baselines", default="own", help="of own, theirs")
    add("--operators", default="sgp,layer")
    add("--dims", default="3,2")
    add("--points", default="1024x128,4096x512")
    add("--samples", type=int, default=9)
    add("--threads", type=int, default=os.cpu_count())
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    flashcliff.set_num_threads(arguments.threads)
    torch._dynamo.config.recompile_limit = 64
    torch._dynamo.config.automatic_dynamic_shapes = False
    environment = {
        "command": command(),
        "cpu": cpu_name(),
        "threads": arguments.threads,
        "torch": torch.__version__,
        "flashcliff": flashcliff.build_info(),
        "flashcliff_commit": arguments.commit,
        "samples": arguments.samples,
    }
    results = {"environment": environment, "points": []}
    peers = Peers("cpu", arguments.flash_clifford, arguments.cgenn, arguments.baselines.split(","))
    flush = torch.empty(128 << 20, dtype=torch.uint8)
    points = [tuple(map(int, point.split("x"))) for point in arguments.points.split(",")]
    for operator in arguments.operators.split(","):
        for dim in map(int, arguments.dims.split(",")):
            for batch, channels in points:
                case = Case(operator, dim, batch, channels, "cpu")
                variants = {"flashcliff": ours(case)} | peers.variants(case)
                result = {"operator": operator, "dim": dim, "batch": batch, "channels": channels}
                result |= measure(case, variants, flush, arguments.samples)
                results["points"].append(result)
                write(arguments.out, results)
                print(line(result), flush=True)
    print(f"{len(results['points'])} points")


if __name__ == "__main__":
    main()
