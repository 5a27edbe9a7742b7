#!/usr/bin/env python3
"""Training on two GPUs by the program (`train --gpus 2`), beside one: the same results, the ends of lost ranks, and times.

Before any time is written, two GPUs must give the losses of one with the same batches, up to rounding; a run of which a rank is killed
must end with an error and a state that can be continued; Ctrl-C must end a run with status 0. Then captured steps of the hulls model are
timed, runs in turns: `step` is the median over intervals of the milliseconds of a step, `wall` the time of all steps and validations over
their number. `speedup` compares samples a second. Takes about a minute.

    python3 benches/peers/ranks_gpu.py PROGRAM --commit HASH --out ranks-gpu.json
"""

import argparse
import json
import os
import pathlib
import signal
import statistics
import subprocess
import sys
import tempfile
import time

from results import text, write

# Batch of one GPU, and of two: the same work for each GPU, and the same work for both together.
CASES = {"one": (1, 16384), "two, as much each": (2, 32768), "two, half each": (2, 16384)}
SAMPLES = 32768
STEPS = 192


def options(gpus, batch, steps, samples=SAMPLES, more=()):
    numbers = {"gpus": gpus, "samples": samples, "batch": batch, "steps": steps, "val-samples": 256, "test-samples": 256}
    words = [f"--{name}={number}" for name, number in numbers.items()]
    return ["train", "hulls", "--device", "cuda", "--quiet", *words, *more]


def run(program, out, *args, **kwargs):
    start = time.perf_counter()
    command = [program, *options(*args, **kwargs), "--overwrite", "--out", str(out)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{command}: status {done.returncode}\n{done.stderr}")
    metrics = json.loads((out / "metrics.json").read_text(encoding="utf-8"))
    return metrics, time.perf_counter() - start


def check_results(program, folder):
    """Losses of the same batches. Errors of single precision grow with the steps, by about twice a step at most here."""
    kwargs = {"samples": 4096, "more": ("--clip-norm=0.1", "--accumulate=2")}
    one, _ = run(program, folder / "one", 1, 1024, 24, **kwargs)
    two, _ = run(program, folder / "two", 2, 1024, 24, **kwargs)
    if two["program"]["gpus"] != 2 or "gpus" in one["program"] or not two["steps"]["captured"]:
        sys.exit(f"expected captured steps on two GPUs: {two['program']}, {two['steps']}")
    apart = [abs(a - b) / abs(a) for a, b in zip(one["train_losses"], two["train_losses"], strict=True)]
    if apart[0] > 1e-5 or max(apart) > 1e-3:
        sys.exit(f"losses on one and two GPUs differ: {apart}")
    return {"first": apart[0], "largest": max(apart), "steps": len(apart)}


def rank_of(supervisor, rank):
    """The process of a rank."""
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            parent = int((folder / "stat").read_text().rsplit(")", 1)[1].split()[1])
            variables = (folder / "environ").read_bytes().split(b"\0")
        except (OSError, IndexError):
            continue
        if parent == supervisor and f"RANK={rank}".encode() in variables:
            return int(folder.name)
    return sys.exit(f"rank {rank} does not run")


def end_of_run(program, out, strike):
    """Starts a long run, does something to it after its first state, and waits for the end."""
    command = [program, *options(2, 1024, 100000, samples=4096, more=("--save-every=2000",)), "--overwrite", "--out", str(out)]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    limit = time.monotonic() + 60
    while not (out / "state.safetensors").exists():
        if child.poll() is not None or time.monotonic() > limit:
            child.kill()
            sys.exit(f"{command}: no state: {child.communicate()}")
        time.sleep(0.05)
    time.sleep(1)
    start = time.perf_counter()
    strike(child.pid)
    printed, messages = child.communicate(timeout=60)
    return child.returncode, printed, messages, time.perf_counter() - start


def check_ends(program, folder):
    found = {}
    for rank in (1, 0):
        out = folder / f"killed-{rank}"
        status, _, messages, seconds = end_of_run(program, out, lambda pid, rank=rank: os.kill(rank_of(pid, rank), signal.SIGKILL))
        if status != 1 or f"rank {rank} of 2 was ended by signal 9" not in messages:
            sys.exit(f"rank {rank} was killed: status {status}\n{messages}")
        if rank == 1 and ("rank 1 is lost" not in messages or "continue with" not in messages):
            sys.exit(f"rank 0 saved no state: {messages}")
        resumed = [program, "train", "hulls", "--device", "cuda", "--gpus", "2", "--quiet", "--resume", str(out / "state.safetensors")]
        child = subprocess.Popen(resumed, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        time.sleep(8)
        child.send_signal(signal.SIGINT)
        printed, errors = child.communicate(timeout=60)
        if child.returncode != 0 or "interrupted after" not in printed:
            sys.exit(f"{resumed}: status {child.returncode}\n{printed}{errors}")
        found[f"rank {rank} killed"] = {"seconds": round(seconds, 3), "messages": messages, "resumed": printed}
    status, printed, messages, seconds = end_of_run(program, folder / "interrupted", lambda pid: os.kill(pid, signal.SIGINT))
    if status != 0 or "interrupted after" not in printed:
        sys.exit(f"Ctrl-C: status {status}\n{printed}{messages}")
    found["Ctrl-C"] = {"seconds": round(seconds, 3), "printed": printed}
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("program", help="the program flashcliff, built with the feature cuda")
    parser.add_argument("--commit", required=True, help="the commit that it was built from")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--skip-ends", action="store_true", help="do not test the ends of runs")
    parser.add_argument("--out", type=pathlib.Path, required=True)
    given = parser.parse_args()
    query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    gpus = subprocess.run(query, check=True, capture_output=True, text=True).stdout.strip().splitlines()
    report = {"gpus": gpus, "commit": given.commit, "rounds": given.rounds}

    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        # Also fills the cache of compiled kernels.
        report["differences"] = check_results(given.program, folder)
        write(given.out, report)
        runs = {case: [] for case in CASES}
        for _ in range(given.rounds):
            for case, (number, batch) in CASES.items():
                metrics, process = run(given.program, folder / "timed", number, batch, STEPS)
                report["program"] = metrics["program"]
                steps = metrics["steps"]
                runs[case].append((steps["median_milliseconds"], metrics["milliseconds_per_step"], process, steps))
        report["cases"] = {}
        for case, (number, batch) in CASES.items():
            step, wall, process = (statistics.median(found[at] for found in runs[case]) for at in range(3))
            row = {"gpus": number, "batch": batch, "step": round(step, 4), "wall": round(wall, 4), "process": round(process, 2)}
            last = runs[case][-1][3]
            row |= {"all_steps": [found[0] for found in runs[case]], "captured": last["captured"], "nodes": last["nodes"]}
            report["cases"][case] = row
        one = report["cases"]["one"]
        for row in report["cases"].values():
            rate = row["batch"] / row["step"]
            row["speedup"] = round(rate / (one["batch"] / one["step"]), 3)
        write(given.out, report)
        print(text(report["cases"]))
        if not given.skip_ends:
            report["ends"] = check_ends(given.program, folder)
            write(given.out, report)


if __name__ == "__main__":
    main()
