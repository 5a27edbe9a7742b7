#!/usr/bin/env python3
"""Transformers trained by several precisions on a GPU: the accuracy that lower precision costs.

| task    | network, data, budget                                                                                |
|---------|------------------------------------------------------------------------------------------------------|
| gravity | GATr with 10 blocks, 16 multivector and 128 scalar channels, 8 heads and multi-query attention, as in
|         | `flashcliff train gravity`: 1000 samples, 5000 steps of 64, Adam at 3e-4 that falls to a hundredth, gradients
|         | clipped to a norm of 10. Errors are mean squared errors of positions.                                  |
| jets    | L-GATr with 4 blocks, 8 multivector and 32 scalar channels, 8 heads, ragged batches: 2000 steps of 256 jets, Adam
|         | at 1e-3 that falls by half a cosine, gradients clipped to a norm of 1. Errors are shares of jets on the wrong side.
|         | `bound` is the error of who knows the frame of each jet; no classifier is better.                      |

Each step is a CUDA graph. Errors are measured with the last weights, evaluated in the precision of the training. The seeds of a
precision are trained side by side, `--together` at once; seconds are the wall time of each group over its seeds.

| precision      | what                                                                          |
|----------------|-------------------------------------------------------------------------------|
| highest        | float32                                                                       |
| tf32           | float32, matrix products round their factors to TF32                          |
| bf16-attention | tf32, with features of attention in bfloat16                                  |
| f16-attention  | tf32, with features of attention in float16                                   |
| bf16-autocast  | `torch.autocast` to bfloat16: tf32, with tokens between steps in bfloat16     |
| tf32-centred   | gravity alone: tf32, positions from the mean of the positions of each sample  |
| bf16-rounded   | highest, with all tokens between layers, also sums, rounded to bfloat16       |
| bf16-null      | jets alone: the same, tokens rounded in a null basis (`precision_basis.py`)   |
| bf16-centred   | gravity alone: bf16-rounded in the frame of tf32-centred                      |

Networks that tf32 trained are evaluated with tokens of few bits, too (`precision_inference.py`), and invariants of jets are computed of
momenta of few bits (`precision_momenta.py`): `inference` and `momenta` of the results.

    flashcliff data gravity gravity.safetensors
    python3 benches/peers/transformers_precision.py gravity gravity.safetensors --commit HASH --out gravity.json
    flashcliff data jets jets.safetensors
    python3 benches/peers/transformers_precision.py jets jets.safetensors --commit HASH --out jets.json

A check of the script without a GPU takes some minutes:

    flashcliff data jets few.safetensors --samples 256 --val-samples 32 --test-samples 32
    python3 benches/peers/transformers_precision.py jets few.safetensors --device cpu --steps 2 --seeds 1 --precision tf32,bf16-null
"""

import argparse
import contextlib
import time
from dataclasses import dataclass

import flashcliff
import torch
from flashcliff.nn import transformer as gt
from safetensors.torch import load_file

import precision_inference
import precision_momenta
from precision_basis import Storage, store_tokens
from precision_gravity import Gravity
from precision_jets import Jets
from results import command, write

TASKS = {task.name: task for task in (Gravity, Jets)}
WARM = 3


@dataclass(frozen=True)
class Precision:
    """How a network computes."""

    matmul: str = "high"
    attention: torch.dtype | None = None
    """The type of features of attention."""
    autocast: torch.dtype | None = None
    tokens: torch.dtype | None = None
    """The type that tokens are rounded to."""
    frame: str = ""
    """The name of a frame of the task."""

    def casting(self, device):
        """The context of calls of a network."""
        if self.autocast is None:
            return contextlib.nullcontext()
        return torch.autocast(device, self.autocast, cache_enabled=False)

    def prepare(self, net, null):
        """Sets the types of a network; `null`: whether tokens are rounded in the null basis."""
        gt.attention_dtype(net, self.attention)
        if self.tokens is not None:
            store_tokens(net, Storage(net.geometry.algebra, self.tokens, null))


PRECISIONS = {
    "highest": Precision(matmul="highest"),
    "tf32": Precision(),
    "bf16-attention": Precision(attention=torch.bfloat16),
    "f16-attention": Precision(attention=torch.float16),
    "bf16-autocast": Precision(autocast=torch.bfloat16),
}
DEFAULT = ",".join(PRECISIONS)
PRECISIONS["tf32-centred"] = Precision(frame="centred")
for _name, _frame in (("rounded", ""), ("null", "null"), ("centred", "centred")):
    # Matrix products have all bits, so that nothing but tokens is rounded.
    PRECISIONS[f"bf16-{_name}"] = Precision("highest", tokens=torch.bfloat16, frame=_frame)
# The precision whose networks are evaluated with tokens of few bits.
STUDIED = "tf32"


