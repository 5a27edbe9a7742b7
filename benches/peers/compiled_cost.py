"""Measures what a call of a compiled graph costs on the host: a few layers on tiny tensors, by ``torch.compile``
(inductor), with the operators' kernels in Python and compiled (``python -m flashcliff.native``).

    python benches/peers/compiled_cost.py [--device cpu|cuda] [--layers 8] [--rounds 30] [--out FILE]

The two ways take turns, each in its own processes, since a process decides at its start. The numbers are medians over
all rounds of all processes, in microseconds for the whole call; beside them the cost of one operator by ``torch.ops``. The
clock is that of the wall; on CUDA the queue is empty when a round starts and never fills.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import time

from results import show

CALLS = 20
TURNS = 3
WAYS = {"python": "0", "native": "1"}


def rounds(call, device: str, count: int) -> list[float]:
    """Microseconds of a call, for each round."""
    import torch

    times = []
    for turn in range(count + 3):
        if device == "cuda":
            torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(CALLS):
            call()
        # The first rounds warm up.
        if turn >= 3:
            times.append(1e6 * (time.perf_counter() - start) / CALLS)
    return times


def measure(device: str, layers: int, count: int) -> dict[str, list[float]]:
    """The times of this process."""
    import torch

    from flashcliff import nn

    torch.set_num_threads(1)
    torch.manual_seed(0)
    net = torch.nn.Sequential(*(nn.FlashCliffordLayer((3, 0, 0), 4) for _ in range(layers)))
    net = net.to(device)
    compiled = torch.compile(net, fullgraph=True, dynamic=False)
    x, y = torch.randn(2, 8, 4, 4, device=device)
    weight = torch.randn(4, 20, device=device)
    operator = torch.ops.flashcliff.sgp_norm.default
    backward = torch.ops.flashcliff.sgp_norm_backward.default
    output, saved = operator(x, y, weight, "cl300")
    wanted = [True, True, True]

    def step():
        net.zero_grad()
        compiled(x).sum().backward()

    def inference():
        with torch.no_grad():
            compiled(x)

    calls = {
        "operator": lambda: operator(x, y, weight, "cl300"),
        "its gradient": lambda: backward(output, x, y, weight, saved, None, wanted, "cl300"),
        "graph": inference,
        "graph, forward and backward": step,
    }
    return {name: rounds(call, device, count) for name, call in calls.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--out", help="a file for the JSON, which is printed otherwise")
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        print(json.dumps(measure(given.device, given.layers, given.rounds)))
        return
    command = [sys.executable, *sys.argv, "--one"]
    times: dict[str, dict[str, list[float]]] = {way: {} for way in WAYS}
    for _ in range(TURNS):
        for way, choice in WAYS.items():
            environment = {**os.environ, "FLASHCLIFF_NATIVE": choice}
            done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True, text=True)
            for name, took in json.loads(done.stdout.splitlines()[-1]).items():
                times[way].setdefault(name, []).extend(took)
    import torch

    import flashcliff

    report = {
        "device": torch.cuda.get_device_name() if given.device == "cuda" else "cpu",
        "machine": platform.platform(),
        "cpus": os.cpu_count(),
        "load": os.getloadavg()[0],
        "python": platform.python_version(),
        "torch": torch.__version__,
        "flashcliff": flashcliff.__version__,
        "layers": given.layers,
        "shape": [8, 4, 4],
        "rounds": TURNS * given.rounds,
        "calls": CALLS,
        "us": {
            way: {name: round(statistics.median(took), 2) for name, took in rows.items()}
            for way, rows in times.items()
        },
    }
    show(report, given.out)


if __name__ == "__main__":
    main()
