#!/usr/bin/env python3
"""flashcliff beside flash-clifford and torch.compile over flash-clifford's published sweep.

One process, one GPU. Every variant's output and gradients are compared with float64 first, at the
very sizes that are timed; a peer that is wrong is named and not timed, and if flashcliff is, the
sweep ends. Variants take turns, the L2 cache is flushed before every run, medians of
CUDA events are kept, with the peak memory of a call when there are no gradients yet. `--out` is
written after every point, so a run that is cut leaves what it measured; `--resume` goes on.

    python3 benches/peers/sweep_gpu.py --flash-clifford CLONE --commit HASH --out sweep.json
"""

import argparse
import concurrent.futures
import json
import multiprocessing
import os
import subprocess
import time

import torch
import torch._dynamo

from results import command, write
from sweep_cases import Case
from sweep_results import OPERATORS, PASSES, line, right_ones, shown
from sweep_timing import passes, peak, take_turns
from sweep_variants import OWN, Peers, in_blocks, ours

BATCHES = (1024, 2048, 4096, 8192)
CHANNELS = (128, 256, 512, 1024)
# Tolerances relative to the largest value. Matrix products are in TF32, but for sgp, which has none.
EXACT = 1e-4
TOLERANCE = {"sgp": EXACT, "fcgp": 5e-3, "layer": 5e-3, "steerable": 5e-3}
# TF32 keeps 10 bits of the fraction, so the two operands of a product are off by 2^-11 each.
TF32 = 2 * 2**-11
# Tolerances for tensors that are themselves rounded: a few units of the last place.
ROUNDED = {"bfloat16": 2e-2, "float16": 5e-3}


def configure(precision):
    torch.set_float32_matmul_precision(precision)
    torch._dynamo.config.recompile_limit = 64
    # A size is dynamic only if it is marked so.
    torch._dynamo.config.automatic_dynamic_shapes = False


def compile_ahead(job):
    """Runs variants of other libraries once in a separate process, to fill the compilers'
    caches."""
    precision, dtype, peers, point, names = job
    configure(precision)
    case = Case(*point, "cuda", getattr(torch, dtype))
    for name, function in Peers("cuda", *peers).variants(case).items():
        if name in names:
            for run in passes(function, *case.arranged(function)).values():
                run()
    torch.cuda.synchronize()


def ahead_of(jobs, peers, arguments):
    """The jobs that can be compiled ahead. flash-clifford's baseline indexes with constants, and
    torch does not put such graphs into its cache."""
    smallest = min((batch for _, _, batch, _ in jobs), default=0)
    for job in jobs:
        operator, _, batch, _ = job
        # The layer has the kernels of the product, and a graph for one batch size serves all.
        names = {"flash-clifford"} if operator in ("sgp", "fcgp") else set()
        names |= {OWN} if operator != "steerable" and batch == smallest else set()
        if names:
            yield arguments.matmul_precision, arguments.dtype, peers, job, names


def tolerance(operator, arguments):
    """The largest difference that is allowed."""
    if arguments.dtype in ROUNDED:
        return ROUNDED[arguments.dtype]
    return TOLERANCE[operator] if arguments.matmul_precision != "highest" else EXACT


def magnified(case, limit):
    """The tolerances of the tensors in which TF32 is magnified beyond the limit of the others."""
    factors = case.magnification().items()
    return {name: max(limit, TF32 * factor) for name, factor in factors}


def measure(case, variants, flush, arguments):
    """Differences, times and memory of all variants of a case."""
    reference = case.reference()
    limit, precision = tolerance(case.operator, arguments), arguments.matmul_precision
    if case.operator == "steerable" and arguments.dtype == "float32" and limit > EXACT:
        # Nothing here is compiled for a precision, so the formulas can be compared in full float32.
        torch.set_float32_matmul_precision("highest")
        found = {name: case.differences(f, reference) for name, f in variants.items()}
        torch.set_float32_matmul_precision(precision)
        variants = {name: variants[name] for name in right_ones(found, EXACT)}
    differences = {name: case.differences(f, reference) for name, f in variants.items()}
    del reference
    in_tf32 = arguments.dtype == "float32" and limit > EXACT
    right = right_ones(differences, limit, magnified(case, limit) if in_tf32 else {})
    calls = {name: passes(variants[name], *case.arranged(variants[name])) for name in right}
    seconds = {}
    for kind in PASSES:
        functions = {name: call[kind] for name, call in calls.items()}
        seconds[kind] = take_turns(functions, flush, arguments.samples)
    peaks = {name: peak(call["forward+backward"]) for name, call in calls.items()}
    return {"differences": shown(differences), "seconds": seconds, "peak_bytes": peaks}


def matmul_rate(flush, samples, dtype):
    """The floating-point operations a second of a product of 8192 x 8192 matrices."""
    size = 8192
    a, b = (torch.randn(size, size, device="cuda").to(dtype) for _ in range(2))
    times = take_turns({"matmul": lambda: a @ b.T}, flush, samples)["matmul"]
    return 2 * size**3 / times["queued"]


