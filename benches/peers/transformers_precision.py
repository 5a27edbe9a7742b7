#!/usr/bin/env python3
"""The gravity task of GATr, trained by several precisions on a GPU: the accuracy that lower precision costs.

The data come from a file of `flashcliff data gravity`. The network, the loss, the optimiser and the budget are those of
`flashcliff train gravity`: GATr with 10 blocks, 16 multivector and 128 scalar channels, 8 heads and multi-query
attention; 1000 samples, 5000 steps of 64, Adam at 3e-4 that falls to a hundredth, gradients clipped to a norm of 10.
Each step is a CUDA graph. Errors are mean squared errors of positions on the validation and test splits, of the last
weights, evaluated in the precision of the training. Seconds are those of a whole training, wall time.

| precision      | what                                                                          |
|----------------|-------------------------------------------------------------------------------|
| highest        | float32                                                                       |
| tf32           | float32, matrix products round their factors to TF32                          |
| bf16-attention | tf32, with features of attention in bfloat16                                  |
| f16-attention  | tf32, with features of attention in float16                                   |
| bf16-autocast  | `torch.autocast` to bfloat16; parameters are float32                          |

    flashcliff data gravity gravity.safetensors
    python3 benches/peers/transformers_precision.py gravity.safetensors --commit HASH --out precision.json
"""

import argparse
import contextlib
import time

import flashcliff
import torch
from flashcliff.nn import transformer as gt
from safetensors.torch import load_file

from sweep_results import command, write

PRECISIONS = ("highest", "tf32", "bf16-attention", "f16-attention", "bf16-autocast")
FEATURES = {"bf16-attention": torch.bfloat16, "f16-attention": torch.float16}
BATCH, STEPS, DECAYS = 64, 5000, 5
RATE, LAST, CLIP, REGULARISER = 3e-4, 0.01, 10.0, 0.01
# Blades: a point is e123 - z e012 + y e013 - x e023 with the weight at e123, a translation 1 - e0 v / 2.
POINT, WEIGHT, TRANSLATION = 11, 14, 5
LEAST_WEIGHT = 1e-3


def network():
    """The published network."""
    attention = {"heads": 8, "ratio": 2, "multi_query": True}
    algebra = flashcliff.Algebra(3, 0, 1)
    return gt.GATransformer(
        algebra, 1, 1, 16, 1, 1, 128, blocks=10, attention=attention
    )


def embedded(bodies):
    """Multivectors `[16, samples, bodies, 1]` of masses, positions and velocities `[samples, bodies, 7]`."""
    mass, x, y, z, *velocity = bodies.unbind(-1)
    blades = [torch.zeros_like(mass)] * 16
    blades[0] = mass + 1
    blades[POINT : POINT + 3] = -z, y, -x
    blades[WEIGHT] = torch.ones_like(mass)
    blades[TRANSLATION : TRANSLATION + 3] = (-v / 2 for v in velocity)
    return torch.stack(blades).unsqueeze(-1)


def read(net, bodies):
    """Positions `[samples, bodies * 3]`, and the regulariser of the output."""
    mv, s = net(embedded(bodies), bodies.new_zeros(*bodies.shape[:-1], 1))
    mv, s = mv.float()[..., 0], s.float()
    weight = mv[WEIGHT]
    positions = torch.stack((-mv[POINT + 2], mv[POINT + 1], -mv[POINT]), -1)
    below = torch.where(weight.abs() > LEAST_WEIGHT, weight, LEAST_WEIGHT)
    positions = positions / below.unsqueeze(-1)
    rest = mv[:POINT].square().sum() + mv[WEIGHT + 1].square().sum() + s.square().sum()
    regulariser = (rest + (weight.abs() - 1).square().sum()) / len(bodies)
    return positions.flatten(1), regulariser


