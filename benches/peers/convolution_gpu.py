#!/usr/bin/env python3
"""Measures layers on grids beside cliffordlayers, with the same weights, and beside the real convolution alone.

    git clone https://github.com/microsoft/cliffordlayers CLONE
    python3 benches/peers/convolution_gpu.py CLONE [--samples 20] [--commit HASH] [--out FILE]

A step is a forward pass and the gradients of the input and of all parameters from a random one, in float32; cuDNN may round to TF32
for all. Times are times of the GPU, medians over samples, in milliseconds; memory is what a step takes beyond what was there before, in
MB. `floor` is the real convolution with a kernel that is there already, on tensors in its order. Before that, results and gradients
are compared in float64. With `--device cpu` small layers run with times of the wall clock.
"""

import argparse
import copy
import importlib
import statistics
import sys
import time
import types

import flashcliff
import torch
from flashcliff.nn import convolution as ours
from results import show

# The name, the layer and its arguments, and the shape of the input: sizes of cliffordlayers' models of fluids and of Maxwell's equations.
CASES = {
    "fluids, convolution": ("CliffordConv2d", ((1, 1), 64, 64, 3), {"padding": 1}, (8, 64, 128, 128, 4)),
    "fluids, rotations": ("CliffordConv2d", ((-1, -1), 64, 64, 3), {"padding": 1, "rotation": True}, (8, 64, 128, 128, 4)),
    "fluids, group norm": ("CliffordGroupNorm2d", ((1, 1), 1, 64), {}, (8, 64, 128, 128, 4)),
    "Maxwell, convolution": ("CliffordConv3d", ((1, 1, 1), 32, 32, 3), {"padding": 1}, (2, 32, 32, 32, 32, 8)),
    "Maxwell, batch norm": ("CliffordBatchNorm3d", ((1, 1, 1), 32), {}, (2, 32, 32, 32, 32, 8)),
}
MODULES = {"Conv": "cliffordconv", "Group": "groupnorm", "Batch": "batchnorm"}


def theirs(clone, name):
    """A class of cliffordlayers, without the package's own module, which asks for an installed version."""
    package = types.ModuleType("cliffordlayers")
    package.__path__ = [f"{clone}/cliffordlayers"]
    sys.modules.setdefault("cliffordlayers", package)
    (module,) = (module for part, module in MODULES.items() if part in name)
    return getattr(importlib.import_module(f"cliffordlayers.nn.modules.{module}"), name)


def stepper(layer, x):
    """A step of a layer on an input."""
    x = x.clone().requires_grad_()
    leaves = [x, *(p for p in layer.parameters() if p.requires_grad)]
    torch.manual_seed(1)
    # `randn_like` would follow the order of the result in memory.
    gradient = torch.randn(layer(x).shape, device=x.device, dtype=x.dtype)

    def step():
        out = layer(x)
        return out, torch.autograd.grad(out, leaves, gradient)

    return step


class Real(torch.nn.Module):
    """The real convolution of a layer, whose kernel is a parameter, on tensors with blades among their channels."""

    def __init__(self, layer):
        super().__init__()
        self.weight = torch.nn.Parameter(layer.kernel().detach())
        self.call = (torch.nn.functional.conv2d, torch.nn.functional.conv3d)[self.weight.dim() - 4]
        self.padding = layer.padding

    def forward(self, x):
        return self.call(x, self.weight, padding=self.padding)


def milliseconds(step, samples, device):
    """The time of a step, and the memory that it takes."""
    for _ in range(3):
        step()
    if device == "cpu":
        times = []
        for _ in range(samples):
            start = time.perf_counter()
            step()
            times.append(1e3 * (time.perf_counter() - start))
        return statistics.median(times), None
    from gpu_clock import medians

    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    step()
    torch.cuda.synchronize()
    memory = (torch.cuda.max_memory_allocated() - before) / 1e6
    return medians(step, samples), memory


def difference(one, other):
    """The largest difference of results and gradients, over the largest number of each."""
    (a, of_a), (b, of_b) = one(), other()
    pairs = zip((a, *of_a), (b, *of_b), strict=True)
    return max(((a - b).abs().max() / b.abs().max().clamp_min(1e-30)).item() for a, b in pairs)


def measured(case, given):
    name, arguments, options, shape = case
    torch.manual_seed(0)
    if given.device == "cpu":
        shape = (2, shape[1], *(6 for _ in shape[2:-1]), shape[-1])
    peer = theirs(given.clone, name)(*arguments, **options)
    own = getattr(ours, name)(*arguments, **options)
    own.load_state_dict(peer.state_dict())
    peer, own, x = peer.to(given.device), own.to(given.device), torch.randn(shape, device=given.device)
    # In a batch of several samples cliffordlayers' bias of a group norm depends on the place of a sample.
    small = x[:1].double()
    one, other = (stepper(copy.deepcopy(layer).double(), small) for layer in (own, peer))
    found = {"shape": list(shape), "difference": difference(one, other)}
    variants = {"cliffordlayers": stepper(peer, x), "flashcliff": stepper(own, x)}
    if "Conv" in name:
        flat = x.movedim(-1, 1).flatten(1, 2).contiguous()
        variants["floor"] = stepper(Real(own), flat)
    if given.device != "cpu":
        step = variants["flashcliff"]
        variants["flashcliff, captured"] = flashcliff.capture(step, modules=own, copy_outputs=False, fallback="error")
    for variant, step in variants.items():
        spent, memory = milliseconds(step, given.samples, given.device)
        found[variant] = {"milliseconds": spent} | ({} if memory is None else {"megabytes": memory})
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("clone", help="a clone of cliffordlayers")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--samples", type=int, default=20)
    parser.add_argument("--commit", metavar="HASH", help="the commit of flashcliff, to be noted")
    parser.add_argument("--out", metavar="FILE")
    given = parser.parse_args()
    torch.backends.cudnn.allow_tf32 = True
    torch.set_float32_matmul_precision("high")
    device = "cpu" if given.device == "cpu" else torch.cuda.get_device_name(given.device)
    results = {"commit": given.commit, "torch": torch.__version__, "device": device, "cases": {}}
    for name, case in CASES.items():
        results["cases"][name] = measured(case, given)
    show(results, given.out)


if __name__ == "__main__":
    main()
