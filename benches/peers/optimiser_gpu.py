#!/usr/bin/env python3
"""A step of AdamW alone on the parameters of GATr: flashcliff's beside PyTorch's fused one, on a GPU; each with averages of the parameters
too, and flashcliff's Lion.

First both take some steps, which must agree. `eager` is the call of `step()`, `graph` the replay of a
CUDA graph of it. `gpu` is the time between events, `wall` that of the host until the GPU is done, `host` that of the call alone
with an empty queue; medians, in microseconds. With `--max-norm`, PyTorch's optimiser comes after
`torch.nn.utils.clip_grad_norm_(..., foreach=True)`.

    python3 benches/peers/optimiser_gpu.py [--max-norm 1.0] [--commit HASH] [--out FILE]
"""

import argparse
import statistics
import time

import flashcliff
import torch
from flashcliff.compat import gatr
from flashcliff.optim import AdamW, Lion

from results import command, write
from transformers_cases import gatr_net
from transformers_gpu import timed

WHO = ("flashcliff", "pytorch")
TIMED = (*WHO, "flashcliff-averages", "pytorch-averages", "flashcliff-lion", "flashcliff-lion-averages")
DECAY = 0.999
# The difference of both must be a smaller share of the largest change of a parameter.
TOLERANCE = 1e-9


def parameters(device):
    torch.manual_seed(0)
    net = gatr_net(gatr).to(device)
    found = [p for p in net.parameters() if p.requires_grad]
    for parameter in found:
        parameter.grad = torch.randn_like(parameter)
    return found


def stepper(who, own, max_norm):
    """A step of one of them."""
    whose, *how = who.split("-")
    if whose == "flashcliff":
        kind = Lion if "lion" in how else AdamW
        decay = DECAY if "averages" in how else None
        return kind(own, lr=1e-3, max_norm=max_norm, average_decay=decay).step
    averages = [p.detach().clone() for p in own] if "averages" in how else None
    optimiser = torch.optim.AdamW(own, lr=1e-3, fused=True, capturable=torch.cuda.is_available())

    def step():
        if max_norm is not None:
            torch.nn.utils.clip_grad_norm_(own, max_norm, foreach=True)
        optimiser.step()
        if averages is not None:
            # What `AveragedModel` with `get_ema_multi_avg_fn` calls, without its loops on the host.
            torch._foreach_lerp_(averages, own, 1 - DECAY)

    return torch.no_grad()(step)


def recorded(step):
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return graph.replay


def host(step, device, samples):
    """Median seconds of the call on the host."""
    found = []
    for _ in range(samples):
        if device == "cuda":
            torch.cuda.synchronize()
        start = time.perf_counter()
        step()
        found.append(time.perf_counter() - start)
    return statistics.median(found)


def agree(device, max_norm):
    """The difference of the changes after some steps; raises if it is too large."""
    changes = []
    for who in WHO:
        # In float32 a change is a few roundings of its parameter long.
        own = [p.detach().double().requires_grad_() for p in parameters(device)]
        before = [p.detach().clone() for p in own]
        step = stepper(who, own, max_norm)
        for _ in range(5):
            # Clipping writes to the gradients of one of them.
            for parameter in own:
                parameter.grad = torch.randn_like(parameter)
            step()
        changes.append(torch.cat([(p.detach() - b).flatten() for p, b in zip(own, before)]))
    off = float((changes[0] - changes[1]).abs().max() / changes[1].abs().max())
    if not off < TOLERANCE:
        raise SystemExit(f"the optimisers differ by {off:.1e} of the largest change")
    return off


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--max-norm", type=float)
    parser.add_argument("--samples", type=int, default=200)
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--commit", metavar="HASH", help="the commit of flashcliff, to be noted")
    parser.add_argument("--out", metavar="FILE")
    arguments = parser.parse_args()
    device, max_norm = arguments.device, arguments.max_norm
    results = {
        "command": command(),
        "commit": arguments.commit,
        "flashcliff": flashcliff.build_info(),
        "torch": torch.__version__,
        "device": torch.cuda.get_device_name() if device == "cuda" else "cpu",
        "difference": agree(device, max_norm),
        "seconds": {},
    }
    for who in TIMED:
        own = parameters(device)
        results["tensors"], results["elements"] = len(own), sum(p.numel() for p in own)
        step = stepper(who, own, max_norm)
        step()
        found = {"eager": timed(step, device, arguments.samples)}
        found["eager"]["host"] = host(step, device, arguments.samples)
        if device == "cuda":
            found["graph"] = timed(recorded(step), device, arguments.samples)
        results["seconds"][who] = found
    print(
        f"{results['device']}: {results['tensors']} tensors, {results['elements']} elements, "
        f"off by {results['difference']:.1e}"
    )
    for who, ways in results["seconds"].items():
        for way, times in ways.items():
            shown = ", ".join(f"{k} {1e6 * v:.1f} us" for k, v in times.items() if k != "samples")
            print(f"{who}, {way}: {shown}")
    if arguments.out:
        write(arguments.out, results)


if __name__ == "__main__":
    main()
