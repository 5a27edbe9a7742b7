#!/usr/bin/env python3
"""Geometric algebra transformers of flashcliff beside the published packages, on a GPU.

One process and the same weights for all. Before a variant is timed its outputs are compared with the package's; for
eager variants with TF32 off, and gradients too. A training step is the forward pass, a sum of squares as the loss, the
backward pass and PyTorch's fused AdamW. Times are of one call, as medians over samples: `gpu` between events around the calls of a
sample, `wall` of the host until the GPU is done. A sample is as many calls in a row as take 30 ms, as a training loop makes them, or one
longer call. `peak` is the largest amount of memory that PyTorch had allocated in a step, beyond what was there before the
variant was made.

| variant         | what                                                                       |
|-----------------|----------------------------------------------------------------------------|
| package         | the published package                                                      |
| package-compile | the same under `torch.compile(dynamic=False)`                              |
| ours            | flashcliff.compat                                                          |
| ours-graph      | the same, each call captured in a CUDA graph: a step with its optimiser    |
| ours-compile    | the same under `torch.compile(dynamic=False)`                              |

Variants of ours have more parts in their name, such as `ours-graph-adamw-items`:

| part     | what                                                                       |
|----------|----------------------------------------------------------------------------|
| adamw    | flashcliff.optim.AdamW in place of PyTorch's                               |
| items    | blocks are computed again in the backward pass (`checkpoint_items`)        |
| autocast | under `torch.autocast` to bfloat16, which trains with tokens of 16 bits    |

Jets are ragged, without padding: `attn_bias=BlockDiagonalMask` for both. Without xformers the package gets a stand-in
with PyTorch's copy of xformers' kernel (`transformers_xformers.py`).

`--set users` measures networks of the sizes that users train, `--set sizes` networks of the sizes that the packages measured.

`--out` is written after each variant. `--profile` prints kernels and their time in a call instead.

    python3 benches/peers/transformers_gpu.py --commit HASH --out transformers-gpu.json
    python3 benches/peers/transformers_gpu.py --profile
"""

import argparse
import contextlib
import gc
import math
import signal
import statistics
import time
import warnings

import flashcliff
import torch
from flashcliff.nn.transformer import checkpoint_items
from flashcliff.optim import AdamW

import transformers_xformers
from results import command, write
from transformers_cases import (
    TOLERANCE,
    amplitudes_net,
    arteries_net,
    difference,
    gatr_net,
    inputs,
    jet_lengths,
    lgatr_net,
    loss,
    packages,
    slim_net,
    tagger_net,
    together,
    versions,
    wide_gatr_net,
)
from transformers_profile import profile

KINDS = ("inference", "step")
VARIANTS = (
    "ours",
    "ours-adamw",
    "ours-graph",
    "ours-graph-adamw",
    "ours-graph-adamw-items",
    "ours-graph-adamw-autocast",
    "package",
    "ours-compile",
    "package-compile",
)
# Compiled variants are compared as they run, so in TF32 if that is on. Tokens of 16 bits are rounded.
LOOSE = 2e-2


def size_1(package):
    return lgatr_net(package, 1)


def tiny_gatr(package):
    return gatr_net(package, 2)


def tiny_lgatr(package):
    return lgatr_net(package, 0, 2)


# The package, its network, and the items: a shape, or a number of ragged jets.
CASES = {
    "gatr-64x4": ("gatr", gatr_net, (64, 4)),
    "gatr-16x512": ("gatr", gatr_net, (16, 512)),
    "lgatr-0-ragged": ("lgatr", lgatr_net, 512),
    "lgatr-0-padded": ("lgatr", lgatr_net, (512, 50)),
    "lgatr-1-ragged": ("lgatr", size_1, 512),
    "lgatr-1-padded": ("lgatr", size_1, (512, 50)),
}
USERS = {
    "tagger-128": ("lgatr", tagger_net, 128),
    "tagger-512": ("lgatr", tagger_net, 512),
    "slim-128": ("lgatr", slim_net, 128),
    "amplitudes-1024x6": ("lgatr", amplitudes_net, (1024, 6)),
    "gatr-64x4": ("gatr", gatr_net, (64, 4)),
    "arteries-1x2000": ("gatr", arteries_net, (1, 2000)),
    "gatr-wide-7x333": ("gatr", wide_gatr_net, (7, 333)),
    "gatr-1x1500": ("gatr", gatr_net, (1, 1500)),
}
QUICK = {
    "gatr-2x5": ("gatr", tiny_gatr, (2, 5)),
    "lgatr-ragged": ("lgatr", tiny_lgatr, 3),
    "lgatr-2x6": ("lgatr", tiny_lgatr, (2, 6)),
    "slim-ragged": ("lgatr", slim_net, 3),
}
SETS = {"sizes": CASES, "users": USERS, "quick": QUICK}