class Run:
    """The training of one seed, whose step is a CUDA graph on its own stream, or is called on a CPU.

    Graphs that were recorded on one stream share the workspace of cuBLAS, so they may not run side by side.
    """

    def __init__(self, task, precision, seed, steps, device):
        torch.manual_seed(seed)
        self.task, null = task.frames()[precision.frame]
        self.precision, self.seed, self.device = precision, seed, device
        self.net = task.network().to(device)
        precision.prepare(self.net, null)
        self.batches = {
            name: batch.to(device) for name, batch in task.batches(steps).items()
        }
        self.rates = task.rates(steps).to(device)
        self.at = torch.zeros(1, dtype=torch.int64, device=device)
        self.rate = torch.zeros((), device=device)
        self.optimizer = torch.optim.Adam(
            self.net.parameters(), self.rate, capturable=device == "cuda"
        )
        self.replay = self.step if device == "cpu" else self.recorded()

    def recorded(self):
        """A function that runs a step by its graph, after the first `WARM` steps; the CPU has run none."""
        stream, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
        torch.cuda.synchronize()
        with torch.cuda.stream(stream):
            for _ in range(WARM):
                self.step()
        torch.cuda.synchronize()
        with torch.cuda.graph(graph, stream=stream):
            self.step()

        def replay():
            with torch.cuda.stream(stream):
                graph.replay()

        return replay

    def step(self):
        self.rate.copy_(self.rates[self.at][0])
        batch = {name: batch[self.at][0] for name, batch in self.batches.items()}
        self.optimizer.zero_grad(set_to_none=True)
        with self.precision.casting(self.device):
            loss = self.task.loss(self.net, batch)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.net.parameters(), self.task.clip)
        self.optimizer.step()
        self.at += 1

    def result(self, seconds):
        with torch.no_grad(), self.precision.casting(self.device):
            errors = {
                split: self.task.error(split, self.task.predictions(self.net, split))
                for split in ("val", "test")
            }
        return {"seed": self.seed, "seconds": seconds, **errors}


def trained(task, precision, seeds, steps, device):
    """Runs of seeds that were trained side by side, and their results with the seconds of each."""
    torch.set_float32_matmul_precision(precision.matmul)
    wait = torch.cuda.synchronize if device == "cuda" else lambda: None
    wait()
    begun = time.perf_counter()
    runs = [Run(task, precision, seed, steps, device) for seed in seeds]
    for _ in range(WARM if device == "cuda" else 0, steps):
        for run in runs:
            run.replay()
    wait()
    seconds = (time.perf_counter() - begun) / len(runs)
    return runs, [run.result(seconds) for run in runs]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("task", choices=TASKS)
    parser.add_argument("data", help="a file of `flashcliff data`")
    parser.add_argument(
        "--commit", metavar="HASH", help="the commit of flashcliff, to be noted"
    )
    parser.add_argument("--out", metavar="FILE", default="transformers-precision.json")
    parser.add_argument(
        "--precision", default=DEFAULT, help="with commas between them"
    )
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--together", type=int, default=1, metavar="N")
    parser.add_argument("--steps", type=int)
    arguments = parser.parse_args()
    device = arguments.device
    data = {name: tensor.to(device) for name, tensor in load_file(arguments.data).items()}
    task = TASKS[arguments.task](data)
    names = arguments.precision.split(",")
    for name in names:
        if name not in PRECISIONS or PRECISIONS[name].frame not in task.frames():
            frames = task.frames()
            there = ", ".join(one for one, what in PRECISIONS.items() if what.frame in frames)
            parser.error(f"--precision: expected some of {there} for {task.name}, got {name}")
    steps = arguments.steps or task.steps
    results = {
        "command": command(),
        "commit": arguments.commit,
        "torch": torch.__version__,
        "flashcliff": flashcliff.build_info(),
        "device": torch.cuda.get_device_name() if device == "cuda" else device,
        "cuda": torch.version.cuda,
        "task": task.name,
        "steps": steps,
        "together": arguments.together,
        "precisions": {},
    }
    if isinstance(task, Jets):
        results["bound"] = task.bound()
        results["momenta"] = precision_momenta.lost(
            task.algebra, precision_inference.TYPES, device
        )
    seeds = torch.arange(arguments.seeds).split(arguments.together)
    for name in names:
        for group in seeds:
            runs, found = trained(task, PRECISIONS[name], group.tolist(), steps, device)
            results["precisions"].setdefault(name, []).extend(found)
            for result in found:
                print(name, result, flush=True)
            if name == STUDIED:
                for run in runs:
                    study(results, run)
            write(arguments.out, results)


def study(results, run):
    """Adds what a trained network loses by tokens of few bits."""
    tables = results.setdefault("inference", {})
    for tokens, found in precision_inference.stored(run.task, run.net).items():
        tables.setdefault(tokens, []).append({"seed": run.seed, **found})
        print("inference", tokens, found, flush=True)


if __name__ == "__main__":
    main()
