#!/usr/bin/env python3
"""CGENN's own models, trained on the CPU at the small budgets that GLGENN's authors report (arXiv 2506.09625), over several seeds.

    git clone https://github.com/DavidRuhe/clifford-group-equivariant-neural-networks cgenn
    OMP_NUM_THREADS=1 python3 benches/peers/cgenn_cpu.py cgenn --out benches/results/cgenn-cpu.json

Models, losses and the data of regression come from the clone. The data of hulls are drawn as in its `data/hulls.py`: 16 normal points in
five dimensions and the volume of their hull by scipy, in float32. The network after CGENN's layer of regression has the width 380, which
GLGENN's file states; CGENN's own has 580. The optimiser is Adam with the learning rate 1e-3, without a schedule, as in CGENN's commands.
Everything is float32.

Errors are mean squared errors of the last weights. Errors of hulls are in the units of the volume squared, errors of regression in the
units of the standardised target. `validation_100` is the error on the first 100 validation samples, the default number of GLGENN's data
file. `last_batch` is the error on the last training batch after the last step, which `ExtendedTrainer.test_loop` in GLGENN's repository
stores as the validation loss.

A seed sets the data, the weights and the order of the batches. Each seed is written when it is done. Seeds in the file are not run again.
`seeds_not_run` are the seeds of a budget that were left out for lack of time.
"""

import argparse
import importlib
import json
import os
import pathlib
import platform
import shlex
import statistics
import subprocess
import sys
import time
import types

import numpy
import scipy
import torch
from scipy.spatial import ConvexHull
from results import write

POINTS, DIM = 16, 5
WIDTH = 380  # of the network after the layer of regression
HELD_OUT = 4096  # validation and test samples of hulls; regression has CGENN's own 16,384
RATE = 1e-3
# Budgets: the task, training samples, steps and batch.
BUDGETS = {
    "regression 3000/300/15": ("regression", 3000, 300, 15),
    "regression 300/1000/15": ("regression", 300, 1000, 15),
    "hulls 1024/1024/128": ("hulls", 1024, 1024, 128),
    "hulls 256/512/128": ("hulls", 256, 512, 128),
    "regression 30/1000/15": ("regression", 30, 1000, 15),
    "regression 30000/3000/15": ("regression", 30000, 3000, 15),
}
SEEDS = {"hulls": range(5), "regression": range(10)}
PER_SEED = ("validation", "test", "validation_100", "last_batch", "training_seconds")


def import_cgenn(clone):
    """Makes the modules of the clone importable, without what its training loop imports."""
    sys.path.insert(0, str(clone))
    for name in ("engineer", "engineer.metrics", "engineer.metrics.metrics"):
        sys.modules[name] = types.ModuleType(name)
    sys.modules["engineer.metrics.metrics"].Loss = torch.nn.Identity
    sys.modules["engineer.metrics.metrics"].MetricCollection = torch.nn.ModuleDict


def hulls(count):
    points, volumes = [], []
    for _ in range(count):
        own = numpy.random.randn(POINTS, DIM)
        points.append(own)
        volumes.append(ConvexHull(own).volume)
    stacked = (numpy.stack(all_of).astype(numpy.float32) for all_of in (points, volumes))
    return torch.utils.data.TensorDataset(*map(torch.from_numpy, stacked))


def hulls_task(samples):
    """The model, its training, validation and test sets, and the square of the unit of its loss."""
    sets = [hulls(count) for count in (samples, HELD_OUT, HELD_OUT)]
    model = importlib.import_module("models.hulls_cgmlp").ConvexHullCGMLP()
    return model, sets, 1.0


def regression_task(samples):
    data = importlib.import_module("data.o5_regression").O5Dataset(num_samples=samples)
    model = importlib.import_module("models.o5_cgmlp").O5CGMLP(data.ymean, data.ystd)
    layers = (
        torch.nn.Linear(8, WIDTH),
        torch.nn.ReLU(),
        torch.nn.Linear(WIDTH, WIDTH),
        torch.nn.ReLU(),
        torch.nn.Linear(WIDTH, 1),
    )
    model.mlp = torch.nn.Sequential(*layers)
    # The loss of the model is in the units of the target.
    return model, [data.train_dataset, data.val_dataset, data.test_dataset], data.ystd**2


TASKS = {"hulls": hulls_task, "regression": regression_task}


def losses(model, samples):
    """The loss of each sample of a set."""
    loader = torch.utils.data.DataLoader(samples, batch_size=128)
    with torch.no_grad():
        return torch.cat([model(batch, 0)[1]["loss"].flatten() for batch in loader]).double()