class Case:
    """Inputs of a case, and the states of its networks."""

    def __init__(self, package, make, items, device):
        self.theirs, self.ours = packages(package)
        self.make, self.device = make, device
        self.note = {}
        self.options = {"package": {}, "ours": {}}
        shape = items
        if isinstance(items, int):
            shape = self._ragged(jet_lengths(items))
        torch.manual_seed(0)
        # Slim networks read vectors in place of multivectors.
        components = 4 if make is slim_net else 16
        self.inputs = [x.to(device) for x in inputs(*shape, components=components)]
        self.note["items"] = list(shape)
        self.state = make(self.theirs).state_dict()

    def _ragged(self, lengths):
        from xformers.ops.fmha.attn_bias import BlockDiagonalMask

        mask = BlockDiagonalMask.from_seqlens(lengths)
        for info in (mask.q_seqinfo, mask.k_seqinfo):
            info.seqstart = info.seqstart.to(self.device)
        self.options["ours"] = {"attn_bias": mask}
        self.options["package"] = {"attn_bias": mask, "backend": "xformers"}
        if self.device == "cpu":
            # The package refuses xformers on CPUs.
            sequence = torch.arange(len(lengths)).repeat_interleave(torch.tensor(lengths))
            self.options["package"] = {"attn_mask": sequence[:, None] == sequence}
        self.note |= {"jets": len(lengths), "mean": sum(lengths) / len(lengths)}
        self.note["longest"] = max(lengths)
        return 1, sum(lengths)

    def network(self, variant):
        """A new network of a variant, and a function that calls it."""
        who = variant.split("-")[0]
        net = self.make(self.theirs if who == "package" else self.ours)
        net.load_state_dict(self.state)
        net.to(self.device)
        parts = variant.split("-")
        if not checkpoint_items(net, "items" in parts) and "items" in parts:
            raise ValueError("no block of this network can be computed again as a part of one function")
        options = self.options[who]
        run = torch.compile(net, dynamic=False) if variant.endswith("-compile") else net
        if "autocast" in parts:
            # Networks of lgatr compute in float32 under autocast unless they are asked.
            net.naive_amp = True
            run = torch.autocast(self.device, torch.bfloat16, cache_enabled=False)(net)
        return net, lambda: run(*self.inputs, **options)


class Calls:
    """An inference and a training step of a network."""

    def __init__(self, net, run, captured, ours=False):
        self.net, self.run = net, run
        if ours:
            self.optimizer = AdamW(net.parameters(), lr=1e-6)
        else:
            self.optimizer = torch.optim.AdamW(
                net.parameters(), lr=1e-6, fused=True, capturable=captured
            )
        self.graphs = {}

    def inference(self):
        with torch.no_grad():
            return self.run()

    def step(self):
        self.optimizer.zero_grad(set_to_none=True)
        loss(self.run()).backward()
        self.optimizer.step()

    def capture(self, kind):
        """Replaces a call by the replay of a CUDA graph; returns its results, which replays renew."""
        function = getattr(self, kind)
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                function()
        torch.cuda.current_stream().wait_stream(side)
        self.optimizer.zero_grad(set_to_none=True)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            result = function()
        self.graphs[kind] = graph
        setattr(self, kind, graph.replay)
        return result


class TookTooLong(Exception):
    """A variant ran past its limit."""


