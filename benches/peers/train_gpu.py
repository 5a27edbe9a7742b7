#!/usr/bin/env python3
"""Training steps of the program on a GPU, launched one by one and captured as CUDA graphs.

Both ways of a case train from the same seed; their weights must be equal bit for bit before any time is written. Runs take turns.
`step` is the median over the intervals between validations of the milliseconds of a step, as `metrics.json` has it; `process` is the
time of the whole program, in seconds, with a full cache of compiled kernels.

    python3 benches/peers/train_gpu.py PROGRAM --commit HASH --out train-gpu.json
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

from results import write

# Task, training samples, batch, steps, precision.
CASES = [
    *(("hulls", 16384, 128, 512, precision) for precision in ("highest", "tf32", "bf16")),
    *(("hulls", 16384, 2048, 512, precision) for precision in ("highest", "tf32", "bf16")),
    *(("hulls", 16384, 16384, 256, precision) for precision in ("highest", "tf32", "bf16")),
    ("regression", 16384, 128, 512, "highest"),
    ("volumes", 16384, 128, 512, "highest"),
    ("volumes", 16384, 2048, 512, "highest"),
]
WAYS = ("off", "on")


def options(case, capture):
    task, samples, batch, steps, precision = case
    numbers = {"precision": precision, "samples": samples, "batch": batch, "steps": steps, "val-samples": 256, "test-samples": 256}
    words = [f"--{name}={number}" for name, number in numbers.items()]
    return ["train", task, "--device", "cuda", "--capture", capture, *words]


def run(program, case, capture, out):
    start = time.perf_counter()
    command = [program, *options(case, capture), "--quiet", "--overwrite", "--out", str(out)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    seconds = time.perf_counter() - start
    metrics = json.loads((out / "metrics.json").read_text(encoding="utf-8"))
    steps = metrics["steps"]
    if steps["captured"] != (capture == "on"):
        sys.exit(f"{case}: expected captured steps: {capture}, got {steps}")
    return {
        "process": seconds,
        "step": steps["median_milliseconds"],
        "nodes": steps["nodes"],
        "memory": steps["device_memory"],
        "weights": (out / "best.safetensors").read_bytes(),
        "program": metrics["program"],
    }


def measure(program, case, rounds, folder):
    runs = {way: [] for way in WAYS}
    for _ in range(rounds):
        for way in WAYS:
            runs[way].append(run(program, case, way, folder / way))
    if len({found["weights"] for way in WAYS for found in runs[way]}) != 1:
        sys.exit(f"{case}: the weights differ between runs")
    task, samples, batch, steps, precision = case
    row = {"task": task, "samples": samples, "batch": batch, "steps": steps, "precision": precision}
    for way in WAYS:
        values = {key: [found[key] for found in runs[way]] for key in ("step", "process")}
        row[way] = {key: round(statistics.median(all_), 4) for key, all_ in values.items()}
        row[way]["all_steps"] = [round(value, 4) for value in values["step"]]
        row[way]["nodes"], row[way]["memory"] = runs[way][0]["nodes"], runs[way][0]["memory"]
    return row, runs["on"][0]["program"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("program", help="the program flashcliff, built with the feature cuda")
    parser.add_argument("--commit", required=True, help="the commit that it was built from")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    given = parser.parse_args()
    # The program runs on the first GPU.
    query = ["nvidia-smi", "--id=0", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    gpu = subprocess.run(query, check=True, capture_output=True, text=True).stdout.strip()
    report = {"gpu": gpu, "commit": given.commit, "rounds": given.rounds, "rows": []}
    with tempfile.TemporaryDirectory() as folder:
        # Fills the cache of compiled kernels.
        for case in CASES:
            run(given.program, (*case[:3], 8, case[4]), "on", pathlib.Path(folder) / "first")
        for case in CASES:
            row, report["program"] = measure(given.program, case, given.rounds, pathlib.Path(folder))
            report["rows"].append(row)
            write(given.out, report)


if __name__ == "__main__":
    main()