def environment(arguments):
    import triton

    properties = torch.cuda.get_device_properties(0)
    query = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader", "--id=0"]
    driver = subprocess.run(query, capture_output=True, text=True, check=False).stdout.strip()
    return {
        "command": command(),
        "gpu": properties.name,
        "driver": driver,
        "torch": torch.__version__,
        "triton": triton.__version__,
        "cuda": torch.version.cuda,
        "dtype": arguments.dtype,
        "float32_matmul_precision": arguments.matmul_precision,
        "flashcliff_commit": arguments.commit,
        "peer_commits": arguments.peer_commits,
        "samples": arguments.samples,
    }


def parse():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    add = parser.add_argument
    add("--flash-clifford", metavar="PATH", help="a clone of flash-clifford")
    add("--cgenn", metavar="PATH", help="a clone of CGENN, for the operator steerable")
    add("--peer-commits", metavar="TEXT", help="the commits of the clones, to be noted")
    add("--commit", metavar="HASH", help="the commit of flashcliff, to be noted")
    add("--out", metavar="FILE", required=True, help="the results, JSON")
    add("--resume", action="store_true", help="keeps the points that FILE has")
    add("--operators", default="sgp,layer", help=f"of {', '.join(OPERATORS)}")
    add("--dims", default="3,2")
    add("--points", help="such as 4096x512,8192x1024; all 16 by default")
    add("--samples", type=int, default=20)
    add("--matmul-precision", default="medium", choices=("highest", "high", "medium"))
    add("--dtype", default="float32", choices=("float32", *ROUNDED), help="of all tensors")
    add("--baselines", default="own", help="for torch.compile: own, theirs or own,theirs")
    add("--ahead", type=int, default=0, metavar="N", help="N processes compile ahead")
    mib = {"type": int, "nargs": "*", "default": [], "metavar": "MIB"}
    add("--block-mib", help="fcgp also with blocks of rows of this size at most", **mib)
    add("--only-others", action="store_true", help="without flashcliff")
    return parser.parse_args()


def main():
    arguments = parse()
    if not torch.cuda.is_available():
        raise SystemExit("PyTorch finds no GPU")
    if arguments.dtype != "float32" and (arguments.flash_clifford or arguments.cgenn):
        raise SystemExit("the peers compute in float32 only")
    configure(arguments.matmul_precision)
    grid = [(b, c) for c in CHANNELS for b in BATCHES]
    if arguments.points:
        grid = [tuple(map(int, point.split("x"))) for point in arguments.points.split(",")]
    jobs = [
        (operator, int(dim), batch, channels)
        for operator in arguments.operators.split(",")
        for dim in arguments.dims.split(",")
        for batch, channels in grid
    ]
    results = {"environment": environment(arguments), "points": []}
    if arguments.resume and os.path.exists(arguments.out):
        with open(arguments.out, encoding="utf-8") as file:
            before = json.load(file)
        if before["environment"].get("dtype", "float32") != arguments.dtype:
            raise SystemExit(f"{arguments.out} is of another --dtype")
        results["points"] = before["points"]
    done = {(p["operator"], p["dim"], p["batch"], p["channels"]) for p in results["points"]}
    jobs = [job for job in jobs if job not in done]
    start = time.monotonic()
    baselines = arguments.baselines.split(",")
    peers = (arguments.flash_clifford, arguments.cgenn, baselines)
    if arguments.ahead:
        ahead = list(ahead_of(jobs, peers, arguments))
        context = multiprocessing.get_context("spawn")
        with concurrent.futures.ProcessPoolExecutor(arguments.ahead, context) as pool:
            list(pool.map(compile_ahead, ahead))
        print(f"compiled ahead in {time.monotonic() - start:.0f} s", flush=True)
    peers = Peers("cuda", *peers)
    size = max(4 * torch.cuda.get_device_properties(0).L2_cache_size, 256 << 20)
    flush = torch.empty(size, dtype=torch.uint8, device="cuda")
    dtype = getattr(torch, arguments.dtype)
    rate = matmul_rate(flush, arguments.samples, dtype)
    results["environment"]["matmul_flops_per_second"] = rate
    for job in jobs:
        case = Case(*job, "cuda", dtype)
        variants = {}
        if not arguments.only_others:
            variants["flashcliff"] = ours(case)
            variants |= in_blocks(case, arguments.block_mib)
        variants |= peers.variants(case)
        result = dict(zip(("operator", "dim", "batch", "channels"), job))
        if case.flops():
            result["flops"] = {"forward": case.flops(), "forward+backward": 3 * case.flops()}
            # The rate is that of this process: results that are continued come from several
            # processes.
            result["matmul_flops_per_second"] = rate
        result |= measure(case, variants, flush, arguments)
        results["points"].append(result)
        results["environment"]["wall_seconds"] = round(time.monotonic() - start, 1)
        write(arguments.out, results)
        print(line(result), flush=True)
    print(f"{len(results['points'])} points, {time.monotonic() - start:.0f} s")


if __name__ == "__main__":
    main()