@contextlib.contextmanager
def at_most(seconds):
    """Raises :class:`TookTooLong` in the main thread after some seconds."""

    def stop(*_):
        raise TookTooLong(f"it took more than {seconds} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def set_tf32(enabled):
    """Whether matrix products of float32 may round to TF32."""
    torch.set_float32_matmul_precision("high" if enabled else "highest")


def synchronize(device):
    if device == "cuda":
        torch.cuda.synchronize()


def timed(function, device, samples, seconds=4.0, least=0.03):
    """Median seconds of a call, by events and by the wall clock: `samples` of them, fewer if they take too long. Each is the
    mean of as many calls in a row as take `least` seconds."""

    def passed(calls):
        """Seconds of calls in a row, by the wall clock, and by events."""
        synchronize(device)
        start = time.perf_counter()
        if device == "cuda":
            first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            first.record()
        for _ in range(calls):
            function()
        if device == "cuda":
            last.record()
        synchronize(device)
        wall = time.perf_counter() - start
        return wall, 1e-3 * first.elapsed_time(last) if device == "cuda" else wall

    passed(2)
    calls = math.ceil(least / passed(1)[0])
    found = []
    begun = time.perf_counter()
    while len(found) < samples and (len(found) < 3 or time.perf_counter() - begun < seconds):
        found.append([own / calls for own in passed(calls)])
    wall, gpu = (statistics.median(own) for own in zip(*found, strict=True))
    result = {"wall": wall, "samples": len(found), "calls": calls}
    return {"gpu": gpu, **result} if device == "cuda" else result


def gradients(net, run):
    """The gradients of a step, by name, on the host."""
    net.zero_grad(set_to_none=True)
    loss(run()).backward()
    found = {n: p.grad.cpu() for n, p in net.named_parameters() if p.grad is not None}
    net.zero_grad(set_to_none=True)
    return {name: grad for name, grad in found.items() if grad.numel()}


def outputs(run):
    with torch.no_grad():
        return [x.detach().cpu() for x in run() if x is not None]


def reference(case):
    """Outputs and gradients of the package in eager mode, without TF32."""
    set_tf32(False)
    net, run = case.network("package")
    return outputs(run), gradients(net, run)


def compare(variant, net, run, wanted):
    """The differences of a variant to the package; raises if they are too large."""
    found = {"outputs": difference(outputs(run), wanted[0])}
    limit = LOOSE if {"compile", "autocast"} & set(variant.split("-")) else TOLERANCE
    if limit == TOLERANCE:
        got = gradients(net, run)
        names = [name for name in wanted[1] if name in got]
        found["gradients"] = together(
            [got[name] for name in names], [wanted[1][name] for name in names]
        )
    # The negation counts NaN as wrong.
    if not found["outputs"] < limit or not found.get("gradients", 0.0) < 10 * limit:
        raise ValueError(f"wrong: {found}")
    return found


def measure(case, variant, wanted, arguments):
    """Differences, times and peak memory of a variant."""
    device, captured = case.device, variant.startswith("ours-graph")
    gc.collect()
    before = 0
    if device == "cuda":
        torch.cuda.empty_cache()
        before = torch.cuda.memory_allocated()
    net, run = case.network(variant)
    compiled = variant.endswith("-compile")
    set_tf32(arguments.tf32 and compiled)
    start = time.perf_counter()
    result = {"differences": compare(variant, net, run, wanted), "seconds": {}, "peak": {}}
    set_tf32(arguments.tf32)
    calls = Calls(net, run, captured and device == "cuda", "adamw" in variant.split("-"))
    for kind in KINDS:
        if device == "cuda":
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()
        if captured and device == "cuda":
            got = calls.capture(kind)
            if kind == "inference":
                calls.inference()
                got = [x.cpu() for x in got if x is not None]
                off = difference(got, outputs(run))
                result["differences"]["captured"] = off
                if not off < TOLERANCE:
                    raise ValueError(f"the captured call is wrong: {off}")
        else:
            getattr(calls, kind)()
            if compiled:
                result.setdefault("first calls", {})[kind] = time.perf_counter() - start
        if device == "cuda":
            getattr(calls, kind)()
            torch.cuda.synchronize()
            result["peak"][kind] = torch.cuda.max_memory_allocated() - before
        result["seconds"][kind] = timed(getattr(calls, kind), device, arguments.samples)
    return result


def told(name, variant, result):
    """One line about a variant."""
    if "failed" in result:
        return f"{name}, {variant}: {result['failed']}"
    parts = []
    for kind, times in result["seconds"].items():
        shown = ", ".join(
            f"{clock} {1e3 * times[clock]:.2f}" for clock in ("gpu", "wall") if clock in times
        )
        peak = f", {result['peak'][kind] / 2**20:.0f} MiB" if kind in result["peak"] else ""
        parts.append(f"{kind} {shown} ms{peak}")
    differences = ", ".join(f"{k} {v:.1e}" for k, v in result["differences"].items())
    return f"{name}, {variant}: {'; '.join(parts)} (off: {differences})"


def guarded(case, variant, wanted, arguments):
    """The result of a variant, or why there is none."""
    try:
        with at_most(arguments.limit_seconds):
            return measure(case, variant, wanted, arguments)
    except (Exception, TookTooLong) as error:
        torch._dynamo.reset()
        why = str(error).strip().splitlines() or [""]
        return {"failed": f"{type(error).__name__}: {why[0][:300]}"}


def environment(arguments, xformers):
    """The GPU, the versions and the options that the measurements depend on."""
    result = {
        "command": command(),
        "commit": arguments.commit,
        "packages": {**versions(), "xformers": xformers},
        "flashcliff": flashcliff.build_info(),
        "tf32": arguments.tf32,
        "device": arguments.device,
    }
    if arguments.device == "cuda":
        result["device"] = torch.cuda.get_device_name()
        result["cuda"] = torch.version.cuda
    return result


def parsed():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--commit", metavar="HASH", help="the commit of flashcliff, to be noted")
    parser.add_argument("--out", metavar="FILE", default="transformers-gpu.json")
    parser.add_argument("--case", help="some of the cases, with commas between them")
    parser.add_argument("--variants", default=",".join(VARIANTS))
    parser.add_argument("--samples", type=int, default=20)
    parser.add_argument("--tf32", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument(
        "--limit-seconds", type=float, default=100, help="of one variant of one case"
    )
    parser.add_argument(
        "--budget-seconds", type=float, default=540, help="after these no measurement begins"
    )
    parser.add_argument("--profile", action="store_true", help="prints kernels; measures nothing")
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument(
        "--set",
        default="sizes",
        choices=SETS,
        help="the cases to measure; `quick` tries the script",
    )
    arguments = parser.parse_args()
    cases = SETS[arguments.set]
    names = arguments.case.split(",") if arguments.case else list(cases)
    variants = arguments.variants.split(",")
    for name in (*names, *variants):
        if name not in cases and name not in VARIANTS:
            parser.error(f"expected {', '.join((*cases, *VARIANTS))}, got {name}")
    return arguments, {name: cases[name] for name in names}, variants


def main():
    arguments, chosen, variants = parsed()
    warnings.filterwarnings("ignore")
    xformers = transformers_xformers.install()
    begun = time.perf_counter()
    results = {**environment(arguments, xformers), "samples": arguments.samples, "cases": {}}
    cases, wanted = {}, {}

    def prepared(name):
        if name not in cases:
            cases[name] = Case(*chosen[name], arguments.device)
            results["cases"][name] = {**cases[name].note, "variants": {}}
        return cases[name]

    if arguments.profile:
        set_tf32(arguments.tf32)
        for name in chosen:
            case = prepared(name)
            net, run = case.network(variants[0])
            calls = Calls(net, run, False)
            for kind in KINDS:
                print(f"\n{name}, {kind}, {variants[0]} in eager mode")
                profile(getattr(calls, kind), arguments.device)
            del cases[name], case, net, run, calls
            gc.collect()
        return
    # Compiled variants come last, since they take long.
    order = [v for v in variants if not v.endswith("-compile")]
    order += [v for v in variants if v.endswith("-compile")]
    for compiled in (False, True):
        for name in chosen:
            for variant in (v for v in order if v.endswith("-compile") == compiled):
                left = arguments.budget_seconds - (time.perf_counter() - begun)
                if left <= 0:
                    result = {"failed": "not begun: the budget was spent"}
                else:
                    arguments.limit_seconds = min(arguments.limit_seconds, max(left, 10))
                    case = prepared(name)
                    if name not in wanted:
                        wanted[name] = reference(case)
                    result = guarded(case, variant, wanted[name], arguments)
                found = results["cases"].setdefault(name, {"variants": {}})
                found["variants"][variant] = result
                print(told(name, variant, result), flush=True)
                write(arguments.out, results)


if __name__ == "__main__":
    main()
