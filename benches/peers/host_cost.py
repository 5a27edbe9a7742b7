"""Measures what a call costs on the host besides its arithmetic: operators on tiny tensors, beside ``torch.add`` and
``torch.nn.functional.linear`` in the same process.

    python benches/peers/host_cost.py [--device cpu|cuda] [--rounds 60] [--commit HASH] [--out FILE]

Three calls are measured: forward, forward where gradients are wanted, and forward with backward. Each goes both ways that a call of
``flashcliff.functional`` can go: by the compiled call path (of a wheel, or made by `python -m flashcliff.native`), and by Python. All
take turns round by round. A round of a case is a run of ``CALLS`` calls. The numbers are medians over rounds, in microseconds, and medians
of the ratios to ``torch.add`` and to ``linear`` in the same round. The clock is that of the wall. On CUDA the queue is empty when a run
starts and never fills, so that no call waits for the GPU.
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import sys
import time

import torch

import flashcliff
from flashcliff import functional as F
from flashcliff import native
from flashcliff._ops import native as switch
from results import show

CALLS = 40
REFERENCES = "add", "linear"
"""The functions of PyTorch that others are compared with."""
ALGEBRA = flashcliff.Algebra(3, 0, 0)
BATCH, CHANNELS = 4, 4


def cases(device: str) -> dict[str, tuple]:
    """Functions of tensors, with the tensors."""

    def randn(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, device=device)

    x, y = randn(8, BATCH, CHANNELS), randn(8, BATCH, CHANNELS)
    square = randn(CHANNELS, CHANNELS)
    return {
        "add": (torch.add, (x, y)),
        "linear": (torch.nn.functional.linear, (x.flatten(0, 1), square, randn(CHANNELS))),
        "sgp_norm": (lambda *t: F.sgp_norm(*t, ALGEBRA), (x, y, randn(CHANNELS, 20))),
        "geometric_product": (lambda *t: F.geometric_product(*t, ALGEBRA), (x, y)),
        "mv_linear": (
            lambda *t: F.mv_linear(*t, algebra=ALGEBRA),
            (x, randn(CHANNELS, CHANNELS, 4), randn(CHANNELS)),
        ),
        "mv_layer_norm": (lambda *t: F.mv_layer_norm(*t, ALGEBRA), (x, randn(CHANNELS, 1))),
        "reverse": (lambda *t: F.reverse(*t, ALGEBRA), (x,)),
    }


def passes(function, tensors) -> dict:
    """The calls that are measured."""
    wanted = tuple(tensor.clone().requires_grad_() for tensor in tensors)
    cotangent = torch.ones_like(function(*tensors))
    return {
        "forward": lambda: function(*tensors),
        "forward_with_gradient": lambda: function(*wanted),
        "forward_and_backward": lambda: torch.autograd.grad(function(*wanted), wanted, cotangent),
    }


def run(call, device: str) -> float:
    """Microseconds of a call, over a run of them."""
    if device == "cuda":
        torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(CALLS):
        call()
    return 1e6 * (time.perf_counter() - start) / CALLS


def measure(device: str, rounds: int) -> dict:
    # `None` is the path in Python.
    modules = {"python": None}
    if native.is_active():
        modules["native"] = switch.loaded
    ways = []
    for name, (function, tensors) in cases(device).items():
        calls = passes(function, tensors)
        for path, module in modules.items():
            if name in REFERENCES and path != "python":
                continue
            ways += [(name, path, module, what, call) for what, call in calls.items()]
    times: dict = {way[:2] + way[3:4]: [] for way in ways}
    for turn in range(rounds + 2):
        for name, path, module, what, call in ways:
            if switch.loaded is not module:
                switch.use(module)
            call()
            took = run(call, device)
            # The first rounds warm up.
            if turn >= 2:
                times[name, path, what].append(took)
    rows: dict = {}
    for (name, path, what), took in times.items():
        way = "pytorch" if name in REFERENCES else path
        row = rows.setdefault(name, {}).setdefault(way, {})
        row[what] = {"us": round(statistics.median(took), 2)}
        for reference in REFERENCES:
            pairs = zip(took, times[reference, "python", what])
            row[what][f"to_{reference}"] = round(statistics.median(a / b for a, b in pairs), 3)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--commit", help="the commit that is measured, for the JSON")
    parser.add_argument("--out", help="a file for the JSON, which is printed otherwise")
    given = parser.parse_args()
    torch.set_num_threads(1)
    if not native.is_active():
        print(
            "without the compiled call path: `python -m flashcliff.native` builds it",
            file=sys.stderr,
        )
    report = {
        "commit": given.commit,
        "device": torch.cuda.get_device_name() if given.device == "cuda" else "cpu",
        "machine": platform.platform(),
        "cpus": os.cpu_count(),
        "load": os.getloadavg()[0],
        "python": platform.python_version(),
        "torch": torch.__version__,
        "flashcliff": flashcliff.__version__,
        "shape": [8, BATCH, CHANNELS],
        "rounds": given.rounds,
        "calls": CALLS,
        "rows": measure(given.device, given.rounds),
    }
    show(report, given.out)


if __name__ == "__main__":
    main()
