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

    flashcliff data gravity gravity.safetensors
    python3 benches/peers/transformers_precision.py gravity gravity.safetensors --commit HASH --out gravity.json
    flashcliff data jets jets.safetensors
    python3 benches/peers/transformers_precision.py jets jets.safetensors --commit HASH --out jets.json
"""

import argparse
import contextlib
import time

import flashcliff
import torch
from flashcliff.nn import transformer as gt
from safetensors.torch import load_file

from precision_gravity import Gravity
from precision_jets import Jets
from results import command, write

TASKS = {task.name: task for task in (Gravity, Jets)}
PRECISIONS = ("highest", "tf32", "bf16-attention", "f16-attention", "bf16-autocast")
FEATURES = {"bf16-attention": torch.bfloat16, "f16-attention": torch.float16}
WARM = 3


def casting(precision):
    """The context of calls of a network."""
    if precision.endswith("autocast"):
        return torch.autocast("cuda", torch.bfloat16, cache_enabled=False)
    return contextlib.nullcontext()


class Run:
    """The training of one seed, whose step is a CUDA graph on its own stream.

    Graphs that were recorded on one stream share the workspace of cuBLAS, so they may not run side by side.
    """

    def __init__(self, task, precision, seed, steps):
        torch.manual_seed(seed)
        self.task, self.precision, self.seed = task, precision, seed
        self.net = task.network().cuda()
        gt.attention_dtype(self.net, FEATURES.get(precision))
        self.batches = {
            name: batch.cuda() for name, batch in task.batches(steps).items()
        }
        self.rates = task.rates(steps).cuda()
        self.at = torch.zeros(1, dtype=torch.int64, device="cuda")
        self.rate = torch.zeros((), device="cuda")
        self.optimizer = torch.optim.Adam(
            self.net.parameters(), self.rate, capturable=True
        )
        self.stream = torch.cuda.Stream()
        self.graph = torch.cuda.CUDAGraph()
        torch.cuda.synchronize()
        with torch.cuda.stream(self.stream):
            for _ in range(WARM):
                self.step()
        torch.cuda.synchronize()
        with torch.cuda.graph(self.graph, stream=self.stream):
            self.step()

    def step(self):
        self.rate.copy_(self.rates[self.at][0])
        batch = {name: batch[self.at][0] for name, batch in self.batches.items()}
        self.optimizer.zero_grad(set_to_none=True)
        with casting(self.precision):
            loss = self.task.loss(self.net, batch)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.net.parameters(), self.task.clip)
        self.optimizer.step()
        self.at += 1

    def replay(self):
        with torch.cuda.stream(self.stream):
            self.graph.replay()

    def result(self, seconds):
        with torch.no_grad(), casting(self.precision):
            errors = self.task.errors(self.net)
        return {"seed": self.seed, "seconds": seconds, **errors}


def trained(task, precision, seeds, steps):
    """The errors of seeds that are trained side by side, and the seconds of each."""
    torch.set_float32_matmul_precision("highest" if precision == "highest" else "high")
    torch.cuda.synchronize()
    begun = time.perf_counter()
    runs = [Run(task, precision, seed, steps) for seed in seeds]
    for _ in range(WARM, steps):
        for run in runs:
            run.replay()
    torch.cuda.synchronize()
    seconds = (time.perf_counter() - begun) / len(runs)
    return [run.result(seconds) for run in runs]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("task", choices=TASKS)
    parser.add_argument("data", help="a file of `flashcliff data`")
    parser.add_argument(
        "--commit", metavar="HASH", help="the commit of flashcliff, to be noted"
    )
    parser.add_argument("--out", metavar="FILE", default="transformers-precision.json")
    parser.add_argument(
        "--precision", default=",".join(PRECISIONS), help="with commas between them"
    )
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--together", type=int, default=1, metavar="N")
    parser.add_argument("--steps", type=int)
    arguments = parser.parse_args()
    data = {name: tensor.cuda() for name, tensor in load_file(arguments.data).items()}
    task = TASKS[arguments.task](data)
    steps = arguments.steps or task.steps
    results = {
        "command": command(),
        "commit": arguments.commit,
        "torch": torch.__version__,
        "flashcliff": flashcliff.build_info(),
        "device": torch.cuda.get_device_name(),
        "cuda": torch.version.cuda,
        "task": task.name,
        "steps": steps,
        "together": arguments.together,
        "precisions": {},
    }
    if hasattr(task, "bound"):
        results["bound"] = task.bound()
    seeds = torch.arange(arguments.seeds).split(arguments.together)
    for precision in arguments.precision.split(","):
        for group in seeds:
            found = trained(task, precision, group.tolist(), steps)
            results["precisions"].setdefault(precision, []).extend(found)
            for result in found:
                print(precision, result, flush=True)
            write(arguments.out, results)


if __name__ == "__main__":
    main()
