"""Compares the ways of a network out of Python: time of a run, size of the file, and difference from the module in float64.

    FLASHCLIFF_C_LIBRARY=target/release/libflashcliff_c.so python3 benches/peers/exports.py [--blocks 4] [--threads 1] [--device cuda]

It needs onnxruntime on a CPU. Files of flashcliff's own are run on a CPU, by the library of crates/flashcliff-c, if the variable names it.
Candidates take turns. Each is made once, and compiled if it is compiled; the table says how long that takes. ``--out FILE`` writes the
numbers as JSON, from which `cargo xtask figures` makes the table of the guide; ``--commit HASH`` names what was measured there.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import platform
import statistics
import sys
import tempfile
import time
from pathlib import Path

import torch

import flashcliff
from flashcliff.nn.transformer import GATransformer
from results import write

sys.path.insert(0, str(Path(__file__).parents[2] / "crates" / "flashcliff-py" / "tests"))


def arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("--blocks", type=int, default=4)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--runs", type=int, default=50)
    parser.add_argument("--sizes", default="1x8,8x50,16x128")
    parser.add_argument("--commit", default="", help="the commit that is measured, for the JSON")
    parser.add_argument("--out", help="a file for the JSON")
    return parser.parse_args()


def inputs(samples, items, device):
    """Multivectors, scalars and references, and what files are given for them."""
    mv = torch.randn(16, samples, items, 1, device=device)
    s, reference = (
        torch.randn(samples, items, 1, device=device),
        torch.randn(samples, items, device=device),
    )
    tokens = torch.cat((mv.movedim(0, -2).flatten(-2), s), -1)
    return (mv, s, reference), (tokens, reference)


def module_of(net):
    def run(own, _):
        mv, s, reference = own
        return net(mv, s, reference=reference[..., None])

    return run


def onnx_of(path, threads):
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])

    def run(_, given):
        named = zip(("tokens", "reference"), given, strict=True)
        return torch.from_numpy(session.run(None, {name: x.numpy() for name, x in named})[0])

    return run


def package_of(path):
    loaded = torch._inductor.aoti_load_package(str(path))
    return lambda _, given: loaded(*given)


def own_of(path):
    from c_library import Batch, Call, Network, addresses

    network, plans = Network(path), {}

    def run(_, given):
        shape = given[0].shape
        if shape not in plans:
            runner = ctypes.c_void_p()
            batch = Batch(shape[0], shape[1], 0, 0, 0)
            none = ctypes.c_size_t(0)
            network._check(
                network.lib.fc_network_plan(
                    network.network, batch, 0, None, none, ctypes.byref(runner)
                )
            )
            plans[shape] = runner, torch.empty(shape)
        runner, output = plans[shape]
        call = Call(addresses(list(given)), len(given), addresses([output]), 1)
        network._check(network.lib.fc_network_run(runner, ctypes.byref(call)))
        return output

    return run


def made(net, own, folder):
    """The ways out, each with the seconds that it takes to make and load it, and its bytes."""
    ways = {"module": (module_of(net), 0.0, 0)}
    kinds = [("package", "network.pt2", package_of)]
    if own.device == "cpu":
        kinds.insert(0, ("onnx", "network.onnx", lambda path: onnx_of(path, own.threads)))
        if "FLASHCLIFF_C_LIBRARY" in os.environ:
            kinds.append(("own", "network.safetensors", own_of))
    for name, file, load in kinds:
        path, start = Path(folder) / file, time.perf_counter()
        options = {"device": own.device} if name == "package" else {}
        flashcliff.export(net, path, **options)
        run = load(path)
        ways[name] = run, time.perf_counter() - start, path.stat().st_size
    return ways


def compare(ways, sizes, own, exact):
    """Milliseconds and the difference from the module in float64, of each way."""
    given = inputs(*sizes, own.device)
    clock = clock_of(own)
    wide = tuple(x.double() for x in given[0])
    mv, s = exact(*wide[:2], reference=wide[2][..., None])
    want = torch.cat((mv.movedim(0, -2).flatten(-2), s), -1)
    times = {name: [] for name in ways}
    differences = {}
    for at in range(own.runs + 3):
        for name, (run, _, _) in ways.items():
            if own.device == "cuda":
                torch.cuda.synchronize()
            start = clock()
            found = run(*given)
            if own.device == "cuda":
                torch.cuda.synchronize()
            if at >= 3:
                times[name].append(clock() - start)
            if at == 0:
                if isinstance(found, tuple):
                    found = torch.cat((found[0].movedim(0, -2).flatten(-2), found[1]), -1)
                error = ((found.double() - want).abs().max() / want.abs().max()).item()
                assert error < 1e-5, f"{name}: {error}"
                differences[name] = error
    rows = {}
    for name, own_times in times.items():
        quick, middle = min(own_times) * 1e3, statistics.median(own_times) * 1e3
        error = differences[name]
        rows[name] = {
            "least_ms": round(quick, 4),
            "median_ms": round(middle, 4),
            "difference": float(f"{error:.2e}"),
        }
        what = f"{sizes[0]} x {sizes[1]} {name}"
        print(f"{what}: {quick:.2f} ms at least, median {middle:.2f} ms, difference {error:.1e}")
    return rows


def clock_of(own):
    """Time of the processor, which other work does not lengthen by much; waits count where there are threads or a GPU."""
    return time.process_time if (own.device, own.threads) == ("cpu", 1) else time.perf_counter


def processor():
    """The processor's name."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = (line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor())


def main():
    own = arguments()
    torch.set_num_threads(own.threads)
    flashcliff.set_num_threads(own.threads)
    torch.manual_seed(0)
    settings = {"hidden_scalars": 32, "blocks": own.blocks, "attention": {"heads": 8}}
    net = GATransformer((3, 0, 1), 1, 1, 16, 1, 1, **settings).to(own.device).requires_grad_(False)
    exact = GATransformer((3, 0, 1), 1, 1, 16, 1, 1, **settings).double().to(own.device)
    exact.load_state_dict(net.state_dict())
    exact.requires_grad_(False)
    print(flashcliff.info())
    with tempfile.TemporaryDirectory() as folder, torch.no_grad():
        ways = made(net, own, folder)
        report = {
            "commit": own.commit,
            "device": torch.cuda.get_device_name() if own.device == "cuda" else processor(),
            "load": round(os.getloadavg()[0], 2),
            "clock": clock_of(own).__name__,
            "python": platform.python_version(),
            "torch": torch.__version__,
            "threads": own.threads,
            "blocks": own.blocks,
            "runs": own.runs,
            "ways": {},
            "sizes": [],
        }
        if "onnx" in ways:
            import onnxruntime

            report["onnxruntime"] = onnxruntime.__version__
        for name, (_, seconds, size) in ways.items():
            print(f"{name}: made in {seconds:.1f} s, {size / 1e6:.2f} MB")
            report["ways"][name] = {"made_seconds": round(seconds, 2), "bytes": size}
        for text in own.sizes.split(","):
            samples, items = map(int, text.split("x"))
            rows = compare(ways, (samples, items), own, exact)
            report["sizes"].append({"samples": samples, "items": items, "ways": rows})
    if own.out:
        write(own.out, report)


if __name__ == "__main__":
    main()