def casting(precision):
    """The context of calls of a network."""
    if precision.endswith("autocast"):
        return torch.autocast("cuda", torch.bfloat16, cache_enabled=False)
    return contextlib.nullcontext()


class Run:
    """The training of one seed, whose step is a CUDA graph."""

    def __init__(self, precision, seed, inputs, targets, steps):
        torch.manual_seed(seed)
        self.precision, self.net = precision, network().cuda()
        gt.attention_dtype(self.net, FEATURES.get(precision))
        epochs = -(-steps * BATCH // len(inputs))
        order = torch.cat([torch.randperm(len(inputs)) for _ in range(epochs)])
        self.order = order[: steps * BATCH].view(steps, BATCH).cuda()
        falls = torch.arange(steps) * DECAYS // steps
        self.rates = (RATE * LAST ** (falls / DECAYS)).cuda()
        self.at = torch.zeros(1, dtype=torch.int64, device="cuda")
        self.rate = torch.tensor(RATE, device="cuda")
        self.optimizer = torch.optim.Adam(
            self.net.parameters(), self.rate, capturable=True
        )
        self.inputs, self.targets = inputs, targets
        self.graph = None

    def step(self):
        self.rate.copy_(self.rates[self.at][0])
        samples = self.order[self.at][0]
        self.optimizer.zero_grad(set_to_none=True)
        with casting(self.precision):
            positions, regulariser = read(self.net, self.inputs[samples])
        error = (positions - self.targets[samples]).square().mean()
        (error + REGULARISER * regulariser).backward()
        torch.nn.utils.clip_grad_norm_(self.net.parameters(), CLIP)
        self.optimizer.step()
        self.at += 1

    def capture(self):
        """Records a step, after a few that run; returns how many."""
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                self.step()
        torch.cuda.current_stream().wait_stream(side)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self.step()
        return 3

    def error(self, inputs, targets):
        """The mean squared error."""
        total = 0.0
        with torch.no_grad(), casting(self.precision):
            for x, y in zip(inputs.split(500), targets.split(500), strict=True):
                total += (
                    (read(self.net, x)[0].double() - y.double()).square().sum().item()
                )
        return total / targets.numel()


def trained(precision, seed, data, steps):
    """The errors of a seed, and the seconds of its training."""
    torch.set_float32_matmul_precision("highest" if precision == "highest" else "high")
    torch.cuda.synchronize()
    begun = time.perf_counter()
    run = Run(precision, seed, data["train.inputs"], data["train.targets"], steps)
    for _ in range(run.capture(), steps):
        run.graph.replay()
    torch.cuda.synchronize()
    seconds = time.perf_counter() - begun
    errors = {
        split: run.error(data[f"{split}.inputs"], data[f"{split}.targets"])
        for split in ("val", "test")
    }
    return {"seed": seed, "seconds": seconds, **errors}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("data", help="a file of `flashcliff data gravity`")
    parser.add_argument(
        "--commit", metavar="HASH", help="the commit of flashcliff, to be noted"
    )
    parser.add_argument("--out", metavar="FILE", default="transformers-precision.json")
    parser.add_argument(
        "--precision", default=",".join(PRECISIONS), help="with commas between them"
    )
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=STEPS)
    arguments = parser.parse_args()
    data = {name: tensor.cuda() for name, tensor in load_file(arguments.data).items()}
    results = {
        "command": command(),
        "commit": arguments.commit,
        "torch": torch.__version__,
        "flashcliff": flashcliff.build_info(),
        "device": torch.cuda.get_device_name(),
        "cuda": torch.version.cuda,
        "samples": len(data["train.inputs"]),
        "steps": arguments.steps,
        "precisions": {},
    }
    for precision in arguments.precision.split(","):
        for seed in range(arguments.seeds):
            found = trained(precision, seed, data, arguments.steps)
            results["precisions"].setdefault(precision, []).append(found)
            print(precision, found, flush=True)
            write(arguments.out, results)


if __name__ == "__main__":
    main()
