#!/usr/bin/env python3
"""CGENN's own code on charged bodies, beside `flashcliff train nbody`: times of a training step, and the error of our weights in
its network.

    flashcliff data nbody nbody.safetensors
    flashcliff train nbody --device cuda --capture on --out run
    flashcliff train nbody --device cuda --capture on --precision tf32 --out run-tf32
    python3 benches/peers/nbody_gpu.py CLONE nbody.safetensors --weights run/best.safetensors --ours f32=run/metrics.json \
        --ours TF32=run-tf32/metrics.json

CLONE is a clone of DavidRuhe/clifford-group-equivariant-neural-networks. A step is forward, backward and Adam on 100 samples that are on
the GPU. Times are wall times, with a wait for the GPU around all steps that are counted, and medians of rounds that take turns. Compiled
steps have `torch.compile` of the network.
Our times are the means of whole runs of training, with their validation.
"""

import argparse
import importlib
import json
import pathlib
import statistics
import struct
import sys
import time
import types

import torch

from results import write

TYPES = {"F32": torch.float32, "F64": torch.float64, "I64": torch.int64, "U32": torch.int32}
BATCH, BODIES = 100, 5


def cgenn(clone):
    """The class of CGENN's network, without what its training loop imports."""
    sys.path.insert(0, str(clone))
    for name in ("engineer", "engineer.metrics", "engineer.metrics.metrics"):
        sys.modules[name] = types.ModuleType(name)
    sys.modules["engineer.metrics.metrics"].Loss = torch.nn.Identity
    sys.modules["engineer.metrics.metrics"].MetricCollection = torch.nn.ModuleDict
    return importlib.import_module("models.nbody_cggnn").NBodyCGGNN


def tensors(path):
    """The tensors of a safetensors file."""
    data = pathlib.Path(path).read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + length])
    header.pop("__metadata__", None)
    found = {}
    for name, entry in header.items():
        start, end = (8 + length + at for at in entry["data_offsets"])
        numbers = torch.frombuffer(bytearray(data[start:end]), dtype=TYPES[entry["dtype"]])
        found[name] = numbers.reshape(entry["shape"])
    return found


def edges():
    """The complete graph of five bodies, receivers and senders."""
    pairs = [(i, j) for i in range(BODIES) for j in range(BODIES) if i != j]
    return torch.tensor(pairs).T


def batch(split, rows, device):
    """Samples as CGENN's network takes them."""
    inputs = split["inputs"][rows].to(device)
    targets = split["targets"][rows].reshape(-1, BODIES, 3).to(device)
    charges, positions, velocities = inputs[..., :1], inputs[..., 1:4], inputs[..., 4:]
    index = edges()
    products = (charges[:, index[0]] * charges[:, index[1]]).contiguous()
    every = index.to(device)[None].expand(len(inputs), -1, -1)
    return positions, velocities, products, charges, targets, every


def of_split(data, name):
    return {part: data[f"{name}.{part}"] for part in ("inputs", "targets")}


def error(network, split, device):
    """The mean squared error on a split."""
    sums, count = 0.0, len(split["inputs"])
    with torch.no_grad():
        for start in range(0, count, 500):
            rows = slice(start, min(start + 500, count))
            loss, _ = network(batch(split, rows, device), 0)
            sums += loss.double().item() * (rows.stop - rows.start)
    return sums / count


def step_of(network, given):
    adam = torch.optim.Adam(network.parameters(), lr=4e-3, weight_decay=1e-4)

    def step():
        adam.zero_grad()
        loss, _ = network(given, 0)
        loss.backward()
        adam.step()

    return step


def milliseconds(step, device, steps):
    """The milliseconds of a step, of so many."""
    if device.type == "cuda":
        torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(steps):
        step()
    if device.type == "cuda":
        torch.cuda.synchronize()
    return 1e3 * (time.perf_counter() - start) / steps


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("clone", type=pathlib.Path)
    parser.add_argument("data", type=pathlib.Path, help="what `flashcliff data nbody` wrote")
    parser.add_argument("--weights", type=pathlib.Path, help="weights of `flashcliff train nbody`")
    parser.add_argument("--ours", action="append", default=[], metavar="NAME=METRICS", help="the metrics.json of a run")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--steps", type=int, default=20, help="steps of a round")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--commit", help="the commit that the program was built from")
    parser.add_argument("--out", type=pathlib.Path)
    given = parser.parse_args()
    network_of = cgenn(given.clone)

    device, data = torch.device(given.device), tensors(given.data)
    found = {"command": "benches/peers/nbody_gpu.py", "torch": torch.__version__, "commit": given.commit}
    if device.type == "cuda":
        found["gpu"] = torch.cuda.get_device_name()
    if given.weights:
        network = network_of().to(device)
        network.load_state_dict(tensors(given.weights), strict=False)
        missing = set(dict(network.named_parameters())) - set(tensors(given.weights))
        if missing:
            raise SystemExit(f"weights without {sorted(missing)}")
        found["test_error_of_our_weights"] = error(network, of_split(data, "test"), device)
        print(f"our weights in CGENN's network: test {found['test_error_of_our_weights']:.6f}")
    found["ours"] = {}
    for name, _, path in (own.partition("=") for own in given.ours):
        metrics = json.loads(pathlib.Path(path).read_text(encoding="utf-8"))
        steps, errors = metrics["settings"]["steps"], metrics["errors_in_target_units"]
        ours = metrics["seconds"]["training"] / steps * 1e3
        found["ours"][name] = {"steps": steps, "milliseconds": ours, "test": errors["test"]}
        print(f"ours, {name}: {ours:.3f} ms a step with validation, errors {errors}")
    rows = batch(of_split(data, "train"), slice(0, BATCH), device)
    variants = {"CGENN": step_of(network_of().to(device), rows)}
    compiled = network_of().to(device)
    compiled._forward = torch.compile(compiled._forward)
    variants["CGENN, torch.compile"] = step_of(compiled, rows)
    for step in variants.values():
        milliseconds(step, device, 3)
    times = {name: [] for name in variants}
    for _ in range(given.rounds):
        for name, step in variants.items():
            times[name].append(milliseconds(step, device, given.steps))
    found["milliseconds"] = {name: statistics.median(own) for name, own in times.items()}
    for name, own in found["milliseconds"].items():
        print(f"{name}: {own:.3f} ms a step")
    if given.out:
        write(given.out, found)


if __name__ == "__main__":
    main()
