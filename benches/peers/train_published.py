#!/usr/bin/env python3
"""`flashcliff train` at a published budget, over seeds of weights and batches, and of data too where its seed is not given.

Errors are measured with the last weights on the test set. They and the seconds of training replace the row of the task in a results file,
by default benches/results/accuracy.json, from which `cargo xtask figures` makes the table. A run that stops early or that is of another
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

from results import write

# For each run its task, the row of results, and its options. The seed of the data of nbody is the published one.
LARGE = ["--val-samples", "16384", "--test-samples", "16384"]
RUNS = {
    "csmpn-hulls": ("csmpn-hulls", "csmpn-hulls 16384/131072/16", ["--precision", "tf32", "--val-samples", "4096"]),
    "gravity": ("gravity", "gravity 1000/5001/64", ["--data-seed", "0"]),
    "nbody": ("nbody", "nbody 3000/131072/100", ["--data-seed", "43"]),
    "nbody5d-30": ("nbody5d", "nbody5d 30/2048/128", ["--samples", "30", "--steps", "2048", "--data-seed", "43"]),
    "nbody5d-300": ("nbody5d", "nbody5d 300/4096/128", ["--samples", "300", "--data-seed", "43"]),
    "nbody5d-3000": ("nbody5d", "nbody5d 3000/4096/128", ["--data-seed", "43"]),
    "hulls-affine": ("hulls", "hulls 1024/1024/128, affine", ["--model", "affine", *LARGE]),
    "invariants-300": ("regression", "regression 300/1000/15, invariants", ["--model", "invariants", *LARGE]),
    "invariants-3000": (
        "regression",
        "regression 3000/300/15, invariants",
        ["--model", "invariants", "--samples", "3000", "--steps", "300", *LARGE],
    ),
}
# The steps from which on a row has its validation errors by steps.
LONG = 100_000
RESULTS = pathlib.Path(__file__).parents[1] / "results" / "accuracy.json"


def command(given, seed):
    task, _, options = RUNS[given.of]
    words = ["train", task]
    if given.device.startswith("cuda"):
        words += ["--device", given.device, "--capture", "on"]
    if given.gpus > 1:
        words += ["--gpus", str(given.gpus)]
    return [*words, *options, "--seed", str(seed)]


def run(program, words, out):
    subprocess.run([program, *words, "--quiet", "--overwrite", "--out", str(out)], check=True, stdout=subprocess.DEVNULL)


def finished(of, out):
    """The metrics of a run that ended, perhaps in pieces by --resume."""
    metrics = json.loads((out / "metrics.json").read_text(encoding="utf-8"))
    settings = metrics["settings"]
    task, row, _ = RUNS[of]
    budget = "/".join(str(settings[name]) for name in ("samples", "steps", "batch"))
    if f"{task} {budget}" != row.partition(",")[0] or len(metrics["train_losses"]) != settings["steps"]:
        sys.exit(f"expected {row}, all of it, got {budget} and {len(metrics['train_losses'])} losses")
    if not metrics["published"]:
        sys.exit(f"{row}: the program knows no published error of this budget")
    return metrics


def gpu(device):
    if not device.startswith("cuda"):
        return None
    index = device.partition(":")[2] or "0"
    query = ["nvidia-smi", f"--id={index}", "--query-gpu=name", "--format=csv,noheader"]
    return subprocess.run(query, check=True, capture_output=True, text=True).stdout.strip()


def curve(validations):
    """Validation errors by their steps, to three digits."""
    return [[step, float(f"{error:.3g}")] for step, error in validations]


def row(runs, given):
    """The row of all runs, with the names that the other rows of the file have."""
    last = runs[-1]
    # Published errors are in the units of the task: of the target, or of the standardised one.
    units = "errors" if RUNS[given.of][0] == "regression" else "errors_in_target_units"
    errors = {name: [found[units][name] for found in runs] for name in ("validation", "test", "best_test")}
    made = {
        "command": " ".join(["flashcliff", *command(given, "SEED")]),
        "gpu": given.gpu or gpu(given.device),
        "commits": [given.commit] * len(runs),
        "seeds": given.seeds,
        "parameters": last["parameters"],
        "validation": errors["validation"],
        "validation_mean": statistics.fmean(errors["validation"]),
        "test": errors["test"],
        "test_mean": statistics.fmean(errors["test"]),
        "best_test": errors["best_test"],
        # Runs on a CPU share it with other programs.
        "training_seconds": [found["seconds"]["training"] for found in runs] if given.device.startswith("cuda") else None,
        "curves": [curve(found["validations"]) for found in runs] if last["settings"]["steps"] >= LONG else None,
        "published": last["published"],
        "program": last["program"],
    }
    return {name: value for name, value in made.items() if value is not None}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("program", help="the program flashcliff; for a GPU built with the feature cuda")
    parser.add_argument("of", choices=sorted(RUNS), metavar="RUN", help=", ".join(sorted(RUNS)))
    parser.add_argument("--commit", required=True, help="the commit that it was built from")
    parser.add_argument("--device", default="cpu", help="cpu, cuda or cuda:N")
    parser.add_argument("--gpus", type=int, default=1, help="GPUs that share each batch")
    parser.add_argument("--finished", type=pathlib.Path, nargs="+", help="folders of runs that ended, one for each seed, in place of runs")
    parser.add_argument("--gpu", help="the name of the GPU of finished runs")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4], metavar="SEED")
    parser.add_argument("--results", type=pathlib.Path, default=RESULTS, help="the file whose row is replaced")
    given = parser.parse_args()
    results = json.loads(given.results.read_text(encoding="utf-8"))
    _, name, _ = RUNS[given.of]
    runs = []
    if given.finished and len(given.finished) != len(given.seeds):
        parser.error(f"--finished: expected a folder for each of {len(given.seeds)} seeds, got {len(given.finished)}")
    with tempfile.TemporaryDirectory() as folder:
        for at, seed in enumerate(given.seeds):
            out = given.finished[at] if given.finished else pathlib.Path(folder) / "run"
            if not given.finished:
                run(given.program, command(given, seed), out)
            runs.append(finished(given.of, out))
            if runs[-1]["settings"]["seed"] != seed:
                sys.exit(f"{out}: expected seed {seed}, got {runs[-1]['settings']['seed']}")
            test, seconds = runs[-1]["errors"]["test"], runs[-1]["seconds"]["training"]
            print(f"seed {seed}: test {test:.3g} after the last step, {seconds:.1f} s of training", flush=True)
    results[name] = row(runs, given)
    write(given.results, results)
    print(f"mean: test {results[name]['test_mean']:.3g}")


if __name__ == "__main__":
    main()