def train(task, samples, steps, batch, seed):
    """The errors of one seed after the last step, and the number of parameters."""
    numpy.random.seed(seed)
    torch.manual_seed(seed)
    model, (training, validation, test), unit = TASKS[task](samples)
    adam = torch.optim.Adam(model.parameters(), lr=RATE)
    loader = torch.utils.data.DataLoader(training, batch_size=batch, shuffle=True, drop_last=True)
    start, done = time.perf_counter(), 0
    while done < steps:
        for own in loader:
            loss, _ = model(own, done)
            adam.zero_grad(set_to_none=True)
            loss.backward()
            adam.step()
            done += 1
            if done == steps:
                break
    seconds = time.perf_counter() - start
    with torch.no_grad():
        last = model(own, steps)[0].item()
    on_validation = losses(model, validation)
    found = {
        "validation": on_validation.mean().item() / unit,
        "test": losses(model, test).mean().item() / unit,
        "validation_100": on_validation[:100].mean().item() / unit,
        "last_batch": last / unit,
        "training_seconds": seconds,
    }
    sizes = {"validation_samples": len(validation), "test_samples": len(test)}
    return found, sum(own.numel() for own in model.parameters() if own.requires_grad), sizes


def cpu():
    """The name of the processor, where the system tells."""
    try:
        lines = pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def command(given):
    """The command line, without the folders of this machine."""
    words = ["benches/peers/cgenn_cpu.py", "CLONE", "--out", given.out.name]
    if given.budgets != list(BUDGETS):
        words += ["--budgets", *given.budgets]
    if given.seeds:
        words += ["--seeds", *map(str, given.seeds)]
    return shlex.join(words)


def head(clone):
    """The repository, the optimiser, the machine and the versions of all rows."""
    words = ["git", "-C", str(clone), "rev-parse", "HEAD"]
    return {
        "commands": [],
        "repository": "DavidRuhe/clifford-group-equivariant-neural-networks",
        "commit": subprocess.run(words, check=True, capture_output=True, text=True).stdout.strip(),
        "optimiser": f"Adam, learning rate {RATE}, no schedule",
        "type": "float32",
        "cpu": cpu(),
        "threads": torch.get_num_threads(),
        "versions": {
            "python": platform.python_version(),
            "torch": torch.__version__,
            "numpy": numpy.__version__,
            "scipy": scipy.__version__,
        },
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("clone", type=pathlib.Path, help="a clone of CGENN's repository")
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument(
        "--budgets",
        nargs="+",
        choices=BUDGETS,
        default=list(BUDGETS),
        metavar="BUDGET",
        help=f"of: {', '.join(BUDGETS)}",
    )
    parser.add_argument(
        "--seeds", type=int, nargs="+", help="default: 0 to 4 for hulls, 0 to 9 for regression"
    )
    given = parser.parse_args()
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    import_cgenn(given.clone)
    results = head(given.clone) | {"budgets": {}}
    if given.out.exists():
        old = json.loads(given.out.read_text(encoding="utf-8"))
        if {"commit": old["commit"], "versions": old["versions"]} != {
            "commit": results["commit"],
            "versions": results["versions"],
        }:
            sys.exit(f"{given.out} is of another commit or other versions; remove it first")
        results.update(budgets=old["budgets"], commands=old["commands"])
    if command(given) not in results["commands"]:
        results["commands"].append(command(given))
    for name in given.budgets:
        task, samples, steps, batch = BUDGETS[name]
        units = "target" if task == "hulls" else "standardised"
        row = results["budgets"].setdefault(name, {"method": "CGENN", "units": units, "seeds": []})
        for seed in given.seeds or SEEDS[task]:
            if seed in row["seeds"]:
                continue
            found, row["parameters"], sizes = train(task, samples, steps, batch, seed)
            row.update(sizes)
            row["seeds"].append(seed)
            row["seeds_not_run"] = [own for own in SEEDS[task] if own not in row["seeds"]]
            for key in PER_SEED:
                row.setdefault(key, []).append(found[key])
            for key in ("validation", "test"):
                row[f"{key}_mean"] = statistics.fmean(row[key])
            write(given.out, results)
            print(
                f"{name}, seed {seed}: " + ", ".join(f"{key} {found[key]:.4g}" for key in PER_SEED),
                flush=True,
            )


if __name__ == "__main__":
    main()
