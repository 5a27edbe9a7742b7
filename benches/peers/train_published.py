#!/usr/bin/env python3
"""`flashcliff train` of gravity or nbody at its published budget, over seeds of weights and batches with the same data.

Errors are those of the last weights, on the test set. They and the seconds of training replace the row of the task in a file of results,
by default benches/results/accuracy.json, of which `cargo xtask figures` makes the table. A run that stops early or that is of another
budget is an error.

    python3 benches/peers/train_published.py PROGRAM gravity --device cuda --commit HASH
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile

# The rows of results, and the seeds of the data: those of nbody are the published ones.
ROWS = {"gravity": "gravity 1000/5001/64", "nbody": "nbody 3000/131072/100"}
DATA_SEEDS = {"gravity": 0, "nbody": 43}
RESULTS = pathlib.Path(__file__).parents[1] / "results" / "accuracy.json"


def command(task, device, data_seed, seed):
    words = ["train", task, "--device", device]
    if device.startswith("cuda"):
        words += ["--capture", "on"]
    return [*words, "--data-seed", str(data_seed), "--seed", str(seed)]


def run(program, task, words, out):
    subprocess.run([program, *words, "--quiet", "--overwrite", "--out", str(out)], check=True, stdout=subprocess.DEVNULL)
    metrics = json.loads((out / "metrics.json").read_text(encoding="utf-8"))
    settings = metrics["settings"]
    budget = "/".join(str(settings[name]) for name in ("samples", "steps", "batch"))
    if f"{task} {budget}" != ROWS[task] or len(metrics["train_losses"]) != settings["steps"]:
        sys.exit(f"expected {ROWS[task]}, all of it, got {budget} and {len(metrics['train_losses'])} losses")
    if not metrics["published"]:
        sys.exit(f"{ROWS[task]}: the program knows no published error of this budget")
    return metrics


def gpu(device):
    if not device.startswith("cuda"):
        return None
    index = device.partition(":")[2] or "0"
    query = ["nvidia-smi", f"--id={index}", "--query-gpu=name", "--format=csv,noheader"]
    return subprocess.run(query, check=True, capture_output=True, text=True).stdout.strip()


def row(runs, given):
    """The row of all runs, with the names that the other rows of the file have."""
    last = runs[-1]
    errors = {name: [found["errors_in_target_units"][name] for found in runs] for name in ("validation", "test", "best_test")}
    made = {
        "command": " ".join(["flashcliff", *command(given.task, given.device, given.data_seed, "SEED")]),
        "gpu": gpu(given.device),
        "commits": [given.commit] * len(runs),
        "seeds": given.seeds,
        "data_seed": given.data_seed,
        "validation": errors["validation"],
        "validation_mean": statistics.fmean(errors["validation"]),
        "test": errors["test"],
        "test_mean": statistics.fmean(errors["test"]),
        "best_test": errors["best_test"],
        "training_seconds": [found["seconds"]["training"] for found in runs],
        "published": last["published"],
        "program": last["program"],
    }
    return {name: value for name, value in made.items() if value is not None}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("program", help="the program flashcliff; for a GPU built with the feature cuda")
    parser.add_argument("task", choices=sorted(ROWS))
    parser.add_argument("--commit", required=True, help="the commit that it was built from")
    parser.add_argument("--device", default="cpu", help="cpu, cuda or cuda:N")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4], metavar="SEED")
    parser.add_argument("--data-seed", type=int, help="default: 0, or that of the published files")
    parser.add_argument("--results", type=pathlib.Path, default=RESULTS, help="the file whose row is replaced")
    given = parser.parse_args()
    if given.data_seed is None:
        given.data_seed = DATA_SEEDS[given.task]
    results = json.loads(given.results.read_text(encoding="utf-8"))
    name = ROWS[given.task]
    runs = []
    with tempfile.TemporaryDirectory() as folder:
        for seed in given.seeds:
            words = command(given.task, given.device, given.data_seed, seed)
            runs.append(run(given.program, given.task, words, pathlib.Path(folder) / "run"))
            test, seconds = runs[-1]["errors_in_target_units"]["test"], runs[-1]["seconds"]["training"]
            print(f"seed {seed}: test {test:.3g} after the last step, {seconds:.1f} s of training", flush=True)
    results[name] = row(runs, given)
    given.results.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    print(f"mean: test {results[name]['test_mean']:.3g}, {statistics.fmean(results[name]['training_seconds']):.1f} s of training")


if __name__ == "__main__":
    main()
